"""Strangers who are turned away fill no log, whatever they call themselves."""

from __future__ import annotations

import pytest

from xenoovs.controller.log import Voice
from xenoovs.controller.registry import COMPLAINTS, Complaints

HUSHED = "strangers come faster than is told; they are turned away all the same"


class Told:
    """What was told, with a clock that is turned."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.time_s = 0.0
        self.complaints = Complaints(Voice(self._hear, self._hear), now_s=lambda: self.time_s)

    def _hear(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))


@pytest.fixture
def told() -> Told:
    return Told()


def test_the_same_of_one_peer_is_told_once(told: Told) -> None:
    for _ in range(3):
        told.complaints.once("192.0.2.1", "a connection is closed", reason="malformed OpenFlow")
    assert told.events == [("a connection is closed", {"peer": "192.0.2.1", "reason": "malformed OpenFlow"})]


def test_a_thousand_peers_and_reasons_are_twenty_lines_and_a_last_word(told: Told) -> None:
    for number in range(1000):
        told.complaints.once(f"2001:db8::{number:x}", "a connection is closed", reason=f"malformed OpenFlow: {number}")
    assert [event for event, _ in told.events] == ["a connection is closed"] * COMPLAINTS + [HUSHED]


def test_what_was_left_out_is_counted(told: Told) -> None:
    for number in range(COMPLAINTS + 7):
        told.complaints.warn("bridge refused", bridge=f"br{number}")
    told.time_s += 31
    told.complaints.warn("bridge refused", bridge="another")
    assert told.events[-1] == ("bridge refused", {"bridge": "another", "suppressed": 7})


def test_one_kind_hides_no_other(told: Told) -> None:
    for number in range(1000):
        told.complaints.once(str(number), "a connection is closed", reason="malformed OpenFlow")
    told.complaints.once("00aa", "bridge refused", reason="this controller is for ovsbr1")
    assert told.events[-1][0] == "bridge refused"
