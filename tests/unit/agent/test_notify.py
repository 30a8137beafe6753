"""What an agent does on a change of state: commands, when and how many at once, and which VIPs are announced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.agent_support import FIPS2, Scene, Servers, checked_scene
from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled
from tests.fake_switch import HangingSwitch
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent import announce, daemon
from xenoovs.agent.agent_check import Advertised
from xenoovs.agent.announce import Announcer, decide_vips
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.health import Checks, HealthTracker
from xenoovs.agent.notify import BACKUP, DOWN, MAX_RUNNING, UP, Notifier, notifications
from xenoovs.agent.probe.check import Check, ProbeResult, ResourceShortage
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.state import AgentState, RoundFacts, Runtime, step
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.decision.decision import DesiredState
from xenoovs.decision.ejection import Ejection
from xenoovs.errors import SwitchError
from xenoovs.model.address import Vip
from xenoovs.model.balancer import Announce, Backend, Balancer, BgpSpeaker, Health, Notify, ProbeKind, Protocol
from xenoovs.model.load import parse_config
from xenoovs.show.snapshot import FleetMembership, Override
from xenoovs.switch.vip_routes import VipRoutes

NOTIFY = Notify(("/bin/page", "-v"), timeout_ms=2000)


def balancer(*weights: int, backups: int = 0) -> Balancer:
    """One service with a command; the last backends are backups."""
    made = small.service(small.claim(), *weights)
    first = len(weights) - backups
    marked: Iterator[Backend] = (replace(b, is_backup=i >= first) for i, b in enumerate(made.backends))
    return small.balancer(replace(made, notify=NOTIFY, backends=tuple(marked)))


def state(one: Balancer, *down: str, ports_down: frozenset[str] = frozenset()) -> AgentState:
    tracker = HealthTracker(ejections={"s": Ejection(dict.fromkeys(down, 0.0))})
    return AgentState(one, one, tracker=tracker, ports_down=ports_down)


def in_maintenance(one: AgentState, *names: str) -> AgentState:
    overrides = tuple(Override("s", name, Fraction(1), 0.0, Fraction(1), is_maintenance=True) for name in names)
    return step(one, Runtime(overrides), 0.0)[0]


@pytest.mark.parametrize(
    ("weights", "backups", "down", "maintained", "expected"),
    [
        ((1, 1), 0, "b0", "", [DOWN, UP, UP]),
        ((1, 1), 0, "b0 b1", "", [DOWN, DOWN, DOWN]),
        ((1, 0), 0, "b0", "", [DOWN, UP, DOWN]),
        ((1, 1), 1, "", "", [UP, UP, UP]),
        ((1, 1), 1, "b0", "", [DOWN, UP, BACKUP]),
        ((1, 1), 1, "b0 b1", "", [DOWN, DOWN, DOWN]),
        ((0, 1), 1, "", "", [UP, UP, BACKUP]),
        # Backends in maintenance have no state.
        ((1, 1), 1, "", "b0", [UP, BACKUP]),
        ((1, 1), 1, "", "b0 b1", [DOWN]),
    ],
)
def test_states_of_backends_and_of_their_service(
    weights: tuple[int, ...], backups: int, down: str, maintained: str, expected: list[str]
) -> None:
    one = in_maintenance(state(balancer(*weights, backups=backups), *down.split()), *maintained.split())
    assert [each.state for each in notifications(one)] == expected


def test_an_advertised_state_that_ejects_a_backend_that_answers_and_a_dead_port_are_reasons() -> None:
    """Not for a backend that stays up because all agents advertise down, nor for one whose probe fails."""
    asked = Check(Health(ProbeKind.ICMP), IPv4Address("192.0.2.1"))
    checks = Checks(agents={asked: (("s", "b0"),)}, agent_of={("s", "b0"): asked})

    def found(*down: str, ejected: bool) -> list[tuple[str, str]]:
        one = state(balancer(1, 1), *down)
        tracker = replace(one.tracker, checks=checks, advertised={asked: Advertised(is_up=False)})
        out = {"s": frozenset({"b0"} if ejected else ())}
        return [(each.state, each.reason) for each in notifications(replace(one, tracker=tracker, ejected=out))]

    assert found(ejected=True) == [(DOWN, "the agent of its server says down"), (UP, ""), (UP, "")]
    assert found(ejected=False) == [(UP, "")] * 3
    assert found("b0", ejected=True) == found("b0", ejected=False) == [(DOWN, ""), (UP, ""), (UP, "")]
    without_link = notifications(state(balancer(1), ports_down=frozenset({"p1"})))
    assert [(each.state, each.reason) for each in without_link] == [(DOWN, "port p1 has no link"), (DOWN, "")]


def test_arguments_and_environment() -> None:
    backend, service = (each.check("ovsbr1") for each in notifications(state(balancer(1), "b0")))
    assert backend.health.command == ("/bin/page", "-v", "BACKEND", "s/b0", "DOWN")
    assert service.health.command[2:] == ("SERVICE", "s", "DOWN")
    of_both = {"XENOOVS_STATE": "DOWN", "XENOOVS_BRIDGE": "ovsbr1", "XENOOVS_SERVICE": "s", "XENOOVS_REASON": ""}
    of_backend = {"XENOOVS_BACKEND": "b0", "XENOOVS_ADDRESS": "", "XENOOVS_MAC": "0a:00:00:00:00:00"}
    assert dict(backend.environment) == {"XENOOVS_KIND": "BACKEND", **of_both, **of_backend}
    assert dict(service.environment).items() >= {"XENOOVS_KIND": "SERVICE", **of_both}.items()


async def rest() -> None:
    """Longer than changes are gathered for; then turns of the loop, as both times may be over at once."""
    await asyncio.sleep(0.3)
    for _ in range(20):
        await asyncio.sleep(0)


class Pager:
    """Programs that end when the test lets them; answers to all."""

    def __init__(self, one: AgentState) -> None:
        self.store = StateStore(one)
        self.tasks = BackgroundTasks()
        self.decides = True
        self.notifier = Notifier(self.store, self.probe, self.tasks, lambda: self.decides)
        self.begun: list[str] = []
        self.gate = asyncio.Event()
        self.answer: ProbeResult | Exception = ProbeResult(ok=True, latency_s=0.0, reason="answered")

    async def probe(self, target: Check, *, timeout_s: float) -> ProbeResult:
        assert target.health.probe is ProbeKind.EXEC
        assert timeout_s == 2.0
        self.begun.append(" ".join(target.health.command[3:]))
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def become(self, one: AgentState) -> None:
        """The state that is, after it was compared."""
        self.store.state = one
        self.notifier.wake()
        await rest()


def told(first: AgentState, story: Callable[[Pager], Awaitable[None]]) -> list[str]:
    """What has begun when a story that begins in this state is over."""

    async def play() -> list[str]:
        pager = Pager(first)
        pager.notifier.begin()
        pager.tasks.start(pager.notifier.run())
        await story(pager)
        await pager.tasks.stop()
        return pager.begun

    return asyncio.run(play())


UP_BOTH, B1_DOWN = state(balancer(1, 1)), state(balancer(1, 1), "b1")


def test_a_restart_a_new_backend_that_is_up_and_maintenance_of_one_that_is_down_run_no_command() -> None:
    async def story(pager: Pager) -> None:
        for each in (state(balancer(1, 1, 1), "b1"), in_maintenance(B1_DOWN, "b1"), B1_DOWN):
            await pager.become(each)
        await pager.become(in_maintenance(B1_DOWN, "b1"))
        assert pager.begun == []
        await pager.become(UP_BOTH)

    assert told(B1_DOWN, story) == ["s/b1 UP"]


def test_of_a_flapping_backend_the_last_state_counts_and_an_agent_that_does_not_decide_runs_nothing() -> None:
    async def story(pager: Pager) -> None:
        for pager.decides, each in ((False, B1_DOWN), (True, B1_DOWN), (False, UP_BOTH), (True, UP_BOTH)):
            await pager.become(each)
        assert pager.begun == []
        for each in (B1_DOWN, UP_BOTH, B1_DOWN, UP_BOTH, B1_DOWN):
            await pager.become(each)
        assert pager.begun == ["s/b1 DOWN"]
        await pager.become(UP_BOTH)
        pager.gate.set()
        await rest()

    assert told(UP_BOTH, story) == ["s/b1 DOWN", "s/b1 UP"]


def test_only_so_many_run_at_once_and_none_is_lost() -> None:
    many = balancer(*[1] * (2 * MAX_RUNNING))
    names = [f"b{i}" for i in range(2 * MAX_RUNNING)]

    async def story(pager: Pager) -> None:
        await pager.become(state(many, *names))
        assert len(pager.begun) == MAX_RUNNING
        pager.gate.set()
        await pager.notifier.finish()

    assert sorted(told(state(many), story)) == sorted([*(f"s/{name} DOWN" for name in names), "s DOWN"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ProbeResult(ok=False, latency_s=0.0, reason="ended with status 1"), "ended with status 1"),
        (ResourceShortage("too many processes on this host"), "too many processes on this host"),
        (ZeroDivisionError("x"), "internal error in the probe: ZeroDivisionError: 'x'"),
    ],
)
def test_a_failure_is_logged_once(
    answer: ProbeResult | Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(pager: Pager) -> None:
        pager.answer = answer
        pager.gate.set()
        for _ in range(2):
            await pager.become(B1_DOWN)

    assert told(UP_BOTH, story) == ["s/b1 DOWN"]
    assert "a task failed" not in caplog.messages
    (record,) = [each for each in caplog.records if each.message == "notify failed"]
    assert vars(record)["facts"] == {"service": "s", "backend": "b1", "state": "DOWN", "reason": reason}


class Programs(Servers):
    """Programs are run."""

    async def probe(self, target: Check, *, timeout_s: float) -> ProbeResult:
        if target.health.probe is ProbeKind.EXEC:
            return await Prober(exec_allowed=True).probe(target, timeout_s=timeout_s)
        return await super().probe(target, timeout_s=timeout_s)


def test_an_agent_runs_the_program_when_a_backend_goes_down_and_comes_up(tmp_path: Path) -> None:
    out, program = tmp_path / "out", tmp_path / "notify"
    program.write_text(f'#!/bin/sh\necho "$1|$2|$3|$4|$XENOOVS_REASON" >> {out}\n')
    program.chmod(0o755)
    scene, servers = checked_scene(tmp_path, f"notify: {{command: [{program}, first argument]}}\n"), Programs()
    lines = [f"first argument|BACKEND|dns/fips2|{state}" for state in ("DOWN|no answer", "UP|answered")]
    with scene.agent(probe=servers.probe):
        for servers.down, count in (({FIPS2}, 1), ((), 2)):
            eventually(
                lambda count=count: out.exists() and out.read_text().splitlines() == lines[:count],  # type: ignore[misc]
                lines[count - 1],
            )


def test_a_program_that_hangs_blocks_no_round(tmp_path: Path) -> None:
    scene, servers = checked_scene(tmp_path, "notify: {command: [/bin/sleep, '1000']}\n"), Programs()
    with scene.agent(probe=servers.probe) as (agent, _):
        for down in ({FIPS2}, set[str]()):
            servers.down, rounds = down, agent.state.round.rounds
            eventually(lambda before=rounds: agent.state.round.rounds > before, "a round")  # type: ignore[misc]


ONE, OTHER = ip_address("192.0.2.10"), ip_address("192.0.2.11")


def two_services() -> Balancer:
    """Two services share the first VIP; the second VIP belongs to one of them alone, a third one is not announced."""
    services = (
        small.service(small.claim(ONE, protocol=Protocol.TCP, ports=[(80, 80)]), 1, name="web"),
        small.service(small.claim(ONE, OTHER, protocol=Protocol.UDP), 1, name="dns"),
        replace(small.service(small.claim(ip_address("192.0.2.12")), 1, name="inner"), announced=False),
    )
    return replace(small.balancer(*services), announce=Announce(BgpSpeaker.FRR))


NOW_S = 4.0
BOTH, OUT = two_services(), frozenset({"b0"})
GOOD = AgentState(BOTH, BOTH, round=RoundFacts(compiled(BOTH), DesiredState(BOTH), last_s=0.0))


def after(**facts: Any) -> AgentState:
    """Return the state in which the last round has left this."""
    return replace(GOOD, round=replace(GOOD.round, **facts))


def test_a_vip_is_announced_while_one_of_its_services_serves() -> None:
    web_alone = after(desired=DesiredState(BOTH, {"dns": OUT}))
    for state, expected in ((GOOD, [True, True]), (web_alone, [True, False])):
        found = decide_vips(BOTH, state, NOW_S)
        assert [found[vip].has_route for vip in (ONE, OTHER)] == expected
        assert len(found) == 2
    assert decide_vips(replace(BOTH, announce=None), GOOD, NOW_S) == {}


ALL_OUT = DesiredState(BOTH, {"dns": OUT, "web": OUT})
WITHDRAWN = Runtime(is_paused=True, is_withdrawn=True)
OUT_OF_SERVICE = FleetMembership("dpu1", 1, 1, None, withheld="taken out of service")


@pytest.mark.parametrize(
    ("state", "has_route", "reason"),
    [
        (replace(GOOD, round=RoundFacts()), None, "starting"),
        (after(failing_since_s=3.0, error="no answer"), None, "no answer"),
        (after(failing_since_s=0.0, error="no answer"), False, "reconcile fails: no answer"),
        (replace(GOOD, ports_down=frozenset(BOTH.uplinks.ingress)), False, "no ingress port has a link"),
        (after(held=1), None, "paused, and the flows are not as configured"),
        (after(held=1, desired=ALL_OUT), False, "no backend of web, dns serves"),
        (replace(GOOD, fleet=OUT_OF_SERVICE), False, "taken out of service"),
        (
            replace(GOOD, round=RoundFacts(), runtime=WITHDRAWN),
            False,
            "`xenoovs pause --withdraw`; `xenoovs pause --end` brings it back",
        ),
    ],
)
def test_nothing_changes_while_the_state_is_unknown(state: AgentState, has_route: bool | None, reason: str) -> None:
    found = decide_vips(BOTH, state, NOW_S)[ONE]
    assert (found.has_route, found.reason) == (has_route, reason)


class FakeRoutes(VipRoutes):
    """Routes in memory. `problem`: why they cannot be used."""

    def __init__(self) -> None:
        super().__init__("xo-ovsbr1")
        self.vips: set[Vip] = set()
        self.problem: str | None = None
        self.calls: list[str] = []
        self.reads, self.withdrawn = 0, set[Vip]()

    def open(self, *, ends_with_process: bool) -> None:
        self.calls.append(f"open {ends_with_process}")
        if self.problem:
            raise SwitchError(self.problem)

    def read(self) -> frozenset[Vip]:
        self.reads += 1
        return frozenset(self.vips)

    def change(self, *, add: Iterable[Vip], remove: Iterable[Vip]) -> frozenset[Vip]:
        self.vips = (self.vips | set(add)) - set(remove)
        self.withdrawn |= set(remove)
        return self.read()

    def close(self) -> None:
        self.calls.append("close")
        self.vips.clear()

    def release(self) -> None:
        self.calls.append("release")


def read_bgp(vips: Iterable[Vip]) -> Mapping[Vip, tuple[str, ...] | None]:
    return dict.fromkeys(vips, ("10.0.0.1",))


ANNOUNCING = f"{SMALL_CONFIG}\nannounce: {{bgp: frr}}\n"
(VIP,) = parse_config(ANNOUNCING, file="my.yaml").announced_vips


@contextmanager
def announcing(scene: Scene, routes: FakeRoutes, text: str = ANNOUNCING) -> Iterator[tuple[Agent, Client]]:
    """An agent with this config, whose announcer has these routes."""
    scene.config.write_text(text)

    def begin(agent: Agent) -> tuple[()]:
        announcer = Announcer(agent.store, routes, read_bgp)
        agent.add_task(announcer.run)
        agent.add_task(announcer.follow_bgp)
        return ()

    with scene.agent(routes=begin) as both:
        yield both


def test_routes_follow_the_config_and_a_problem_is_shown_until_it_is_over(scene: Scene) -> None:
    routes = FakeRoutes()
    routes.problem = "not permitted"
    with announcing(scene, routes) as (agent, _):
        eventually(lambda: [view.problem for view in agent.state.vips.views] == ["not permitted"], "it is shown")
        routes.problem = None
        eventually(lambda: [view.peers for view in agent.state.vips.views] == [1], "it is announced")
        scene.config.write_text(SMALL_CONFIG)
        eventually(lambda: not agent.state.vips.views and not routes.vips, "it is withdrawn")
    assert routes.calls[-1] == "release"


def test_bug_an_internal_error_withdrew_all_vips(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of `on_agent_exit: withdraw` was closed, as at the end of the agent."""
    monkeypatch.setattr(announce, "_CHECK_S", 0.05)
    routes = FakeRoutes()
    with announcing(scene, routes) as (agent, _):
        eventually(lambda: routes.vips == {VIP}, "it is announced")
        with monkeypatch.context() as patch:
            patch.setattr(routes, "read", Mock(side_effect=ZeroDivisionError("of a test")))
            eventually(lambda: "of a test" in agent.state.vips.views[0].problem, "it is shown")
        eventually(lambda: not agent.state.vips.views[0].problem, "it is over")
        assert (routes.vips, "release" in routes.calls) == ({VIP}, False)


