"""The calls of Palimpsest that an agent needs, over the client that openapi-python-client makes (see README.md)."""

import os
import time

import httpx
from palimpsest_client import AuthenticatedClient, Client
from palimpsest_client.api.turns_and_context import sync
from palimpsest_client.models import Synced, SyncRequest


class Failure(Exception):
    """A failure of the API; `type` is one of docs/failures.md."""

    def __init__(self, problem):
        super().__init__(f"{problem.failure.value}: {problem.detail}")
        self.type = problem.failure.value


class Palimpsest:
    def __init__(self, url=None, token=None):
        url = url or os.environ.get("PALIMPSEST_URL", "http://127.0.0.1:7280")
        token = token or os.environ.get("PALIMPSEST_TOKEN")
        timeout = httpx.Timeout(60)
        self.client = (
            AuthenticatedClient(base_url=url, token=token, timeout=timeout)
            if token
            else Client(base_url=url, timeout=timeout)
        )

    def sync(self, session, messages, **fields):
        """Stores what the session does not have, once, and returns the messages for the next request to the model.

        `messages` is the whole list that you hold, or messages that an earlier call returned with what came since.
        """
        body = SyncRequest.from_dict({"messages": messages, **fields})
        return [message.to_dict() for message in self._synced(session, body).context.messages]

    def held(self, session):
        """The messages of a session for a process that holds none; an empty list for a new session."""
        try:
            return self.sync(session, [])
        except Failure as failure:
            if failure.type == "Store.SessionNotFound":
                return []
            raise

    def _synced(self, session, body):
        # A repeated `sync` stores nothing twice.
        for pause in (0.1, 0.4, 1.6, None):
            try:
                answer = sync.sync_detailed(session, client=self.client, body=body)
                if isinstance(answer.parsed, Synced):
                    return answer.parsed
                if answer.status_code not in (429, 503) or pause is None:
                    raise Failure(answer.parsed)
            except httpx.TransportError:
                if pause is None:
                    raise
            time.sleep(pause)
