"""Which VIPs are announced, and what status shows about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled
from tests.fake_switch import FakeSwitch, HangingSwitch
from tests.patience import eventually
from tests.snapshots import snapshot
from tests.unit import balancer as small
from xenoovs.agent import announce, daemon
from xenoovs.agent.announce import Announcer, VipAction, decide_vips
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.runtime_file import parse_runtime, render_runtime
from xenoovs.agent.state import AgentState, RoundFacts, Runtime
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.errors import SwitchError
from xenoovs.model.address import Vip
from xenoovs.model.balancer import Announce, Balancer, BgpSpeaker, Protocol
from xenoovs.model.load import parse_config
from xenoovs.show.conditions import headline, is_as_desired, notices, troubles
from xenoovs.show.snapshot import AnnouncementView, Snapshot
from xenoovs.switch.vip_routes import BgpRoute

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


def decisions(state: AgentState) -> dict[Vip, VipAction]:
    return {vip: each.action for vip, each in decide_vips(BOTH, state, NOW_S).items()}


ALL_OUT = DesiredState(BOTH, {"dns": OUT, "web": OUT})


def test_a_vip_is_announced_while_one_of_its_services_serves() -> None:
    assert decisions(GOOD) == {ONE: VipAction.ANNOUNCE, OTHER: VipAction.ANNOUNCE}
    assert decisions(after(desired=DesiredState(BOTH, {"dns": OUT}))) == {
        ONE: VipAction.ANNOUNCE,
        OTHER: VipAction.WITHDRAW,
    }
    assert set(decisions(after(desired=ALL_OUT)).values()) == {VipAction.WITHDRAW}


def test_a_config_without_announce_announces_nothing() -> None:
    assert decide_vips(replace(BOTH, announce=None), GOOD, NOW_S) == {}


@pytest.mark.parametrize(
    ("state", "action", "reason"),
    [
        (replace(GOOD, round=RoundFacts()), VipAction.LEAVE, "starting"),
        (after(failing_since_s=3.0, error="no answer"), VipAction.LEAVE, "no answer"),
        (after(failing_since_s=0.0, error="no answer"), VipAction.WITHDRAW, "reconcile fails: no answer"),
        (replace(GOOD, ports_down=frozenset(BOTH.uplinks.ingress)), VipAction.WITHDRAW, "no ingress port has a link"),
        (after(held=1), VipAction.LEAVE, "paused, and the flows are not as configured"),
        (after(held=1, desired=ALL_OUT), VipAction.WITHDRAW, "no backend of web, dns serves"),
        (
            replace(GOOD, round=RoundFacts(), runtime=Runtime(is_paused=True, is_withdrawn=True)),
            VipAction.WITHDRAW,
            "`xenoovs pause --withdraw`; `xenoovs resume` brings it back",
        ),
    ],
)
def test_nothing_changes_while_the_state_is_unknown(state: AgentState, action: VipAction, reason: str) -> None:
    found = decide_vips(BOTH, state, NOW_S)[ONE]
    assert (found.action, found.reason) == (action, reason)


def shown(**view: object) -> Snapshot:
    known: dict[str, object] = {"vip": str(ONE), "is_announced": True, **view}
    announced = (AnnouncementView(**known),)  # type: ignore[arg-type]
    return replace(snapshot(), services=snapshot().services[1:], announcements=announced)


def test_status_names_what_is_announced() -> None:
    good = shown(peers=2)
    assert is_as_desired(good)
    assert ("announced: 192.0.2.10 to 2 neighbors", "note") in list(notices(good))


@pytest.mark.parametrize(
    ("found", "words", "how"),
    [
        (shown(peers=0, problem="no session"), "VIP 192.0.2.10: no session", "bad"),
        (shown(problem="vtysh did not answer"), "VIP 192.0.2.10: vtysh did not answer", "warn"),
        (shown(is_announced=False, problem="refused"), "VIP 192.0.2.10: not announced: refused", "bad"),
        (shown(is_announced=False, reason="no backend"), "VIP 192.0.2.10: withdrawn: no backend", "warn"),
    ],
)
def test_status_shows_why_a_vip_is_not_advertised(found: Snapshot, words: str, how: str) -> None:
    assert list(troubles(found)) == [(words, how)]
    assert is_as_desired(found) == (how != "bad")
    assert headline(found) == (("VIPs are not announced", "bad") if how == "bad" else ("as configured", "good"))


def test_many_vips_with_one_problem_are_one_line() -> None:
    views = tuple(AnnouncementView(f"192.0.2.{n}", is_announced=False, reason="no backend") for n in range(7))
    (line,) = troubles(replace(snapshot(), services=snapshot().services[1:], announcements=views))
    five = ", ".join(f"192.0.2.{n}" for n in range(5))
    assert line == (f"VIPs {five} and 2 more: withdrawn: no backend", "warn")


@pytest.mark.parametrize("runtime", [Runtime(is_paused=True), Runtime(is_paused=True, is_withdrawn=True)])
def test_a_withdrawal_survives_in_the_file(runtime: Runtime) -> None:
    assert parse_runtime(render_runtime(runtime).encode()) == runtime


class FakeRoutes:
    """Routes in memory. `problem`: why they cannot be used."""

    def __init__(self) -> None:
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


def read_bgp(vips: Iterable[Vip]) -> Mapping[Vip, BgpRoute]:
    return {vip: BgpRoute(is_known=True, peers=("10.0.0.1",)) for vip in vips}


async def answers(target: Target, *, timeout_s: float) -> ProbeResult:
    return ProbeResult(ok=True, latency_s=0.0, reason="answered")


def run_agent(config: Path, routes: FakeRoutes, story: list[tuple[str, object]], switch: FakeSwitch) -> None:
    """Run an agent through a story: what to write to the config, or a condition to wait for."""

    async def work() -> None:
        agent = Agent(ConfigFile(config), Engine(switch), probe=answers)
        announcer = Announcer(agent.store, routes, read_bgp)
        agent.add_task(announcer.run)
        agent.add_task(announcer.follow_bgp)
        running = asyncio.ensure_future(agent.run())
        for action, what in story:
            if action == "write":
                config.write_text(str(what))
            elif action == "do":
                what()  # type: ignore[operator]
            elif action == "pause":
                await agent.change(lambda reloader: reloader.set_paused(paused=True))
            else:
                await asyncio.to_thread(eventually, lambda what=what: what(agent), action)  # type: ignore[misc]
        agent.stop()
        await running

    asyncio.run(work())


ANNOUNCING = f"{SMALL_CONFIG}\nannounce: {{bgp: frr}}\n"


def test_routes_follow_the_config_and_a_problem_is_shown_until_it_is_over(tmp_path: Path, switch: FakeSwitch) -> None:
    config, routes = tmp_path / "my.yaml", FakeRoutes()
    config.write_text(ANNOUNCING)
    routes.problem = "not permitted"

    def repair() -> None:
        routes.problem = None

    run_agent(
        config,
        routes,
        [
            (
                "the problem is shown",
                lambda agent: [view.problem for view in agent.state.vips.views] == ["not permitted"],
            ),
            ("do", repair),
            (
                "it is announced",
                lambda agent: [view.peers for view in agent.state.vips.views] == [1],
            ),
            ("write", SMALL_CONFIG),
            ("it is withdrawn", lambda agent: not agent.state.vips.views and not routes.vips),
        ],
        switch,
    )
    assert routes.calls[-1] == "release"


def test_a_vip_stays_announced_while_a_pause_leaves_its_flows_on_the_bridge(
    tmp_path: Path, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although a newer config has another VIP, for which the bridge has no flows yet."""
    monkeypatch.setattr(announce, "_CHECK_S", 0.05)
    config, routes, reads = tmp_path / "my.yaml", FakeRoutes(), list[int]()
    config.write_text(ANNOUNCING)
    (before,) = parse_config(ANNOUNCING, file="my.yaml").announced_vips
    run_agent(
        config,
        routes,
        [
            ("it is announced", lambda _: routes.vips == {before}),
            ("pause", None),
            ("write", ANNOUNCING.replace(str(before), "198.51.100.99")),
            ("the newer config is followed", lambda agent: agent.reloader.reloads == 1 and agent.state.round.held),
            ("do", lambda: reads.append(routes.reads)),
            ("the routes are compared again", lambda _: routes.reads > reads[0] + 1),
        ],
        switch,
    )
    assert (routes.vips, routes.withdrawn) == ({before}, set())


