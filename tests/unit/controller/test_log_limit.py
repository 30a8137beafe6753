"""Refused peers do not fill the log, with any names."""

from __future__ import annotations

import pytest

from xenoovs.controller.log import WARNINGS, ControllerLog, LogLimit

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
