"""Log lines: of rounds and drains, as text and as JSON; of repeated events few are logged."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from tests.agent_support import FIPS3, Servers, checked_scene
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent.log import LogForm, RepeatFilter, info, start_logging, warn
from xenoovs.agent.report import Report
from xenoovs.agent.state import RoundFacts
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer


def test_a_drain_that_waits_for_open_vswitch_is_reported_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    report = Report()
    for problem in ("hangs", "hangs", "", "hangs"):
        report.drains_measured(problem)
    assert caplog.messages == ["drains wait for Open vSwitch"] * 2


def test_a_backend_that_goes_down_during_a_round_is_not_reported_as_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers()
    with checked_scene(tmp_path).agent(probe=servers.probe) as (agent, _):
        make_round = agent.engine.round

        def interrupted(*args: Any, **kwargs: Any) -> Change:
            if not servers.down:
                servers.down = (FIPS3,)
                eventually(lambda: bool(agent.state.tracker.ejections), "fips3 is down")
            return make_round(*args, **kwargs)

        monkeypatch.setattr(agent.engine, "round", interrupted)
        eventually(
            lambda: agent.desired.ejected == {"dns": {"fips3"}} and agent.state.round.rounds == 2, "fips3 is ejected"
        )
        texts = [event.text for event in agent.events.since(0)]
        assert "backends are down and keep their clients" not in texts


def test_of_very_many_services_those_with_most_moved_clients_are_logged_and_those_that_are_gone_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def config(*weights: int) -> Balancer:
        claims = (small.claim(IPv4Address("10.0.0.0") + number) for number in range(100))
        return small.balancer(*(small.service(one, *weights, name=str(one.vips[0])) for one in claims))

    engine, report = Engine(FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))), Report()
    engine.round(DesiredState(config(3, 1)), now_s=0.0)
    done = engine.round(DesiredState(config(1, 3)), now_s=1.0)
    with caplog.at_level("INFO", logger="xenoovs.agent"):
        facts = report.succeeded(RoundFacts(), done, bridge="b", config="c", now_s=1.0)
    assert [record.message for record in caplog.records].count("service changed") == 20
    assert (caplog.records[-1].message, caplog.records[-1].__dict__["facts"]["services"]) == (
        "more services changed",
        80,
    )
    assert len(facts.moved) == 100
    (service, *_) = config(3, 1).services
    done = engine.round(DesiredState(small.balancer(service)), now_s=2.0)
    assert report.succeeded(facts, done, bridge="b", config="c", now_s=2.0).moved.keys() == {service.name}


def test_json_is_one_object_a_line_and_takes_facts_of_any_type(capsys: pytest.CaptureFixture[str]) -> None:
    """A path or a fraction raised an error in the JSON encoder."""
    start_logging(LogForm.JSON)
    warn("backend down", reason="no answer\nin time", file=Path("/etc/x.yaml"), weight=Fraction(1, 2), none=None)
    (line,) = capsys.readouterr().err.splitlines()
    document = json.loads(line)
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "warning",
        "event": "backend down",
        "reason": "no answer\nin time",
        "file": "/etc/x.yaml",
        "weight": 0.5,
        "none": None,
    }


def test_text_quotes_what_would_be_ambiguous(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogForm.TEXT)
    info("flows changed", flow_mods=3, reason='a "b"\nc', empty="")
    assert capsys.readouterr().err == 'info flows changed flow_mods=3 reason="a \\"b\\"\\nc" empty=""\n'


def test_journald_gets_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        status = os.fstat(stream.fileno())
        for known in ("1:2", f"{status.st_dev}:{status.st_ino}"):
            monkeypatch.setenv("JOURNAL_STREAM", known)
            start_logging(LogForm.TEXT)
            info("flows changed")
            warn("backend down")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines == ["info flows changed", "warning backend down", "<6>info flows changed", "<4>warning backend down"]


@pytest.mark.parametrize("form", LogForm)
@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "caf\u202e", "\x00", "back\\slash"])
def test_what_a_backend_answers_cannot_move_the_cursor(
    capsys: pytest.CaptureFixture[str], form: LogForm, text: str
) -> None:
    start_logging(form)
    warn("backend down", backends="web/b1", reason=text)
    output = capsys.readouterr().err
    assert output.removesuffix("\n").isprintable()
    assert json.dumps(text) in output


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


def test_after_a_quiet_time_an_event_is_logged_at_once(hour: Hour) -> None:
    for _ in range(30):
        hour.say("flows changed", bridge="ovsbr1")
    for _ in hour.seconds(HOUR_S):
        pass
    hour.say("flows changed", bridge="ovsbr1")
    assert hour.logged[-1] == ("flows changed", {"bridge": "ovsbr1"}, HOUR_S)
    assert len(hour.logged) + left_out(hour, "flows changed") == 31


def test_events_of_different_backends_do_not_hide_each_other_and_their_memory_is_bounded(hour: Hour) -> None:
    (repeats,) = hour.logger.filters
    assert isinstance(repeats, RepeatFilter)
    for number in range(10_000):
        hour.say("backend down", backends=f"web/b{number}", reason="no answer")
    for number in range(20):
        hour.say("flows changed", bridge="ovsbr1", flow_mods=number)
    assert (len(hour.logged), len(repeats._kinds)) == (10_020, 4096)