def test_an_agent_that_announces_nothing_removes_what_an_earlier_one_left(tmp_path: Path, switch: FakeSwitch) -> None:
    config, routes = tmp_path / "my.yaml", FakeRoutes()
    config.write_text(SMALL_CONFIG)
    routes.vips = {ONE}
    run_agent(config, routes, [("it is gone", lambda _: not routes.vips)], switch)
    assert routes.calls == ["close", "release"]


def test_a_round_that_is_only_late_withdraws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_LATE_S", 0.05)
    monkeypatch.setattr(announce, "_CHECK_S", 0.05)
    monkeypatch.setattr(announce, "GRACE_S", 0.0)
    config, routes, slow = tmp_path / "my.yaml", FakeRoutes(), HangingSwitch()
    config.write_text(ANNOUNCING)
    reads = list[int]()

    def is_seen_again(_agent: Agent) -> bool:
        reads.append(routes.reads)
        return reads[-1] > reads[0] + 2

    run_agent(
        config,
        routes,
        [
            ("it is announced", lambda _: bool(routes.vips)),
            ("do", slow.goes_on.clear),
            ("write", ANNOUNCING + "# changed\n"),
            ("the round is late", lambda agent: "is not finished" in agent.state.round.error),
            ("routes are compared meanwhile", is_seen_again),
            ("it stays", lambda _: bool(routes.vips)),
            ("do", slow.goes_on.set),
            ("the round ends", lambda agent: not agent.state.round.error),
        ],
        slow,
    )
    assert not routes.withdrawn
