"""What an agent logs and tells systemd: rounds, drains, repeated events; several agents in one process, and ports."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from click import UsageError

from tests.agent_support import FIPS3, Servers, all_answer, checked_scene
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import PATIENCE_S, eventually
from tests.unit import balancer as small
from xenoovs import log
from xenoovs.agent import daemon
from xenoovs.agent.bridge_watch import PortEvent, port_events
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent, AgentGroup, Starter
from xenoovs.agent.overrides import OverrideAction, OverrideRequest
from xenoovs.agent.reload import Settings
from xenoovs.agent.report import Report
from xenoovs.agent.state import AgentState, ConfigFollowed, Event, RoundFacts, step
from xenoovs.agent.tasks import BackgroundTasks, TaskFactory, run_loop, within
from xenoovs.cli.run_agents import BridgeAgent, configured_bridges, run_agents
from xenoovs.cli.via import Options, Reach
from xenoovs.controller.bridge import ExpectedBridge
from xenoovs.datapath.database import PortState
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import BridgeMissing, ConfigError, NotConfirmed, OtherBridge, StateUnusable, SwitchUnreachable
from xenoovs.log import (
    LOGGER,
    Readiness,
    RepeatFilter,
    bridge_context,
    facts_of,
    info,
    notify,
    start_logging,
    warn,
)
from xenoovs.model.balancer import Balancer
from xenoovs.model.include import ConfigSources
from xenoovs.model.load import parse_config
from xenoovs.openflow.wire.message import Port
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.ovsdb import Ports


def test_a_drain_that_waits_for_open_vswitch_is_reported_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    report = Report()
    for problem in ("hangs", "hangs", "", "hangs"):
        report.drains_measured(problem)
    assert caplog.messages.count("drains wait for Open vSwitch") == 2


def test_a_backend_that_goes_down_in_a_round_is_not_logged_as_held(
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


def test_of_very_many_services_those_with_most_moved_clients_are_logged(caplog: pytest.LogCaptureFixture) -> None:
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
    start_logging(is_json=True)
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
    start_logging()
    info("flows changed", flow_mods=3, reason='a "b"\nc', empty="")
    assert capsys.readouterr().err == 'info flows changed flow_mods=3 reason="a \\"b\\"\\nc" empty=""\n'


def test_journald_gets_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        status = os.fstat(stream.fileno())
        for known in ("1:2", f"{status.st_dev}:{status.st_ino}"):
            monkeypatch.setenv("JOURNAL_STREAM", known)
            start_logging()
            info("flows changed")
            warn("backend down")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines == ["info flows changed", "warning backend down", "<6>info flows changed", "<4>warning backend down"]


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "caf\u202e", "\x00", "back\\slash"])
def test_what_a_backend_answers_moves_no_cursor(capsys: pytest.CaptureFixture[str], is_json: bool, text: str) -> None:
    start_logging(is_json=is_json)
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
        handler = logging.Handler()
        handler.emit = self._emit  # type: ignore[method-assign]
        self.logger.addHandler(handler)
        self.repeats = RepeatFilter(self.logger, now_s=lambda: self.now_s)
        self.logger.addFilter(self.repeats)

    def say(self, text: str, **facts: object) -> None:
        self.logger.info(text, extra={"facts": facts})

    def seconds(self, count: int) -> Iterator[int]:
        """Let time pass, a second at a time."""
        for second in range(count):
            self.now_s += 1
            self.repeats.release()
            yield second

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
    list(hour.seconds(60))
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
    list(hour.seconds(HOUR_S))
    hour.say("flows changed", bridge="ovsbr1")
    assert hour.logged[-1] == ("flows changed", {"bridge": "ovsbr1"}, HOUR_S)
    assert len(hour.logged) + left_out(hour, "flows changed") == 31


def test_events_of_different_backends_do_not_hide_each_other_and_their_memory_is_bounded(hour: Hour) -> None:
    for number in range(10_000):
        hour.say("backend down", backends=f"web/b{number}", reason="no answer")
    for number in range(20):
        hour.say("flows changed", bridge="ovsbr1", flow_mods=number)
    assert (len(hour.logged), len(hour.repeats._kinds)) == (10_020, 4096)


def _agent(tmp_path: Path, bridge: str, switch: FakeSwitch, settings: Settings | None = None) -> Agent:
    file = tmp_path / f"{bridge}.yaml"
    file.write_text(SMALL_CONFIG.replace("ovsbr1", bridge))
    return Agent(ConfigFile(file), Engine(switch), probe=all_answer, settings=settings)


async def run_together(agents: Mapping[str, Agent], *, once: bool = False, beside: TaskFactory | None = None) -> None:
    """Run agents that are made already."""

    async def made(agent: Agent) -> Agent:
        return agent

    starters: dict[str, Starter] = {bridge: partial(made, agent) for bridge, agent in agents.items()}
    await AgentGroup().run(starters, once=once, beside=() if beside is None else (beside,))


def _switch(bridge: str) -> FakeSwitch:
    return FakeSwitch(fake_bridge(bridge, ["p0", "p1"]))


@pytest.mark.parametrize("turns", range(5))
def test_bug_an_agent_never_ended_if_a_task_was_woken_as_it_was_cancelled(turns: int) -> None:
    """Of the turns of the loop between the event and the cancellation asyncio.wait_for() of Python 3.11 loses one."""

    async def run() -> None:
        woken, tasks = asyncio.Event(), BackgroundTasks()

        async def follow() -> None:
            while True:
                woken.clear()
                await within(PATIENCE_S, woken.wait())

        tasks.start(follow())
        await asyncio.sleep(0.01)
        woken.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(tasks.stop(), PATIENCE_S)

    asyncio.run(run())


def test_bug_what_failed_while_it_was_ended_late_left_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_at_the_end() -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            raise OSError("it cannot be killed")

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(within(0.001, fail_at_the_end()))
    gc.collect()
    # Also what other tests have left is collected here.
    assert [text for text in caplog.messages if fail_at_the_end.__qualname__ in text] == []


def test_bug_a_connection_that_came_at_the_end_left_a_message_about_its_task(caplog: pytest.LogCaptureFixture) -> None:
    """The page of `fleet serve` and the application of Ryu run their event loops themselves."""
    ended, beside = list[str](), set[asyncio.Task[None]]()

    async def serve() -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.append("the connection")

    async def main() -> str:
        beside.add(asyncio.create_task(serve()))
        await asyncio.sleep(0)
        return "done"

    loop = asyncio.new_event_loop()
    assert run_loop(loop, main()) == "done"
    beside.clear()
    gc.collect()
    assert (ended, loop.is_closed()) == (["the connection"], True)
    assert [text for text in caplog.messages if serve.__qualname__ in text] == []


def test_each_gets_its_flows_before_the_config_of_another_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With 100 files the first flows came after all were read, 41 s later."""
    switches, agents = {bridge: _switch(bridge) for bridge in ("br1", "br2")}, dict[str, Agent]()

    async def start(bridge: str) -> Agent:
        while bridge == "br2" and not switches["br1"].all_flows("br1"):
            await asyncio.sleep(0.01)
        agents[bridge] = _agent(tmp_path, bridge, switches[bridge])
        return agents[bridge]

    caplog.set_level(logging.INFO, LOGGER)
    starters: dict[str, Starter] = {bridge: partial(start, bridge) for bridge in switches}
    asyncio.run(asyncio.wait_for(AgentGroup().run(starters, once=True), PATIENCE_S))
    assert [len(switch.all_flows(bridge)) for bridge, switch in switches.items()] == [8, 8]
    assert {facts_of(record)["bridge"] for record in caplog.records if record.name == LOGGER} == {"br1", "br2"}
    for bridge, agent in agents.items():
        assert {event.facts["bridge"] for event in agent.events.since(0)} == {bridge}


