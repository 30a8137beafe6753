"""Rounds on a switch in memory: at once and at their times, with ports that are gone and a database that is silent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from tests.agent_support import Scene, checked_scene, make_scene
from tests.command_line import SMALL_CONFIG
from tests.compiled import decided
from tests.fake_switch import FakeSwitch, HangingSwitch, Soon, fake_bridge, nothing
from tests.fleet_support import EMPTY, MORE, given, settled
from tests.judged import assert_recorded
from tests.patience import PATIENCE_S, eventually
from tests.switch_tunnels import GENEVE, REMOTES, behind_tunnels
from tests.unit import balancer as small
from xenoovs.agent import daemon, neighbour, report, tasks
from xenoovs.agent.checkpoint import roll_back, take_checkpoint
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent, AgentGroup, handle_signals
from xenoovs.agent.fleet_config import FleetConfig
from xenoovs.agent.neighbour import Neighbours
from xenoovs.agent.scheduler import Probe
from xenoovs.agent.state import RoundFacts
from xenoovs.agent.telemetry import Timings, telemetry
from xenoovs.compile.pipeline import LEARNED, Stage, cookie_of
from xenoovs.compile.program import compile_config
from xenoovs.datapath.database import UNKNOWN_TYPE, BridgeState, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ipsec import IpsecState, parse_policies
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Appointment, Engine
from xenoovs.errors import (
    AppointmentCancelled,
    BundleRejected,
    ChangesHeld,
    CommandTimeout,
    SwitchError,
    SwitchUnreachable,
    WouldBeUnencrypted,
)
from xenoovs.log import warn
from xenoovs.model.balancer import Balancer, Drain, DrainMode, Protocol, service_ids, sought
from xenoovs.model.load import load_config, parse_config
from xenoovs.model.tunnel import Ipsec, TunnelPorts
from xenoovs.openflow.flow import OURS, Cookies, Flow, ObservedFlow, service_of
from xenoovs.openflow.text import parse_dump

BY_ADDRESS = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services: [{name: web, vip: 203.0.113.1, backends: [{name: b, address: 192.0.2.%s, weight: 1}]}]
"""
PIN = Drain(DrainMode.PIN)
ONE = small.balancer(small.service(small.claim(), 3, 1))
TWO = small.balancer(
    small.service(small.claim(protocol=Protocol.UDP), 3, 1), small.service(small.claim(protocol=Protocol.TCP), name="t")
)


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]), fake_bridge("ovsbr2", ["p0", "p1"]))


def flows(switch: FakeSwitch) -> set[Flow]:
    return {seen.flow for seen in switch.all_flows("ovsbr1").values()}


def test_another_bridge_is_not_a_lost_one(switch: FakeSwitch) -> None:
    engine, uplinks = Engine(switch), replace(ONE.uplinks, bridge="ovsbr2")
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.restart("ovsbr1")
    done = engine.round(DesiredState(replace(ONE, uplinks=uplinks)), now_s=0.0)
    assert (done.lost, done.foreign, done.difference.unchanged) == (False, 0, 0)


def test_after_a_lost_reply_even_an_urgent_round_reads_the_flows_again(switch: FakeSwitch) -> None:
    engine, dead = Engine(switch), DesiredState(ONE, {"s": frozenset({"b1"})})
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
    with pytest.raises(CommandTimeout):
        engine.round(dead, now_s=0.0, urgent=True)
    assert engine.round(dead, now_s=0.0, urgent=True).difference.is_empty


def test_a_missing_port_holds_back_only_its_own_flows(switch: FakeSwitch) -> None:
    wide, engine = replace(ONE, uplinks=replace(ONE.uplinks, ingress=("p0", "p9"))), Engine(switch)
    done = engine.round(DesiredState(wide), now_s=0.0)
    assert [problem.text for problem in done.problems] == ["port p9 is on no bridge (ovsbr1 has p0, p1)"]
    assert flows(switch) == {flow for flow in compile_config(wide).flows if flow.match.in_port != "p9"}
    switch.set_ports(fake_bridge("ovsbr1", ["p0", "p1", "p9"]))
    assert not engine.round(DesiredState(wide), now_s=1.0).problems
    assert flows(switch) == set(compile_config(wide).flows)


