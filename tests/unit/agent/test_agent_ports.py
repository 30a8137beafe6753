"""Rounds while the database does not answer: its last answer holds as long as the bridge is the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.agent_support import make_scene
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.flow_oracle import blocks_by_service, pieces, shares
from tests.switch_tunnels import GENEVE, REMOTES, behind_tunnels
from tests.unit import balancer as small
from xenoovs.agent import report
from xenoovs.agent.state import RoundFacts
from xenoovs.datapath.database import UNKNOWN_TYPE, BridgeState, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ipsec import IpsecState, parse_policies
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import SwitchUnreachable, WouldBeUnencrypted
from xenoovs.model.balancer import Balancer, Drain, DrainMode
from xenoovs.model.load import load_config
from xenoovs.model.tunnel import Ipsec, TunnelPorts

ONE = small.balancer(small.service(small.claim(), 3, 1))
PINNING = replace(ONE, services=tuple(replace(s, drain=Drain(DrainMode.PIN)) for s in ONE.services))
SECOND = ONE.services[0].backends[1].next_hop
FIRST_OUT = {"s": frozenset({"b0"})}
RAMPED = SMALL_CONFIG.replace("    backends:", "    health: {probe: icmp, ramp: 600s}\n    backends:").replace(
    "weight: ", "address: 192.0.2.2, weight: "
)


class HalfSilent(FakeSwitch):
    """Its database does not answer while `is_silent`."""

    is_silent = False

    def bridges(self) -> tuple[BridgeState, ...]:
        self._answer()
        return super().bridges()

    def describe(self, bridge: str) -> BridgeState:
        self._answer()
        return super().describe(bridge)

    def _answer(self) -> None:
        if self.is_silent:
            raise SwitchUnreachable(target="unix:db.sock", reason="it does not answer")


@pytest.fixture
def switch() -> HalfSilent:
    return HalfSilent(fake_bridge("ovsbr1", ["p0", "p1"]))


@pytest.mark.parametrize("balancer", [ONE, PINNING], ids=["none", "pin"])
def test_clients_of_a_dead_backend_move_without_the_database(switch: HalfSilent, balancer: Balancer) -> None:
    engine = Engine(switch)
    engine.round(DesiredState(balancer), now_s=0.0)
    switch.is_silent = True
    assert not engine.round(DesiredState(balancer, FIRST_OUT), now_s=1.0).difference.is_empty
    blocks = blocks_by_service(seen.flow for seen in switch.dump_flows("ovsbr1"))
    assert [set(shares(pieces(flows))) for flows in blocks.values()] == [{SECOND}]
    # Nothing is known about the ports of a bridge that was made anew.
    switch.restart("ovsbr1")
    with pytest.raises(SwitchUnreachable):
        engine.round(DesiredState(balancer), now_s=2.0)


def test_an_agent_that_starts_without_a_database_continues_slow_starts(tmp_path: Path) -> None:
    """The slow start in the flows was not read later, so the backend got all clients back at once."""
    scene = make_scene(tmp_path)
    scene.config.write_text(RAMPED.replace("192.0.2.2, weight: 30", "192.0.2.3, weight: 30"))
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


def _tunnel_bridge(kind: str, **options: str) -> BridgeState:
    ports = (PortState("gnv0", 3, kind, options=options), *fake_bridge("ovsbr1", ["p0", "p1"]).ports)
    return replace(fake_bridge("ovsbr1", []), ports=tuple(sorted(ports, key=lambda port: port.name)))


@pytest.mark.parametrize(
    ("bridge", "balancer", "problem"),
    [
        (fake_bridge("ovsbr1", ["p0"]), ONE, "port p1 is on no bridge (ovsbr1 has p0); no clients for s/b0, s/b1"),
        (
            fake_bridge("ovsbr1", ["p0", "p1"]),
            behind_tunnels(),
            "port gnv0 is on no bridge (ovsbr1 has p0, p1): `xenoovs doctor FILE --fix` makes it; no clients for "
            "web/b1, web/b2",
        ),
        # It was accepted as a port that only OpenFlow describes.
        (_tunnel_bridge("system"), behind_tunnels(), "port gnv0 is of type system, not geneve"),
    ],
    ids=["a port that is gone", "a tunnel port that is gone", "a tunnel port without a type"],
)
def test_bug_a_port_that_no_packets_can_leave_by_is_named(
    bridge: BridgeState, balancer: Balancer, problem: str
) -> None:
    done = Engine(FakeSwitch(bridge)).round(DesiredState(balancer), now_s=0.0)
    (found,) = (each.text for each in done.problems)
    assert problem in (found, found.partition(":")[0])


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_bug_a_tunnel_that_leads_elsewhere_was_not_noticed_once_a_round_had_changed_nothing(rounds: int) -> None:
    options = {"local_ip": "192.168.77.1", "remote_ip": "flow", "key": "flow"}
    switch, desired = FakeSwitch(_tunnel_bridge("geneve", **options)), DesiredState(behind_tunnels())
    engine = Engine(switch)
    for _ in range(rounds):
        assert engine.round(desired, now_s=0.0).problems == ()
    switch.set_ports(_tunnel_bridge("geneve", **options, out_key="7"))
    done = engine.round(desired, now_s=0.0)
    assert [problem.text.partition(":")[0] for problem in done.problems] == ["port gnv0 has out_key=7 instead of flow"]
    assert not done.difference.is_empty


ENCRYPTED = replace(GENEVE, ports=TunnelPorts.EACH, ipsec=Ipsec(psk_file="/etc/psk"))
POLICY = """\
src 192.168.77.1/32 dst {remote}/32 proto udp dport 6081
\tdir out priority 366847 ptype main
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 2 mode transport
"""
BOTH = IpsecState(parse_policies("".join(POLICY.format(remote=remote) for remote in REMOTES)))
FIRST = IpsecState(parse_policies(POLICY.format(remote=REMOTES[0])))


def _encrypted(datapath_type: str = "system") -> tuple[FakeSwitch, Engine, Balancer]:
    options = {"local_ip": "192.168.77.1", "key": "flow", "psk": "(hidden)"}
    ports = (
        PortState(ENCRYPTED.port_to(remote), 3 + n, "geneve", options={**options, "remote_ip": str(remote)})
        for n, remote in enumerate(REMOTES)
    )
    bridge = replace(fake_bridge("ovsbr1", ["p0", "p1"]), datapath_type=datapath_type)
    switch = FakeSwitch(replace(bridge, ports=tuple(sorted((*bridge.ports, *ports), key=lambda port: port.name))))
    return switch, Engine(switch), behind_tunnels(ENCRYPTED)


UNENCRYPTED = "packets to 192.168.77.1{} would leave unencrypted: the config wants IPsec, and {}; see `xenoovs doctor`"
NO_POLICY, BYPASS = "no policy covers them", "a userspace datapath bypasses it"


def unencrypted(why: str, *numbers: int) -> list[str]:
    return [f"{UNENCRYPTED.format(number, why)}; no clients for web/b{number}" for number in numbers]


@pytest.mark.parametrize(
    ("datapath", "rounds"),
    [
        ("system", [(IpsecState(), (1, 2)), (BOTH, ()), (FIRST, (2,)), (BOTH, ())]),
        # It was planned if a policy existed, although none of these packets reach the kernel's IPsec.
        ("netdev", [(BOTH, (1, 2))]),
    ],
    ids=["a policy that vanished, with the key or with the daemon", "a userspace datapath"],
)
def test_bug_backends_behind_a_tunnel_that_does_not_encrypt_got_clients(
    datapath: str, rounds: list[tuple[IpsecState, tuple[int, ...]]]
) -> None:
    switch, engine, balancer = _encrypted(datapath)
    for switch.ipsec, numbers in rounds:
        done = engine.round(DesiredState(balancer), now_s=0.0)
        why = NO_POLICY if datapath == "system" else BYPASS
        assert [problem.text for problem in done.problems] == unencrypted(why, *numbers)
    if datapath == "netdev":
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
def test_bug_what_cannot_be_checked_was_not_reported_or_in_each_round(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A controller on another host did not report which ports it cannot check."""
    reported = list[object]()
    monkeypatch.setattr(
        report, "warn", lambda event, **facts: reported.append((event, facts.get("ports", facts.get("reason"))))
    )
    switch, engine, balancer = _encrypted()
    switch.ipsec, expected = Unknown("no ip here"), ("policies of IPsec cannot be read", "no ip here")
    if what.startswith("ports"):
        engine, balancer = Engine(FakeSwitch(_tunnel_bridge(UNKNOWN_TYPE))), behind_tunnels()
        expected = ("tunnel ports cannot be checked without the database", "gnv0")
    reports = report.Report()
    for ejected in ({}, {}, {"web": frozenset({"b1"})}):
        done = engine.round(DesiredState(balancer, ejected), now_s=0.0)
        reports.succeeded(RoundFacts(), done, bridge="ovsbr1", config="x", now_s=0.0)
    assert (done.problems, reported) == ((), [expected])
