"""The calls of Palimpsest's HTTP API that an agent needs. Python's standard library is enough."""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request


class Failure(Exception):
    """A failure of the API; `type` is one of docs/failures.md."""

    def __init__(self, problem):
        super().__init__(f"{problem.get('failure')}: {problem.get('detail')}")
        self.type = problem.get("failure")
        self.hint = problem.get("hint")


class Palimpsest:
    def __init__(self, url=None, token=None):
        self.url = url or os.environ.get("PALIMPSEST_URL", "http://127.0.0.1:7280")
        self.token = token or os.environ.get("PALIMPSEST_TOKEN")

    def sync(self, session, messages, **fields):
        """Stores what the session does not have, once, and returns the messages for the next request to the model.

        `messages` is the whole list that you hold, or messages that an earlier call returned with what came since.
        """
        return self._send(session, "sync", {"messages": messages, **fields})["context"]["messages"]

    def held(self, session):
        """The messages of a session for a process that holds none; an empty list for a new session."""
        try:
            return self.sync(session, [])
        except Failure as failure:
            if failure.type == "Store.SessionNotFound":
                return []
            raise

    def search(self, session, **fields):
        return self._send(session, "search", fields)

    def tool_response(self, session, **query):
        return self._get(session, "tool-response", query)

    def expand(self, session, **query):
        return self._get(session, "messages", query)

    def _get(self, session, operation, query):
        given = {name: value for name, value in query.items() if value is not None}
        return self._send(session, f"{operation}?{urllib.parse.urlencode(given)}", None)

    def _send(self, session, operation, body):
        url = f"{self.url}/v1/sessions/{urllib.parse.quote(session, safe='')}/{operation}"
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
        request.add_header("content-type", "application/json")
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        # A repeated `sync` stores nothing twice, and the other calls only read.
        for pause in (0.1, 0.4, 1.6, None):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or pause is None:
                    raise Failure(json.load(error)) from None
            except urllib.error.URLError:
                if pause is None:
                    raise
            time.sleep(pause)
