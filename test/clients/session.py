"""One session through the client that openapi-python-client makes. Prints what it saw as JSON."""

import json
import os

from palimpsest_client import AuthenticatedClient
from palimpsest_client.api.archive import expand, replay, search
from palimpsest_client.api.sessions import compact, status
from palimpsest_client.api.turns_and_context import append_turn, context
from palimpsest_client.models import (
    AppendedTurn,
    CompactionOutcome,
    ContextFormat,
    Expansion,
    Policy,
    Problem,
    SearchRequest,
    SearchResult,
    SessionContext,
    Turn,
    TurnMessagesItem,
)

session = "from-python"
client = AuthenticatedClient(
    base_url=os.environ["API_URL"], token=os.environ["API_TOKEN"], raise_on_unexpected_status=True
)


def answered(kind, answer):
    """The answer, or the failure of a problem."""
    if isinstance(answer, kind):
        return answer
    raise SystemExit(f"{answer.failure}: {answer.detail}" if isinstance(answer, Problem) else repr(answer))


stored = 0
for turn in range(1, 13):
    invoice = 4700 + turn
    said = [
        {"role": "user", "content": f"What does invoice {invoice} say?"},
        {"role": "assistant", "content": f"Invoice {invoice} says {'ledger ' * 100}."},
    ]
    body = Turn(turn_id=f"t-{turn}", messages=[TurnMessagesItem.from_dict(message) for message in said])
    if turn == 1:
        body.policy = Policy(context_window=4_000)
    stored = answered(AppendedTurn, append_turn.sync(session, client=client, body=body)).through_seq

before = answered(SessionContext, context.sync(session, client=client))
outcome = answered(CompactionOutcome, compact.sync(session, client=client))
after = answered(
    SessionContext, context.sync(session, client=client, format_=ContextFormat.OPENAI_CHAT)
)
found = answered(
    SearchResult, search.sync(session, client=client, body=SearchRequest(query="4703", limit=2))
)
lines = replay.sync_detailed(session, client=client).content.decode().splitlines()
page = answered(Expansion, expand.sync(session, client=client, from_seq=3, limit=2))
missing = answered(Problem, status.sync("nobody", client=client))
print(
    json.dumps(
        {
            "stored": stored,
            "shrunk": after.tokens < before.tokens,
            "generation": [outcome.generation, after.generation],
            "found": [hit.seq for hit in found.hits],
            "replayed": len(lines),
            "page": [message.seq for message in page.messages],
            "failure": missing.failure.value,
        }
    )
)
