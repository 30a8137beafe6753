"""Sending single packets and collecting their answers, whatever the protocol."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from xenoovs.lab.tally import Tally
from xenoovs.lab.window import Window

# Small packets take about 768 bytes of a receive buffer, whose default of 212,992 bytes holds 277 (socket(7)).
_WINDOW = 128
_PATIENCE_S = 1.0
_HURRIED_S = 0.02
_LINGER_S = 0.05
_LOOK_EVERY = 16
_STUCK = "packets pile up in the kernel; does anybody answer ARP for the destination?"


class Channel(Protocol):
    """A way to send packets under a number and to get their answers."""

    def sockets(self) -> Sequence[socket.socket]:
        """Where answers come in."""

    def send(self, key: int, flight: int, source: str) -> None:
        """Send packet `key` of a flight. Raises OSError when the kernel refuses."""

    def receive(self) -> Iterable[tuple[int, str, str]]:
        """Answers that are there: key, client that got it, who answered. Never blocks."""


def exchange_all(channel: Channel, packets: Sequence[tuple[int, str]], tally: Tally, *, lost: int) -> None:
    """Send the packets (flight and source each) in order, as quickly as answers come, and count into `tally`.

    `lost`: packets lost in earlier rounds.
    """
    _Exchange(channel, packets, tally, Window(_WINDOW, _PATIENCE_S, _HURRIED_S, lost)).run()


class _Exchange:
    def __init__(self, channel: Channel, packets: Sequence[tuple[int, str]], tally: Tally, window: Window) -> None:
        self._channel, self._packets, self._tally, self._window = channel, packets, tally, window
        self._missing: set[int] = set()

    def run(self) -> None:
        for key in range(len(self._packets)):
            while self._window.is_full:
                self._collect(self._window.rest_s(now_s=time.monotonic()))
                self._window.give_up(now_s=time.monotonic())
            self._send(key)
            if key % _LOOK_EVERY == 0:
                self._collect(0)
        while self._missing and self._collect(self._window.current_patience_s):
            pass
        # A second answer to the last packets may still be on its way.
        while self._collect(_LINGER_S):
            pass

    def _send(self, key: int) -> None:
        flight, source = self._packets[key]
        try:
            self._channel.send(key, flight, source)
        except BlockingIOError:
            self._tally.failures[_STUCK] += 1
            return
        except OSError as error:
            self._tally.failures[error.strerror or str(error)] += 1
            return
        self._tally.sent[flight] += 1
        self._missing.add(key)
        self._window.add(key, now_s=time.monotonic())

    def _collect(self, timeout_s: float) -> bool:
        """Count what comes within the time; whether anything did."""
        ready, _, _ = select.select(self._channel.sockets(), [], [], timeout_s)
        if not ready:
            return False
        for key, client, who in self._channel.receive():
            self._count(key, client, who)
        return True

    def _count(self, key: int, client: str, who: str) -> None:
        if key >= len(self._packets):
            return
        flight, source = self._packets[key]
        if client != source:
            return
        if key not in self._missing:
            self._tally.duplicates += 1
            return
        self._missing.remove(key)
        self._window.answered(key)
        self._tally.answers[flight, source, who] += 1