def test_a_vip_stays_announced_while_a_pause_leaves_its_flows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a newer config has another VIP, for which the bridge has no flows yet."""
    monkeypatch.setattr(announce, "_CHECK_S", 0.05)
    routes = FakeRoutes()
    with announcing(scene, routes) as (agent, client):
        eventually(lambda: routes.vips == {VIP}, "it is announced")
        client.ask("pause")
        scene.edit(str(VIP), "198.51.100.99")
        eventually(lambda: agent.reloader.reloads == 1 and bool(agent.state.round.held), "the newer config is followed")
        reads = routes.reads
        eventually(lambda: routes.reads > reads + 1, "the routes are compared again")
        assert (routes.vips, routes.withdrawn) == ({VIP}, set())


def test_an_agent_that_announces_nothing_removes_what_an_earlier_one_left(scene: Scene) -> None:
    routes = FakeRoutes()
    routes.vips = {ONE}
    with announcing(scene, routes, SMALL_CONFIG):
        eventually(lambda: not routes.vips, "it is gone")
    assert routes.calls == ["close", "release"]


def test_a_round_that_is_only_late_withdraws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((daemon, "_LATE_S", 0.05), (announce, "_CHECK_S", 0.05), (announce, "GRACE_S", 0.0)):
        monkeypatch.setattr(module, name, value)
    routes, slow = FakeRoutes(), HangingSwitch()
    scene = Scene(tmp_path, slow)
    with announcing(scene, routes) as (agent, _):
        eventually(lambda: bool(routes.vips), "it is announced")
        slow.goes_on.clear()
        scene.config.write_text(ANNOUNCING + "# changed\n")
        eventually(lambda: "is not finished" in agent.state.round.error, "the round is late")
        reads = routes.reads
        eventually(lambda: routes.reads > reads + 2, "routes are compared meanwhile")
        slow.goes_on.set()
        eventually(lambda: not agent.state.round.error, "the round ends")
        assert (routes.vips, routes.withdrawn) == ({VIP}, set())