broken = AsyncMock(side_effect=ZeroDivisionError)


def probing(directory: Path, switch: FakeSwitch, probe: Probe) -> Agent:
    return Agent(ConfigFile(checked_scene(directory).config), Engine(switch), probe=probe)


def test_an_internal_error_ends_no_agent(switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a probe, in a listener, in a task, which starts again, and in what times the rounds in their thread."""
    monkeypatch.setattr(tasks, "_RETRY_S", 0.0)
    agent, begun = probing(tmp_path, switch, broken), list[int]()
    telemetry(agent)
    monkeypatch.setattr(Timings, "count", None)

    async def mistaken_once() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ZeroDivisionError
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.store.subscribe(RoundFacts, Mock(side_effect=ZeroDivisionError))
    agent.add_task(mistaken_once)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    faults = {
        (each.text, str(each.facts["reason"]).partition(":")[0])
        for each in agent.events.since(0)
        if "a task failed" in each.text or "internal error" in each.text
    }
    assert faults == {
        ("a task failed; starting it again", "ZeroDivisionError"),
        ("internal error in a listener", "ZeroDivisionError"),
        ("internal error in a listener", "TypeError"),
    }
    last = [each.last for each in agent.state.tracker.health.values()]
    assert {each.reason for each in last if each} == {"internal error in the probe: ZeroDivisionError: ''"}
    assert (len(begun), agent.state.round.rounds) == (2, 1)


def test_addresses_that_the_config_lacks_now_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "_POLL_S", 0.001)
    monkeypatch.setattr(Neighbours, "poll", lambda _neighbours, *_balancers: {})
    neighbours = Neighbours()
    first, second = (parse_config(BY_ADDRESS % number, file="c.yaml") for number in (1, 2))
    for each in (first, second):
        neighbours.settle(each, timeout_s=0.0)
    assert neighbours._waited_for == sought(first).keys() | sought(second).keys()

    async def follow() -> None:
        task = asyncio.create_task(neighbours.follow(lambda: (second,), on_change=lambda: None))
        while len(neighbours._waited_for) > 1:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(follow())
    assert neighbours._waited_for == sought(second).keys()


class Exhausted(FakeSwitch):
    """Has no descriptors for a moment. left: how many calls fail."""

    left = 3

    def incarnation(self, bridge: str) -> str | None:
        if self.all_flows("ovsbr1") and self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().incarnation(bridge)


def test_an_agent_without_descriptors_goes_on_when_it_has_some(tmp_path: Path) -> None:
    switch = Exhausted(fake_bridge("ovsbr1", ["p0", "p1"]))
    agent = Agent(ConfigFile(make_scene(tmp_path).config), Engine(switch), probe=broken)

    async def beside() -> None:
        while switch.left or agent.state.round.error or not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.add_task(beside)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    assert (switch.left, agent.state.round.rounds) == (0, 1)


def test_a_rollback_gives_a_restarted_switch_the_flows_of_all_services(switch: FakeSwitch) -> None:
    """Not only of those that the change had touched."""
    engine = Engine(switch)
    engine.round(DesiredState(TWO), now_s=0.0)
    before, flows = take_checkpoint(switch, "ovsbr1"), switch.all_flows("ovsbr1")
    done = engine.round(DesiredState(TWO, {"s": frozenset({"b1"})}), now_s=0.0)
    switch.restart("ovsbr1")
    roll_back(switch, before, services=done.touched)
    assert switch.all_flows("ovsbr1") == flows


def test_many_log_lines_in_one_step_lose_no_signal(switch: FakeSwitch, tmp_path: Path) -> None:
    """Each used to write a byte into the pipe of the loop, by which it learns of signals; 278 filled it."""
    agent = probing(tmp_path, switch, broken)

    async def run() -> None:
        group = AgentGroup()
        group.agents["ovsbr1"] = agent
        handle_signals(asyncio.get_running_loop(), group)
        agent.add_task(much_to_say)
        await agent.run()

    async def much_to_say() -> None:
        for number in range(2000):
            warn("backend is down", backend=f"b{number}")
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert agent.events.last > 2000


def test_bug_a_drain_that_began_while_another_was_counted_lost_connections(
    switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting the flows of drains takes seconds, while rounds run in another thread."""
    claims = (small.claim(protocol=Protocol.TCP, ports=[(port, port)]) for port in (80, 81))
    drained = [replace(small.service(claim, 1, 1, name=f"s{n}"), drain=PIN) for n, claim in enumerate(claims)]
    first, second = ((service, replace(service, backends=small.backends(1, 0))) for service in drained)
    engine, dump_flows = Engine(switch), switch.dump_flows
    engine.round(DesiredState(small.balancer(first[0], second[0])), now_s=0.0)
    engine.round(DesiredState(small.balancer(first[1], second[0])), now_s=1.0)
    other = service_ids(service.claim for service in drained)[second[0].claim]
    flow = next(seen.flow for seen in switch.all_flows("ovsbr1").values() if seen.flow.table == Stage.BALANCE.table)
    key = replace(flow.key, table=Stage.LEARNED.table)

    def interrupted(bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        if only == LEARNED:
            engine.round(DesiredState(small.balancer(first[1], second[1])), now_s=2.0)
            switch.install("ovsbr1", [replace(flow, key=key, cookie=cookie_of(Stage.LEARNED, other))])
        return dump_flows(bridge, only=only)

    monkeypatch.setattr(switch, "dump_flows", interrupted)
    engine.count_drains(now_s=2.0)
    assert key in switch.all_flows("ovsbr1")


def test_a_round_that_does_not_end_is_reported_and_delays_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open vSwitch stopped in the middle of a reply."""
    monkeypatch.setattr(daemon, "_LATE_S", 0.2)
    scene, hanging = make_scene(tmp_path), HangingSwitch()
    with replace(scene, switch=hanging).agent() as (agent, client):
        hanging.goes_on.clear()
        for wanted in ("drain", "reset"):
            # The second request comes while the round is late already.
            answer = client.ask(wanted, {"service": "dns", "backend": "fips3"})
            assert not answer["is_applied"]
            assert "reconciling bridge ovsbr1 is not finished after 200ms" in answer["message"]
        assert "is not finished" in client.ask("status")["snapshot"]["last_error"]
        hanging.goes_on.set()
        eventually(lambda: not agent.state.round.error, "the round is finished")
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]


PINNING = replace(ONE, services=tuple(replace(s, drain=Drain(DrainMode.PIN)) for s in ONE.services))


@pytest.mark.parametrize("balancer", [ONE, PINNING], ids=["none", "pin"])
def test_clients_of_a_dead_backend_move_while_the_database_does_not_answer(
    switch: FakeSwitch, balancer: Balancer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, silent = Engine(switch), Mock(side_effect=SwitchUnreachable(target="unix:db.sock", reason="no answer"))
    engine.round(DesiredState(balancer), now_s=0.0)
    for name in ("bridges", "describe"):
        monkeypatch.setattr(switch, name, silent)
    assert not engine.round(DesiredState(balancer, {"s": frozenset({"b0"})}), now_s=1.0).difference.is_empty
    found = decided((seen.flow for seen in switch.dump_flows("ovsbr1")), balancer)
    assert [each.active.shares() for each in found.values()] == [{"b1": 1}]
    # Nothing is known about the ports of a bridge that was made anew.
    switch.restart("ovsbr1")
    with pytest.raises(SwitchUnreachable):
        engine.round(DesiredState(balancer), now_s=2.0)


def test_an_agent_that_starts_without_a_database_continues_slow_starts(tmp_path: Path) -> None:
    """The slow start in the flows was not read later, so the backend got all clients back at once."""
    scene = checked_scene(tmp_path)
    scene.edit("fall: 1", "fall: 1, ramp: 600s")
    balancer = load_config(scene.config)
    (service,) = balancer.services
    ramps = {(service.name, service.backends[0].name): Fraction(3, 8)}
    engine = Engine(scene.switch)
    engine.round(DesiredState(balancer), now_s=0.0)
    engine.round(DesiredState(balancer, ramps=ramps), now_s=1.0)
    flows = scene.flows
    scene.switch.fail_next(SwitchUnreachable(target="unix:ovsbr1.mgmt", reason="it does not answer"))
    with scene.agent() as (agent, _):
        assert scene.flows == flows
        assert agent.desired.ramps == {("dns", "fips2"): Fraction(3, 8)}


def with_ports(*more: PortState, datapath: str = "dummy") -> BridgeState:
    bridge = replace(fake_bridge("ovsbr1", ["p0", "p1"]), datapath_type=datapath)
    return replace(bridge, ports=tuple(sorted((*bridge.ports, *more), key=lambda port: port.name)))


def gnv0(kind: str = "geneve", **options: str) -> PortState:
    usual = {"local_ip": "192.168.77.1", "remote_ip": "flow", "key": "flow"}
    return PortState("gnv0", 3, kind, options=usual | options)


ENCRYPTED = replace(GENEVE, ports=TunnelPorts.EACH, ipsec=Ipsec(psk_file="/etc/psk"))
POLICY = """\
src 192.168.77.1/32 dst {remote}/32 proto udp dport 6081
\tdir out priority 366847 ptype main
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 2 mode transport
"""
NONE, BOTH = IpsecState(), IpsecState(parse_policies("".join(POLICY.format(remote=remote) for remote in REMOTES)))
FIRST = IpsecState(parse_policies(POLICY.format(remote=REMOTES[0])))
KEYED = tuple(
    replace(gnv0(remote_ip=str(remote), psk="(hidden)"), name=ENCRYPTED.port_to(remote), ofport=3 + n)
    for n, remote in enumerate(REMOTES)
)
SHARED = behind_tunnels()
# A config, and the ports and policies of IPsec that each round finds.
PROBLEMS: dict[str, tuple[Balancer, list[tuple[BridgeState, IpsecState]]]] = {
    "a port that is gone": (ONE, [(fake_bridge("ovsbr1", ["p0"]), NONE)]),
    "a tunnel port that is gone": (SHARED, [(with_ports(), NONE)]),
    # It was accepted as a port that only OpenFlow describes.
    "a tunnel port without a type": (SHARED, [(with_ports(gnv0("system")), NONE)]),
    # It was not noticed once a round had changed nothing.
    **{
        f"a tunnel that leads elsewhere after {rounds} rounds": (
            SHARED,
            [*[(with_ports(gnv0()), NONE)] * rounds, (with_ports(gnv0(out_key="7")), NONE)],
        )
        for rounds in (1, 3)
    },
    "a policy that vanished, with the key or with the daemon": (
        behind_tunnels(ENCRYPTED),
        [(with_ports(*KEYED, datapath="system"), state) for state in (NONE, BOTH, FIRST, BOTH)],
    ),
    # It was planned if a policy existed, although none of these packets reach the kernel's IPsec.
    "a userspace datapath": (behind_tunnels(ENCRYPTED), [(with_ports(*KEYED, datapath="netdev"), BOTH)]),
}


def test_bug_backends_that_no_packet_can_reach_or_only_unencrypted_got_clients(*, update_golden: bool) -> None:
    shown = {}
    for title, (balancer, rounds) in PROBLEMS.items():
        switch, lines = FakeSwitch(rounds[0][0]), list[str]()
        engine = Engine(switch)
        for bridge, switch.ipsec in rounds:
            switch.set_ports(bridge)
            done = engine.round(DesiredState(balancer), now_s=0.0)
            changed = "flows changed" if done.difference.flow_mods else "nothing changed"
            lines.append("\n  ".join([f"{changed}:", *(each.text for each in done.problems)]))
        shown[title] = "\n".join(lines)
    assert_recorded("cli/problems.txt", shown, update=update_golden)


def _encrypted(datapath: str = "system") -> tuple[FakeSwitch, Engine, Balancer]:
    switch = FakeSwitch(with_ports(*KEYED, datapath=datapath))
    return switch, Engine(switch), behind_tunnels(ENCRYPTED)


def test_plan_refuses_tunnels_with_ipsec_in_userspace() -> None:
    switch, engine, balancer = _encrypted("netdev")
    switch.ipsec = BOTH
    with pytest.raises(WouldBeUnencrypted, match="Use a bridge with datapath_type system, or remove `ipsec`"):
        engine.plan(balancer, PlanOptions())


@pytest.mark.parametrize("is_installed", [False, True])
def test_plan_refuses_a_tunnel_without_its_policy_also_when_no_flow_changes(*, is_installed: bool) -> None:
    switch, engine, balancer = _encrypted()
    if is_installed:
        switch.ipsec = BOTH
        engine.apply(engine.plan(balancer, PlanOptions()))
    switch.ipsec = FIRST
    with pytest.raises(WouldBeUnencrypted) as found:
        engine.plan(balancer, PlanOptions())
    assert "no policy covers packets to 192.168.77.12, so they leave unencrypted" in str(found.value)
    assert "openvswitch-ipsec makes the policies some seconds after the ports have their keys: wait" in str(found.value)
    assert engine.plan(balancer, PlanOptions(partial=True)).problems


@pytest.mark.parametrize("what", ["ports that only OpenFlow describes", "policies that cannot be read"])
def test_bug_what_cannot_be_checked_was_reported_never_or_always(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A controller on another host did not report which ports it cannot check."""
    reported = list[object]()
    monkeypatch.setattr(
        report, "warn", lambda event, **facts: reported.append((event, facts.get("ports", facts.get("reason"))))
    )
    switch, engine, balancer = _encrypted()
    switch.ipsec, expected = Unknown("no ip here"), ("policies of IPsec cannot be read", "no ip here")
    if what.startswith("ports"):
        engine, balancer = Engine(FakeSwitch(with_ports(PortState("gnv0", 3, UNKNOWN_TYPE)))), SHARED
        expected = ("tunnel ports cannot be checked without the database", "gnv0")
    reports = report.Report()
    for ejected in ({}, {}, {"web": frozenset({"b1"})}):
        done = engine.round(DesiredState(balancer, ejected), now_s=0.0)
        reports.succeeded(RoundFacts(), done, bridge="ovsbr1", config="x", now_s=0.0)
    assert (done.problems, reported) == ((), [expected])


BEFORE = DesiredState(ONE)
AFTER = DesiredState(small.balancer(small.service(small.claim(), 1, 3)))
LOCAL = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"


@pytest.fixture
def engine(switch: FakeSwitch) -> Engine:
    made = Engine(switch)
    made.round(BEFORE, now_s=0.0)
    switch.applied.clear()
    return made


def test_a_change_is_made_when_its_time_has_come_and_not_before(switch: FakeSwitch, engine: Engine) -> None:
    seen = list[tuple[int, int]]()

    def look() -> None:
        seen.append((len(switch.held), len(switch.applied)))

    appointment = Soon(look, look)
    change = engine.round(AFTER, now_s=1.0, appointment=appointment)
    assert (seen, len(switch.applied)) == ([(1, 0), (1, 0)], 1)
    assert not change.difference.is_empty
    assert engine.round(AFTER, now_s=2.0).difference.is_empty
    # A time that has passed and a change without flows are not prepared.
    engine.round(AFTER, now_s=3.0, appointment=Soon(nothing, nothing))
    engine.round(BEFORE, now_s=3.0, appointment=Appointment(0.0))
    assert (len(switch.held), len(switch.applied)) == (1, 2)


def test_a_bridge_that_is_recreated_meanwhile_is_planned_for_again(switch: FakeSwitch, engine: Engine) -> None:
    with pytest.raises(AppointmentCancelled):
        engine.round(AFTER, now_s=1.0, appointment=Soon(lambda: switch.restart("ovsbr1"), nothing))
    assert switch.applied == []
    engine.round(AFTER, now_s=2.0, appointment=Soon(nothing, nothing))
    assert engine.round(AFTER, now_s=3.0).difference.is_empty


def test_before_its_time_only_services_that_change_are_read(
    switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, read = Engine(switch), list[set[int]]()
    engine.round(DesiredState(TWO), now_s=0.0)
    changed = replace(TWO.services[0], backends=small.backends(1, 3))

    def noting(bridge: str, *, only: Cookies) -> str:
        text = FakeSwitch.dump_flow_text(switch, bridge, only=only)
        read.append({service_of(seen.flow.cookie) for seen in parse_dump(text)})
        return text

    monkeypatch.setattr(switch, "dump_flow_text", noting)
    desired = DesiredState(small.balancer(changed, TWO.services[1]))
    change = engine.round(desired, now_s=1.0, appointment=Soon(nothing, nothing))
    # Before the wait, after it, and what the change has left.
    assert (len(change.touched), read) == (1, [set(change.touched)] * 3)


@pytest.mark.parametrize("wait", [0, 1])
def test_one_that_is_cancelled_or_paused_at_the_last_changes_nothing(
    switch: FakeSwitch, engine: Engine, wait: int
) -> None:
    before, appointment = flows(switch), Soon(nothing, nothing)
    appointment.happens[wait] = appointment.cancel
    with pytest.raises(AppointmentCancelled):
        engine.round(AFTER, now_s=1.0, appointment=appointment)
    with pytest.raises(ChangesHeld):
        engine.round(AFTER, now_s=1.0, appointment=Soon(nothing, lambda: setattr(engine, "is_held", True)))
    assert flows(switch) == before


def test_a_commit_that_fails(switch: FakeSwitch, engine: Engine) -> None:
    lost = Soon(nothing, lambda: switch.fail_next(SwitchError("the connection is lost")))
    with pytest.raises(SwitchError, match="lost"):
        engine.round(AFTER, now_s=1.0, appointment=lost)
    assert switch.applied == []
    # A bundle that Open vSwitch has dropped is planned again and made at once.
    dropped = BundleRejected(bridge="ovsbr1", error="OFPBFC_TIMEOUT", message="the opening", advice="")
    change = engine.round(AFTER, now_s=1.0, appointment=Soon(nothing, lambda: switch.fail_next(dropped)))
    assert (change.difference.is_empty, len(switch.applied)) == (False, 1)
    assert engine.round(AFTER, now_s=2.0).difference.is_empty


# An agent whose view of the store has a time.

FAR_MS = 1 << 50
"""A time that no clock has yet: an agent waits for as long as it waits at most."""
VIEW = settled(given(EMPTY, SMALL_CONFIG))
PLANNED = replace(settled(given(VIEW, MORE)), switch_at_ms=FAR_MS)


@contextmanager
def preparing(scene: Scene) -> Iterator[tuple[Agent, Client, FleetConfig]]:
    """An agent that has prepared a change and waits for its time."""
    scene.config.write_text(LOCAL)
    config = FleetConfig(scene.config, VIEW, "dpu1")
    with scene.agent(config=config, resync_s=1e6) as (agent, client):
        config.offer(PLANNED)
        agent.wake()
        eventually(lambda: bool(scene.switch.held), "a change is prepared")
        yield agent, client, config


def test_an_agent_prepares_a_view_and_switches_to_it_also_after_a_reload_meanwhile(scene: Scene) -> None:
    with preparing(scene) as (agent, _, config):
        before, held = scene.flows, len(scene.switch.held)
        agent.reload()
        eventually(lambda: len(scene.switch.held) > held, "the same change is prepared again")
        eventually(lambda: config.good.view == PLANNED, "the change is committed")
        assert scene.flows != before
        eventually(lambda: agent.state.round.rounds == 2, "the round ends, the second one")


def test_a_pause_does_not_wait_for_a_prepared_change_and_an_agent_that_stops_leaves_the_flows(scene: Scene) -> None:
    with preparing(scene):
        before = scene.flows
    assert scene.flows == before
    with preparing(scene) as (agent, client, _):
        before = scene.flows
        client.ask("pause")
        assert scene.flows == before
        eventually(lambda: bool(agent.state.round.held), "the pause holds the change back")
        client.ask("resume")
        eventually(lambda: scene.flows != before, "the change is made")


def test_a_view_that_is_for_now_does_not_wait_for_the_one_before(scene: Scene) -> None:
    with preparing(scene) as (agent, _, config):
        newest = replace(settled(given(PLANNED, SMALL_CONFIG.replace("70", "10"))), switch_at_ms=0)
        config.offer(newest)
        agent.wake()
        eventually(lambda: config.good.view == newest, "the newest view is applied")
        assert len(scene.switch.applied) == 2
