"""A peer of the controller that is no Open vSwitch: it sends what a test tells it to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import PATIENCE_S
from xenoovs.controller.server import Server

HELLO = bytes.fromhex("0500000800000001")
"""OpenFlow 1.4, nothing else (1.4.0, 7.5.1)."""


@contextmanager
def peer(server: Server) -> Iterator[socket.socket]:
    """A TCP connection to the controller."""
    host, port = server.target.partition(":")[2].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
        yield sock


def read_to_end(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionError:
        return data
    return data
