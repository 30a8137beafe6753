"""A blocking client of an agent at its unix socket, for commands."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from xenoovs.display import span
from xenoovs.errors import AgentMissing, AgentRefused

ANSWER_TIMEOUT_S = 90.0
"""A change is answered after its round, whose time depends on Open vSwitch."""
READS = frozenset(("status", "blocks", "events", "paths", "paths_plan", "paths_why"))
"""Names of routes that change nothing. They are repeated here, because importing the routes takes long."""


class Client:
    """A client of one agent. Every call opens a new connection."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(
        self, name: str, request: Mapping[str, object] | None = None, *, query: Mapping[str, object] | None = None
    ) -> Any:
        """Send a request to a route, by its name, and return the answer. Raises AgentMissing, AgentRefused."""
        path = f"/v1/{name.replace('_', '/')}" + ("" if query is None else f"?{urlencode(query)}")
        body = None if name in READS else json.dumps(request or {}, default=float).encode()
        try:
            connection, response = self._send(path, body)
            with closing(connection):
                data = response.read()
        except (OSError, HTTPException) as error:
            raise self._missing(error) from None
        return self._document(response.status, data)

    def events(self, since: int) -> Iterator[dict[str, Any]]:
        """Yield events as they happen, until the agent ends. Raises AgentMissing, AgentRefused."""
        try:
            connection, response = self._send(f"/v1/events/stream?since={since}", None)
            with closing(connection):
                if response.status != 200:
                    self._document(response.status, response.read())
                while line := response.readline():
                    if line.strip():
                        yield self._document(response.status, line)
        except (OSError, HTTPException) as error:
            raise self._missing(error) from None

    def _send(self, path: str, body: bytes | None) -> tuple[_Connection, Any]:
        connection = _Connection(self.path)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _document(self, status: int, data: bytes) -> Any:
        try:
            document = json.loads(data)
            if status == 200:
                return document
            raise AgentRefused(document["error"]["message"], status=status, code=document["error"]["code"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AgentMissing(where=str(self.path), reason=f"another program answered (HTTP {status})") from None

    def _missing(self, error: Exception) -> AgentMissing:
        reasons: dict[type[Exception], str] = {
            FileNotFoundError: "there is no such socket",
            ConnectionRefusedError: "no process listens; the agent was killed",
            PermissionError: "permission denied; try as root",
            TimeoutError: f"no answer within {span(ANSWER_TIMEOUT_S)}",
        }
        return AgentMissing(where=str(self.path), reason=reasons.get(type(error), str(error) or type(error).__name__))


class _Connection(HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))
