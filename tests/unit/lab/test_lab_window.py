"""How long `lab traffic` waits for answers."""

from __future__ import annotations

import select
import time
from math import inf
from typing import Any

import pytest

from xenoovs.lab.client import AnswerCounts, Flight, SendWindow, TrafficExchange


def test_it_fills_and_an_answer_makes_room() -> None:
    window = SendWindow(2, 1.0, 0.1)
    window.add(0, now_s=0)
    window.add(1, now_s=0)
    assert window.is_full
    window.remove(0)
    assert not window.is_full


def test_packets_without_an_answer_expire_oldest_first() -> None:
    window = SendWindow(3, 1.0, 0.1)
    for key, now_s in enumerate((0.0, 0.5, 0.9)):
        window.add(key, now_s=now_s)
    assert window.wait_s(now_s=0.75) == 0.25
    assert window.expire(now_s=1.5) == [0, 1]
    assert window.lost == 2
    assert list(window.under_way) == [2]
    window.remove(0)
    assert list(window.under_way) == [2]


def test_after_two_windows_of_losses_the_timeout_is_short() -> None:
    window = SendWindow(1, 1.0, 0.1)
    for key in range(3):
        assert window.current_timeout_s == 1.0
        window.add(key, now_s=key)
        assert window.expire(now_s=key + 1) == [key]
    assert window.current_timeout_s == 0.1
    assert SendWindow(1, 1.0, 0.1, lost=3).current_timeout_s == 0.1


def test_nothing_under_way_leaves_nothing_to_wait_for() -> None:
    assert SendWindow(1, 1.0, 0.1).wait_s(now_s=5) == 0


class _LateServer:
    """A channel whose server answers the last packet alone, half a second late. Time passes only while one waits."""

    LATE_S = 0.5

    def __init__(self, last: int) -> None:
        self.now_s, self._last, self._due_s = 0.0, last, inf
        self._client = ""

    def new_window(self) -> SendWindow:
        return SendWindow(128, 1.0, 0.02)

    def sockets(self) -> list[Any]:
        return []

    def send(self, key: int, _flight: Flight, source: str) -> None:
        if key == self._last:
            self._due_s, self._client = self.now_s + self.LATE_S, source

    def expire(self, _key: int) -> None:
        pass

    def receive(self) -> list[tuple[int, str, str]]:
        self._due_s = inf
        return [(self._last, self._client, "one")]

    def select(self, _readable: object, _writable: object, _failed: object, timeout_s: float) -> tuple[Any, Any, Any]:
        is_there = self._due_s <= self.now_s + timeout_s
        self.now_s = self._due_s if is_there else self.now_s + timeout_s
        return [self] if is_there else [], [], []


def test_a_late_answer_to_the_last_packet_counts_though_many_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two windows of losses the time-out is short, so the last answers counted as lost."""
    sources = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(400))
    server = _LateServer(len(sources) - 1)
    monkeypatch.setattr(select, "select", server.select)
    monkeypatch.setattr(time, "monotonic", lambda: server.now_s)
    counts = AnswerCounts([0])
    TrafficExchange(server, [Flight("udp", "10.3.10.45", 53, sources)], "udp", counts).run(lost=0)
    assert (counts.sent, counts.lost) == ([400], 399)
    assert counts.answers == {(0, sources[-1], "one"): 1}