def _options(**given: Any) -> Options:
    nothing: dict[str, Any] = dict.fromkeys(each.name for each in fields(Options))
    return Options(**nothing | given)


def test_bug_a_bridge_that_connects_before_its_agent_is_made_shows_its_ports(tmp_path: Path) -> None:
    """Of several at one controller its ports were unknown until one of them changed."""
    switch, made = _switch("br1"), list[Agent]()
    config = _agent(tmp_path, "br1", switch).config
    uplinks = config.balancer.uplinks
    expected, connection = ExpectedBridge("br1"), SimpleNamespace(ports=(Port(1, "p0", 0), Port(2, "p1", 0)))
    expected.begin(cast(Any, connection))
    one = BridgeAgent(lambda: config, config.path, uplinks, uplinks.bridge)
    options = _options(once=True, offload_interval_s=10.0)
    far = cast(ManagementSwitch, SimpleNamespace(endpoint=Endpoint("unix:/nonexistent/db.sock", None)))
    reach: Reach = lambda *_: (Engine(switch), expected)  # noqa: E731
    started = run_agents(AgentGroup(), (one,), (), reach, far, options, made=made.append)
    asyncio.run(asyncio.wait_for(started, PATIENCE_S))
    assert [port.name for port in made[0].ports() or ()] == ["p0", "p1"]


