"""Which VIPs are announced, and what status shows about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.agent_support import Scene
from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled
from tests.fake_switch import HangingSwitch
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent import announce, daemon
from xenoovs.agent.announce import Announcer, decide_vips
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.state import AgentState, RoundFacts, Runtime
from xenoovs.decision.decision import DesiredState
from xenoovs.errors import SwitchError
from xenoovs.model.address import Vip
from xenoovs.model.balancer import Announce, Balancer, BgpSpeaker, Protocol
from xenoovs.model.load import parse_config
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


def test_a_vip_is_announced_while_one_of_its_services_serves() -> None:
    web_alone = after(desired=DesiredState(BOTH, {"dns": OUT}))
    for state, expected in ((GOOD, ["ANNOUNCE", "ANNOUNCE"]), (web_alone, ["ANNOUNCE", "WITHDRAW"])):
        found = decide_vips(BOTH, state, NOW_S)
        assert [found[vip].action.name for vip in (ONE, OTHER)] == expected
        assert len(found) == 2
    assert decide_vips(replace(BOTH, announce=None), GOOD, NOW_S) == {}


ALL_OUT = DesiredState(BOTH, {"dns": OUT, "web": OUT})
WITHDRAWN = Runtime(is_paused=True, is_withdrawn=True)


@pytest.mark.parametrize(
    ("state", "action", "reason"),
    [
        (replace(GOOD, round=RoundFacts()), "LEAVE", "starting"),
        (after(failing_since_s=3.0, error="no answer"), "LEAVE", "no answer"),
        (after(failing_since_s=0.0, error="no answer"), "WITHDRAW", "reconcile fails: no answer"),
        (replace(GOOD, ports_down=frozenset(BOTH.uplinks.ingress)), "WITHDRAW", "no ingress port has a link"),
        (after(held=1), "LEAVE", "paused, and the flows are not as configured"),
        (after(held=1, desired=ALL_OUT), "WITHDRAW", "no backend of web, dns serves"),
        (
            replace(GOOD, round=RoundFacts(), runtime=WITHDRAWN),
            "WITHDRAW",
            "`xenoovs pause --withdraw`; `xenoovs resume` brings it back",
        ),
    ],
)
def test_nothing_changes_while_the_state_is_unknown(state: AgentState, action: str, reason: str) -> None:
    found = decide_vips(BOTH, state, NOW_S)[ONE]
    assert (found.action.name, found.reason) == (action, reason)


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

    with scene.agent(mounts=begin) as both:
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


def test_a_vip_stays_announced_while_a_pause_leaves_its_flows_on_the_bridge(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
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
