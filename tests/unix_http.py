"""HTTP at a unix socket, such as that of an agent."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from tests.patience import PATIENCE_S


class HttpAnswer(NamedTuple):
    """What a server answers to one request."""

    status: int
    headers: Message
    body: bytes


def ask(
    path: Path | str, target: str, *, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    """Send one request to the socket at `path`."""
    with closing(HTTPConnection("localhost", timeout=PATIENCE_S)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request(method, target, body or None, dict(headers or {}))
        answer = connection.getresponse()
        return HttpAnswer(answer.status, answer.headers, answer.read())
