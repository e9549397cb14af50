"""The calls of Palimpsest that an agent needs, over the generated client (see README.md)."""

import inspect
import json
import os
import time

import httpx
from palimpsest_client import AuthenticatedClient, Client
from palimpsest_client.api.archive import expand, search, tool_response
from palimpsest_client.api.policies import configure
from palimpsest_client.api.turns_and_context import sync
from palimpsest_client.errors import UnexpectedStatus
from palimpsest_client.models import Problem


class Failure(Exception):
    """A failure of the API; `type` is one of docs/failures.md."""

    def __init__(self, problem):
        self.type = problem.failure
        self.detail = problem.detail
        self.hint = problem.hint or None
        said = f"{self.type}: {self.detail}"
        super().__init__(f"{said.removesuffix('.')}. {self.hint}" if self.hint else said)


class Palimpsest:
    def __init__(self, url=None, token=None):
        url = url or os.environ.get("PALIMPSEST_URL", "http://127.0.0.1:7280")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"The address of the API (PALIMPSEST_URL) must begin with http:// or https://: {url}")
        self._url = url
        token = token or os.environ.get("PALIMPSEST_TOKEN")
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("The token (PALIMPSEST_TOKEN) has a line break or a letter that no token has.")
        options = {"base_url": url, "timeout": httpx.Timeout(60), "raise_on_unexpected_status": True}
        self._client = AuthenticatedClient(token=token, **options) if token else Client(**options)

    def sync(self, session, messages, **fields):
        """Stores what the session does not have, once, and returns the messages for the next request to the model.

        `messages` is the whole list that you hold, or messages that an earlier call returned with what came since.
        """
        body = {"messages": messages, **fields}
        return [message.to_dict() for message in self._call(sync, session, body).context.messages]

    def held(self, session):
        """The messages of a session for a process that holds none; an empty list for a new session."""
        try:
            return self.sync(session, [])
        except Failure as failure:
            if failure.type == "Store.SessionNotFound":
                return []
            raise

    def configure(self, session, policy):
        """Replaces the policy of a session. The `policy` of `sync` counts with the first turn only."""
        return self._call(configure, session, {"policy": policy})

    def search(self, session, **fields):
        return self._call(search, session, fields)

    def tool_response(self, session, **query):
        return self._call(tool_response, session, **query)

    def expand(self, session, **query):
        return self._call(expand, session, **query)

    def _call(self, operation, session, body=None, **query):
        _check_session(session)
        _refuse_lone_surrogates({"session": session, **(body or {}), **query})
        request = query if body is None else {"body": _Body(body)}
        # An argument that the operation does not have is an error of the caller, not of the API.
        inspect.signature(operation.sync).bind(session, client=self._client, **request)
        # A repeated `sync` stores nothing twice, `configure` replaces, and the other calls only read.
        for pause in (0.1, 0.4, 1.6, None):
            try:
                answer = operation.sync(session, client=self._client, **request)
            except (httpx.TransportError, UnexpectedStatus) as error:
                failed, reason = error, str(error)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # A proxy answered in the API's place.
                failed, reason = error, f"another server answered, or another version of the API ({error!r})"
            else:
                if not isinstance(answer, Problem):
                    return answer
                if answer.status not in (429, 503) or pause is None:
                    raise Failure(answer)
            if pause is None:
                raise ConnectionError(f"No answer of the API at {self._url} (PALIMPSEST_URL): {reason}") from failed
            time.sleep(pause)


class _Body:
    """The fields as given. The generated classes drop or refuse what they do not know; the API says what is wrong with it."""

    def __init__(self, fields):
        self._fields = fields

    def to_dict(self):
        return self._fields


def _check_session(session):
    """An address cannot have `.` or `..` in a path: `sessions/../policy` is the policy of all sessions."""
    if not isinstance(session, str):
        raise TypeError(f"The session is {session!r}, but must be a string.")
    if session in (".", ".."):
        raise ValueError(f"The session {session!r} cannot be part of a URL. Choose another id.")


def _refuse_lone_surrogates(fields):
    """UTF-8 cannot have them. What JSON cannot have is an error here, too."""
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("A text has a lone surrogate, half of a character. Replace it, for example with U+FFFD.") from error