def test_of_several_files_only_the_bridge_is_read_before_the_start(tmp_path: Path) -> None:
    files = tuple(tmp_path / f"br{number}.yaml" for number in (1, 2))
    files[0].write_text(SMALL_CONFIG.replace("ovsbr1", "br1"))
    files[1].write_text(
        "services: [{name: no}]\n# switch: none\nswitch:\n  bridge: br2\n\n  ingress: [p0]\n  egress: p1\nversion: 1\n"
    )
    first, second = configured_bridges(_options(configs=files), ManagementSwitch(Endpoint("unix:/none", None)))
    assert (first.uplinks.bridge, second.uplinks.bridge) == ("br1", "br2")
    assert first.read().balancer.uplinks == first.uplinks
    with pytest.raises(ConfigError, match=r"br2\.yaml"):
        second.read()
    files[0].write_text(SMALL_CONFIG.replace("ovsbr1", "br3"))
    with pytest.raises(OtherBridge):
        first.read()


def test_bug_as_an_application_of_ryu_a_config_with_programs_failed_healthy_backends(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"health: {{probe: exec, command: [/bin/true]}}\n{SMALL_CONFIG}")
    options = _options(configs=(file,), is_controller=True, exec_option="XENOOVS_ALLOW_EXEC=1")
    with pytest.raises(UsageError, match=r"probes its backends with a program.*: add XENOOVS_ALLOW_EXEC=1"):
        configured_bridges(options, ManagementSwitch(Endpoint("unix:/none", None)))


def test_files_that_are_reloaded_at_the_same_time_are_parsed_in_turn(tmp_path: Path) -> None:
    """Of 100, none was in use before all were parsed."""
    (tmp_path / "my.yaml").write_text(SMALL_CONFIG)
    parsing = Lock()

    def parse(text: bytes, sources: ConfigSources) -> Balancer:
        assert parsing.acquire(blocking=False)
        time.sleep(0.01)
        parsing.release()
        return parse_config(text, file=str(sources.main), sources=sources)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: ConfigFile(tmp_path / "my.yaml", parse), range(8)))


def test_a_failure_of_one_does_not_stop_the_others(tmp_path: Path) -> None:
    """With `once` all agents finish, then the first problem is reported."""
    good = _switch("br2")
    agents = {"br1": _agent(tmp_path, "br1", _switch("other")), "br2": _agent(tmp_path, "br2", good)}
    with pytest.raises(BridgeMissing):
        asyncio.run(run_together(agents, once=True))
    assert len(good.all_flows("br2")) == 8


OF_A_TEST = "internal error: ZeroDivisionError: of a test"


