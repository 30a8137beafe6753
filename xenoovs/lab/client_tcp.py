"""TCP connections of many clients; what the machine says before it closes tells which one it is."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from xenoovs.lab.client_udp import family_of
from xenoovs.lab.tally import Flight, Tally
from xenoovs.lab.window import Window
from xenoovs.lab.wire import allow_any_local

_WINDOW = 64
# Long enough for the first retransmission of a SYN, which comes after a second (RFC 6298, section 2).
_PATIENCE_S = 1.5
_HURRIED_S = 0.1

# linux/in.h: choose the port at connect, so that each client address has all of them to itself.
_IP_BIND_ADDRESS_NO_PORT = 24


def connect_all(flights: Sequence[Flight], packets: Sequence[tuple[int, str]], tally: Tally, *, lost: int) -> None:
    """One connection for each packet (flight and source), some at a time; counted into `tally`.

    `lost`: connections lost in earlier rounds.
    """
    with selectors.DefaultSelector() as selector:
        window = Window(_WINDOW, _PATIENCE_S, _HURRIED_S, lost)
        _Connections(flights, packets, tally, window=window, selector=selector).run()


class _Connections:
    def __init__(
        self,
        flights: Sequence[Flight],
        packets: Sequence[tuple[int, str]],
        tally: Tally,
        *,
        window: Window,
        selector: selectors.BaseSelector,
    ) -> None:
        self._flights, self._packets, self._tally = flights, packets, tally
        self._window, self._selector = window, selector
        self._open: dict[int, socket.socket] = {}

    def run(self) -> None:
        for key in range(len(self._packets)):
            while self._window.is_full:
                self._progress()
            self._connect(key)
        while self._open:
            self._progress()

    def _connect(self, key: int) -> None:
        number, source = self._packets[key]
        flight = self._flights[number]
        sock = socket.socket(family_of(flight), socket.SOCK_STREAM)
        try:
            _begin(sock, source, flight)
        except OSError as error:
            sock.close()
            self._tally.failures[error.strerror or str(error)] += 1
            return
        self._tally.sent[number] += 1
        self._open[key] = sock
        self._window.add(key, now_s=time.monotonic())
        self._selector.register(sock, selectors.EVENT_READ, key)

    def _progress(self) -> None:
        for ready, _ in self._selector.select(self._window.rest_s(now_s=time.monotonic())):
            self._read(ready.data)
        for key in self._window.give_up(now_s=time.monotonic()):
            self._close(key)

    def _read(self, key: int) -> None:
        try:
            words = self._open[key].recv(2048).split()
        except OSError:
            words = []
        if words:
            number, source = self._packets[key]
            self._tally.answers[number, source, words[0].decode(errors="replace")] += 1
        self._window.answered(key)
        self._close(key)

    def _close(self, key: int) -> None:
        sock = self._open.pop(key)
        self._selector.unregister(sock)
        sock.close()


def _begin(sock: socket.socket, source: str, flight: Flight) -> None:
    sock.settimeout(0)
    allow_any_local(sock)
    sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))
    with suppress(BlockingIOError):
        sock.connect((flight.destination, flight.port))
