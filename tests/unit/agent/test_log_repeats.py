"""Repeated events: all are counted, few are logged, and the last one always is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from xenoovs.agent.log import RepeatFilter

HOUR_S = 3600


class Hour:
    """A logger with a clock that is turned, and what it logged: text, facts, and the second."""

    def __init__(self) -> None:
        self.logger = logging.Logger("test")
        self.now_s = 0.0
        self.logged: list[tuple[str, dict[str, object], float]] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        handler = logging.Handler()
        handler.emit = self._emit  # type: ignore[method-assign]
        self.logger.addHandler(handler)
        self.logger.addFilter(RepeatFilter(self.logger, self._later, now_s=lambda: self.now_s))

    def say(self, text: str, **facts: object) -> None:
        self.logger.info(text, extra={"facts": facts})

    def seconds(self, count: int) -> Iterator[int]:
        """Let time pass, a second at a time."""
        for second in range(count):
            self.now_s += 1
            while due := [one for one in self._due if one[0] <= self.now_s]:
                self._due.remove(due[0])
                due[0][1]()
            yield second

    def _later(self, after_s: float, call: Callable[[], None]) -> None:
        self._due.append((self.now_s + after_s, call))

    def _emit(self, record: logging.LogRecord) -> None:
        self.logged.append((record.msg, record.__dict__["facts"], self.now_s))


@pytest.fixture
def hour() -> Hour:
    return Hour()


def left_out(hour: Hour, text: str) -> int:
    return sum(int(str(facts.get("suppressed", 0))) for logged, facts, _ in hour.logged if logged == text)


def test_many_different_changes_are_logged_one_by_one(hour: Hour) -> None:
    for number in range(20):
        hour.say("flows changed", bridge="ovsbr1", flow_mods=number)
    assert [facts["flow_mods"] for _, facts, _ in hour.logged] == list(range(20))


def test_events_of_different_backends_do_not_hide_each_other(hour: Hour) -> None:
    for number in range(1000):
        hour.say("backend down", backends=f"web/b{number}", reason="no answer")
    assert len(hour.logged) == 1000


def test_an_hour_of_flapping_is_some_lines_and_a_count_of_the_rest(hour: Hour) -> None:
    for second in hour.seconds(HOUR_S):
        state = "up" if second % 2 else "down"
        hour.say(f"backend {state}", backends="web/b1", reason=f"answer {second}")
    for _ in hour.seconds(60):
        pass
    for state in ("up", "down"):
        text = f"backend {state}"
        lines = [logged for logged, _, _ in hour.logged if logged == text]
        assert 20 < len(lines) <= 20 + HOUR_S / 30 + 2
        assert len(lines) + left_out(hour, text) == HOUR_S / 2
    # The last event is logged, although no event follows it.
    assert hour.logged[-1][1]["reason"] in (f"answer {HOUR_S - 1}", f"answer {HOUR_S - 2}")
    assert {f"answer {HOUR_S - 1}", f"answer {HOUR_S - 2}"} <= {facts["reason"] for _, facts, _ in hour.logged}


def test_changing_reasons_do_not_bypass_the_limit(hour: Hour) -> None:
    for second in hour.seconds(HOUR_S):
        for half in range(2):
            hour.say("reconcile failed; retrying", bridge="ovsbr1", reason=f"{second}.{half}")
    assert len(hour.logged) <= 20 + HOUR_S / 30 + 2


def test_after_a_quiet_time_an_event_is_logged_at_once(hour: Hour) -> None:
    for _ in range(30):
        hour.say("flows changed", bridge="ovsbr1")
    for _ in hour.seconds(HOUR_S):
        pass
    hour.say("flows changed", bridge="ovsbr1")
    assert hour.logged[-1] == ("flows changed", {"bridge": "ovsbr1"}, HOUR_S)
    assert len(hour.logged) + left_out(hour, "flows changed") == 31


def test_the_memory_of_events_is_bounded(hour: Hour) -> None:
    (repeats,) = hour.logger.filters
    assert isinstance(repeats, RepeatFilter)
    for number in range(10_000):
        hour.say("backend down", backends=f"web/b{number}")
    assert len(repeats._kinds) == 4096