@pytest.mark.parametrize("broken", ["engine.round", "engine.known", "reloader.poll", "report.succeeded"])
def test_bug_an_internal_error_in_a_round_ended_the_agents_of_all_bridges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """At the start, in the checks before a round, in the round and after it."""
    agents = {bridge: _agent(tmp_path, bridge, _switch(bridge)) for bridge in ("br1", "br2")}
    one, other = agents.values()
    part, _, name = broken.partition(".")
    monkeypatch.setattr(daemon, "_RETRY_S", 0.01)
    patch, failing = pytest.MonkeyPatch(), Mock(side_effect=ZeroDivisionError("of a test"))
    patch.setattr(getattr(one, part), name, failing)

    async def beside() -> None:
        while failing.call_count < 3 or not other.state.round.rounds:
            await asyncio.sleep(0.01)
        # A request is answered, and does not wait for a round that succeeds.
        assert OF_A_TEST in str(await one.next_round())
        assert one.lazy_snapshot().snapshot().last_error.startswith(OF_A_TEST)
        patch.undo()
        while one.state.round.error or one.state.round.last_s is None:
            await asyncio.sleep(0.01)
        for agent in agents.values():
            agent.stop()

    asyncio.run(asyncio.wait_for(run_together(agents, beside=beside), PATIENCE_S))
    failures = [event for event in one.events.since(0) if event.text == "reconcile failed; retrying"]
    assert [str(event.facts["reason"]).partition(", ")[0] for event in failures] == [OF_A_TEST]
    assert other.state.round.error == ""


def test_bug_an_error_outside_of_the_rounds_of_one_agent_ended_all_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run again, and the others go on."""
    agents = {bridge: _agent(tmp_path, bridge, _switch(bridge)) for bridge in ("br1", "br2")}
    one, other = agents.values()
    monkeypatch.setattr("xenoovs.agent.tasks._RETRY_S", 0.01)
    begin, failures = one.reloader.begin, iter((BridgeMissing(bridge="br1", present=()), ZeroDivisionError()))

    async def fail_twice(problem: StateUnusable | None) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        await begin(problem)

    monkeypatch.setattr(one.reloader, "begin", fail_twice)

    async def beside() -> None:
        while not (one.state.round.rounds and other.state.round.rounds):
            await asyncio.sleep(0.01)
        for agent in agents.values():
            agent.stop()

    asyncio.run(asyncio.wait_for(run_together(agents, beside=beside), PATIENCE_S))
    assert [event.text for event in other.events.since(0)].count("starting") == 1


def test_bug_an_internal_error_with_once_left_other_bridges_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches = {bridge: _switch(bridge) for bridge in ("br1", "br2")}
    agents = {bridge: _agent(tmp_path, bridge, switch) for bridge, switch in switches.items()}
    monkeypatch.setattr(agents["br1"].engine, "round", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(run_together(agents, once=True), PATIENCE_S))
    assert len(switches["br2"].all_flows("br2")) == 8


@pytest.mark.parametrize("is_parsed", [False, True], ids=["parser", "compiler"])
def test_bug_a_config_with_an_internal_error_ended_the_agent(tmp_path: Path, *, is_parsed: bool) -> None:
    """It is refused, and the last good one still follows health and operators."""
    agent = _agent(tmp_path, "br1", _switch("br1"))
    config, make = agent.config, agent.engine.round

    def compile_good(desired: DesiredState, *, now_s: float, **options: Any) -> Change:
        if "strict" in options:
            raise ZeroDivisionError("of a test")
        return make(desired, now_s=now_s, **options)

    async def beside() -> None:
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        with pytest.MonkeyPatch.context() as patch:
            if is_parsed:
                patch.setattr(agent.engine, "round", compile_good)
            else:
                patch.setattr(config, "_parse", Mock(side_effect=ZeroDivisionError("of a test")))
            config.path.write_text(SMALL_CONFIG.replace("ovsbr1", "br1").replace("weight: 70", "weight: 60"))
            while OF_A_TEST not in str(config.problem):
                await asyncio.sleep(0.01)
            assert isinstance(await agent.next_round(), Change)
            assert agent.state.round.error == ""
        agent.reload()
        while config.problem is not None or config.candidate is not None:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.add_task(beside)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    assert agent.reloader.reloads == 1


def test_bug_an_agent_whose_start_failed_internally_checked_no_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows the config again in each round until that succeeds, and reports why not."""
    agent, failures = _agent(tmp_path, "br1", _switch("br1")), iter(range(2))
    monkeypatch.setattr(daemon, "_RETRY_S", 0.01)

    def fail_twice(state: AgentState, event: Event, now_s: float) -> Any:
        if isinstance(event, ConfigFollowed) and next(failures, None) is not None:
            raise ZeroDivisionError("of a test")
        return step(state, event, now_s)

    monkeypatch.setattr("xenoovs.agent.state_store.step", fail_twice)
    agent.store.subscribe(ConfigFollowed, lambda _: agent.stop())
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    reasons = [event.facts["reason"] for event in agent.events.since(0) if event.text == "reconcile failed; retrying"]
    assert [str(reason).partition(", ")[0] for reason in reasons] == [OF_A_TEST]


