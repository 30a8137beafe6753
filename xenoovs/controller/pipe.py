"""The socket of one switch, plain or TLS, as a session uses it: one thread reads while others write."""

from __future__ import annotations

import select
import socket
import ssl
from threading import Lock
from time import monotonic

_TICK_S = 0.5
"""How long `recv` waits before it says that nothing came."""
_SEND_TIMEOUT_S = 20.0
"""A switch that takes nothing for so long is dead. A busy one may chew on a large bundle for some seconds."""
_PIECE = 1 << 16


class Pipe:
    """Has of a socket what the session of the framework calls.

    OpenSSL must not be entered twice at once for one connection (ssl(7ssl), thread safety); waiting happens outside.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, Lock()
        sock.settimeout(0)

    def recv(self, size: int) -> bytes:
        """What is there; empty at the end. Raises TimeoutError when nothing came for a moment, OSError."""
        deadline = monotonic() + _TICK_S
        while True:
            try:
                with self._lock:
                    return self._socket.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, deadline)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, deadline)

    def sendall(self, data: bytes) -> None:
        """All of it. Raises TimeoutError, OSError; part of it may have left then."""
        view, deadline = memoryview(data), monotonic() + _SEND_TIMEOUT_S
        while view:
            try:
                with self._lock:
                    sent = self._socket.send(view[:_PIECE])
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline)
                continue
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline)
                continue
            view, deadline = view[sent:], monotonic() + _SEND_TIMEOUT_S

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(level, option, value)

    def settimeout(self, seconds: float | None) -> None:
        """The framework's own time limits do not hold here."""

    def shutdown(self, how: int) -> None:
        with self._lock:
            self._socket.shutdown(how)

    def close(self) -> None:
        with self._lock:
            self._socket.close()

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        try:
            poll.register(self._socket, event)
        except ValueError:
            raise ConnectionAbortedError("closed on our side") from None
        if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
            raise TimeoutError
