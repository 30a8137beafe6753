"""HTTP at a unix socket, such as that of an agent."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from typing import Any, NamedTuple

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


@contextmanager
def answering(path: Path | str, answer: Callable[[str, Any], object | None]) -> Iterator[None]:
    """In the block, the socket at `path` answers documents: of the target and the document of a request. None: 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            document = answer(self.path, json.loads(sent) if sent else None)
            self.send_response(404 if document is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def address_string(self) -> str:
            return ""

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
    Path(path).unlink()