def test_bug_an_internal_error_while_a_change_was_rolled_back_confirmed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback is tried again, and the next round does not install the new config once more. Nor does an operator
    confirm a change that is rolled back meanwhile."""
    switch = _switch("br1")
    agent = _agent(tmp_path, "br1", switch, Settings(confirm_s=0.05))
    path, merged, failed = agent.config.path, agent.reloader._merged_rollback, Mock()
    confirmed = list[bool]()

    def fail_once(*given: Any) -> Any:
        confirmed.append(agent.reloader.confirm())
        if not failed.called:
            failed()
            raise ZeroDivisionError("of a test")
        return merged(*given)

    monkeypatch.setattr(daemon, "_RETRY_S", 0.01)
    monkeypatch.setattr(agent.reloader, "_merged_rollback", fail_once)

    async def beside() -> None:
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        before = {seen.flow for seen in switch.dump_flows("br1")}
        path.write_text(path.read_text().replace("weight: 70", "weight: 60"))
        while not isinstance(agent.config.problem, NotConfirmed):
            await asyncio.sleep(0.01)
        assert isinstance(await agent.next_round(), Change)
        assert before == {seen.flow for seen in switch.dump_flows("br1")}
        agent.stop()

    agent.add_task(beside)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    assert (failed.called, confirmed) == (True, [False, False])


def test_bug_a_config_that_is_tried_again_later_was_rolled_back_to_flows_from_before_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first attempt failed, and the file was reverted. With the drain it changes no flow, so nothing waits."""
    agent = _agent(tmp_path, "br1", _switch("br1"), Settings(confirm_s=60))
    path, make, failures = agent.config.path, agent.engine.round, Mock()
    good = path.read_text()
    new, drain = good.replace("weight: 70", "weight: 60"), OverrideRequest(OverrideAction.DRAIN, "fips3", "dns")
    waits = list[float | None]()
    monkeypatch.setattr(daemon, "_RETRY_S", 0.01)

    def fail_at_first(desired: DesiredState, *, now_s: float, **options: Any) -> Change:
        if "strict" in options and path.read_text() == new and not agent.reloader.reloads:
            failures()
            raise SwitchUnreachable(target="br1", reason="of a test")
        return make(desired, now_s=now_s, **options)

    async def reach(reloads: int) -> None:
        while agent.reloader.reloads < reloads:
            await asyncio.sleep(0.01)

    async def beside() -> None:
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        path.write_text(new)
        while not failures.called:
            await asyncio.sleep(0.01)
        path.write_text(good)
        await reach(1)
        await agent.change(lambda reloader: reloader.override(drain))
        await agent.next_round()
        path.write_text(new)
        await reach(2)
        waits.append(agent.reloader.confirm_by_s)
        agent.stop()

    monkeypatch.setattr(agent.engine, "round", fail_at_first)
    agent.add_task(beside)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    assert waits == [None]


