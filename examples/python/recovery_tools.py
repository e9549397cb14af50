"""Tools with which the agent's model reads messages that were evicted from its context."""

import json
from pathlib import Path

from palimpsest import Failure

# Pass these to the model together with your own tools.
recovery_tools = json.loads(Path(__file__).with_name("recovery_tools.json").read_text("utf-8"))
names = [tool["function"]["name"] for tool in recovery_tools]


def call_recovery_tool(palimpsest, session, name, arguments):
    """Answers one call: the content of its tool message. `arguments` are the JSON text of the call, or its value.

    For a mistake of the model the content is an error with a hint; other failures are raised.
    """
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        given = {field: value for field, value in given.items() if value is not None}
        answer = _tools[name](palimpsest, session, **given)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        answer = {"error": f"This is no call of {', '.join(names)}: {error}", "hint": "Correct the call."}
    except Failure as failure:
        if failure.type not in ("Input.Invalid", "Store.SessionNotFound"):
            raise
        answer = {"error": f"{failure.type}: {failure.detail}", "hint": failure.hint or "Correct the call."}
    return json.dumps(answer, ensure_ascii=False)


def _search_history(palimpsest, session, query, exact=False, from_message=None, through_message=None, **filters):
    asked = {"query": query, "forAgent": True, "fromSeq": from_message, "throughSeq": through_message, **filters}
    asked["mode"] = "substring" if exact else None
    found = palimpsest.search(session, **{field: value for field, value in asked.items() if value is not None})
    hits = [
        {
            **_origin(hit),
            "tool": hit.tool,
            "offset": hit.offset,
            "snippet": hit.snippet,
            "following": [{**_origin(one), "text": one.text} for one in hit.following],
        }
        for hit in found.hits
    ]
    return {"hits": hits, "next_offset": found.next_offset}


def _origin(hit):
    date = hit.at or hit.stored_at
    return {"message": hit.seq, "role": hit.role, "speaker": hit.speaker, "date": date.isoformat()}


def _get_tool_response(palimpsest, session, call_id=None, message=None, offset=0, limit=8_000):
    found = palimpsest.tool_response(session, call_id=call_id, seq=message, offset=offset, limit=limit)
    return {
        "message": found.seq,
        "role": found.role,
        "tool": found.tool,
        "format": found.format_,
        "content": found.content,
        "offset": found.offset,
        "total_characters": found.total_characters,
        "next_offset": found.next_offset,
    }


def _expand_history(palimpsest, session, part=None, from_message=None, limit=20):
    found = palimpsest.expand(session, part=part, from_seq=from_message, limit=limit, max_characters=40_000)
    messages = [{"message": one.seq, **_shown(one.message.to_dict())} for one in found.messages]
    return {"messages": messages, "next_message": found.next_seq}


def _shown(message, longest=2_000):
    """The message with its long texts cut."""
    if isinstance(message, dict):
        return {field: _shown(value) for field, value in message.items()}
    if isinstance(message, list):
        return [_shown(value) for value in message]
    if isinstance(message, str) and len(message) > longest:
        return f"{message[:longest]}… ({len(message)} characters: read them with get_tool_response)"
    return message


_tools = {
    "search_history": _search_history,
    "get_tool_response": _get_tool_response,
    "expand_history": _expand_history,
}
