"""Who has come and is not known yet. Strangers have few places among themselves, and none of those who are known."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from threading import Lock

STRANGERS = 64
"""Connections, at one time, of which nobody knows yet whether they are bridges that are wanted."""


class Doorway:
    """Where there is no room for one more stranger, one has to leave: of the address with most of them the oldest.

    So nobody is kept waiting: a bridge says who it is within milliseconds, and then it is no stranger. Strangers that
    come one after the other drive out each other.
    """

    def __init__(self, *, strangers: int = STRANGERS) -> None:
        self._most = strangers
        self._lock = Lock()
        self._strangers: dict[socket.socket, str] = {}

    def enter(self, sock: socket.socket, host: str) -> None:
        """A connection from that address."""
        with self._lock:
            leaving = self._next_to_leave() if len(self._strangers) >= self._most else None
            if leaving is not None:
                del self._strangers[leaving]
            self._strangers[sock] = host
        if leaving is not None:
            with suppress(OSError):
                # Not that of TLS, which would change the state of a handshake under way in another thread.
                socket.socket.shutdown(leaving, socket.SHUT_RDWR)

    def known(self, sock: socket.socket) -> None:
        """It is a stranger no more, or it has gone."""
        with self._lock:
            self._strangers.pop(sock, None)

    def _next_to_leave(self) -> socket.socket | None:
        """Oldest first: a dictionary keeps the order in which they came."""
        numbers = Counter(self._strangers.values())
        most = max(numbers.values(), default=0)
        return next((sock for sock, host in self._strangers.items() if numbers[host] == most), None)