def test_logs_outside_of_an_agent_name_no_bridge(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    with bridge_context("br1"):
        info("inside", bridge="another name of it")
    info("outside")
    assert [facts_of(record) for record in caplog.records if record.name == LOGGER] == [{"bridge": "br1"}, {}]


BALANCER = small.balancer(small.service(small.claim(), 1, 1))
P0, P1 = PortState("p0", 1, "system", link_up=True), PortState("p1", 2, "system", link_up=True)
BRIDGE = BALANCER.uplinks.bridge


def with_p1(*others: PortState, **changes: Any) -> Ports:
    """The ports of the bridge, if p1 has these changes."""
    return {BRIDGE: {port.name: port for port in (P0, replace(P1, **changes), *others)}, "other": {}}


ALL, DOWN, GONE = with_p1(), with_p1(link_up=False), {BRIDGE: {"p0": P0}}
BROKEN = with_p1(ofport=None, error="no device")
FOREIGN = with_p1(PortState("vnet9", 9, "system", link_up=False))
# Before, after, the text, whether it is a problem, and whether it needs a round.
EVENTS: list[tuple[Ports | None, Ports, str, bool, bool]] = [
    (None, ALL, "", False, False),
    (None, DOWN, "p1 link down", True, False),
    (ALL, FOREIGN, "", False, False),
    (ALL, DOWN, "p1 link down", True, False),
    (DOWN, ALL, "p1 link up", False, False),
    (ALL, with_p1(ofport=7), "p1 port number changed", False, True),
    (ALL, with_p1(options={"remote_ip": "192.0.2.9"}), "p1 port has other options", False, True),
    (ALL, BROKEN, "p1 port does not work: no device", True, True),
    (ALL, GONE, "p1 port removed from the bridge", True, True),
    (GONE, ALL, "p1 port added to the bridge", False, True),
    (ALL, {}, " bridge removed", True, False),
    ({}, ALL, " bridge added", False, True),
    ({}, {}, "", False, False),
]


@pytest.mark.parametrize(("before", "now", "text", "is_bad", "needs_round"), EVENTS)
def test_changes_of_ports(before: Ports | None, now: Ports, text: str, *, is_bad: bool, needs_round: bool) -> None:
    port, _, words = text.partition(" ")
    expected = (PortEvent(words, port, is_bad, needs_round),) if text else ()
    assert port_events(before, now, BALANCER) == expected


@pytest.mark.parametrize("broken", ["engine.round", "reloader.poll"])
def test_an_agent_whose_rounds_fail_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """A restart would not repair what fails, and the agent reports it. The watchdog is for a loop that does not run
    (sd_notify(3), WATCHDOG=1; systemd.service(5), WatchdogSec=)."""
    agent, sent = _agent(tmp_path, "br1", _switch("br1")), list[str]()
    part, _, name = broken.partition(".")
    monkeypatch.setattr(getattr(agent, part), name, Mock(side_effect=OSError(24, "Too many open files")))

    def hear(message: str) -> bool:
        sent.append(message)
        if sent.count("WATCHDOG=1") == 3:
            agent.stop()
        return True

    monkeypatch.setattr(daemon, "notify", hear)
    monkeypatch.setattr(log, "notify", hear)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    assert "STATUS=this host lacks resources: [Errno 24] Too many open files" in sent
    assert "READY=1" not in sent


def test_bug_an_agent_under_systemd_ended_when_it_had_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setattr(socket, "socket", Mock(side_effect=OSError(24, "Too many open files")))
    assert not notify("WATCHDOG=1")


def test_ready_is_sent_once_and_again_when_it_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that does not read for a while: its queue is full (unix(7), max_dgram_qlen)."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)

        def received() -> list[str]:
            messages = []
            with suppress(BlockingIOError):
                while True:
                    messages.append(systemd.recv(4096).decode().partition("\n")[0])
            return messages

        readiness = Readiness()
        readiness.reloading()
        readiness.idle()
        assert received() == [], "a reload while it starts does not make it ready"
        while notify("STATUS=much to say"):
            pass
        readiness.ready()
        readiness.idle()
        assert "READY=1" not in received()
        for _ in range(2):
            readiness.ready()
            readiness.idle()
        assert received() == ["READY=1"]
