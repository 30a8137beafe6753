"""Connections that are not admitted yet: which one is closed beyond the limit."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.controller.listen import PendingConnections
from xenoovs.controller.log import WARNINGS, ControllerLog, LogLimit, full_bucket, take

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections: our end and theirs."""
    made = [socket.socketpair() for _ in range(5)]
    yield made
    for pair in made:
        for sock in pair:
            sock.close()


def _is_out(pair: Pair) -> bool:
    try:
        return pair[1].recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def test_the_address_with_most_pending_connections_loses_its_oldest(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=3)
    for pair, host in zip(pairs, ("good", "bad", "bad", "bad", "good"), strict=True):
        pending.add(pair[0], host)
    assert [_is_out(pair) for pair in pairs] == [False, True, True, False, False]


def test_an_admitted_connection_is_never_evicted(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=1)
    pending.add(pairs[0][0], "bridge")
    pending.release(pairs[0][0])
    for pair in pairs[1:]:
        pending.add(pair[0], "bridge")
    assert [_is_out(pair) for pair in pairs] == [False, True, True, True, False]


def test_a_closed_connection_leaves_room(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=1)
    for pair in pairs:
        pending.add(pair[0], "one")
        pending.release(pair[0])
    assert not any(map(_is_out, pairs))


def _taken(times: list[float], *, rate: float, size: float) -> int:
    bucket, taken = full_bucket(rate=rate, size=size, now_s=0.0), 0
    for now_s in times:
        bucket, had_one = take(bucket, now_s)
        taken += had_one
    return taken


def test_what_it_holds_is_given_at_once() -> None:
    assert _taken([0.0] * 100, rate=10, size=5) == 5


def test_it_fills_up_again() -> None:
    assert _taken([0.0] * 100 + [0.3] * 100, rate=10, size=5) == 8


def test_it_does_not_overflow() -> None:
    assert _taken([1000.0] * 100, rate=10, size=5) == 5


def test_a_clock_that_goes_back_adds_no_tokens() -> None:
    assert _taken([10.0] * 100 + [0.0] * 100 + [10.0] * 100, rate=10, size=5) == 5


@given(steps=st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_size_and_rate_allow(steps: list[float]) -> None:
    times = list(accumulate(steps))
    assert _taken(times, rate=3, size=4) <= 4 + 3 * (times[-1] if times else 0)


LIMITED = "too many refused connections to log each"


class Logged:
    """What was logged, with a clock that is set."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.time_s = 0.0
        self.limit = LogLimit(ControllerLog(self._record, self._record), now_s=lambda: self.time_s)

    def _record(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))


@pytest.fixture
def logged() -> Logged:
    return Logged()


def test_the_same_reason_of_one_peer_is_logged_once(logged: Logged) -> None:
    for _ in range(3):
        logged.limit.once("192.0.2.1", "a connection is closed", reason="malformed OpenFlow")
    assert logged.events == [("a connection is closed", {"peer": "192.0.2.1", "reason": "malformed OpenFlow"})]


def test_a_thousand_peers_and_reasons_are_twenty_lines_and_a_final_one(logged: Logged) -> None:
    for number in range(1000):
        logged.limit.once(f"2001:db8::{number:x}", "a connection is closed", reason=f"malformed OpenFlow: {number}")
    assert [event for event, _ in logged.events] == ["a connection is closed"] * WARNINGS + [LIMITED]


def test_what_was_left_out_is_counted(logged: Logged) -> None:
    for number in range(WARNINGS + 7):
        logged.limit.warn("bridge refused", bridge=f"br{number}")
    logged.time_s += 31
    logged.limit.warn("bridge refused", bridge="another")
    assert logged.events[-1] == ("bridge refused", {"bridge": "another", "suppressed": 7})


def test_one_kind_hides_no_other(logged: Logged) -> None:
    for number in range(1000):
        logged.limit.once(str(number), "a connection is closed", reason="malformed OpenFlow")
    logged.limit.once("00aa", "bridge refused", reason="this controller is for ovsbr1")
    assert logged.events[-1][0] == "bridge refused"
