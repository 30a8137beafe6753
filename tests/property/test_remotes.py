"""Laws of tunnels of hosts and of the switch: blocks stay, packets take the path of their block, answers return."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import observed
from tests.strategies import share
from tests.switch_tunnels import LOCAL, behind_tunnels
from tests.tunnels import TUNNEL, as_unknown, placements, tunnelled, tunnelled_balancers
from xenoovs.compile.encoding import arrives
from xenoovs.compile.offloadable.cost import CostKind, check_clients
from xenoovs.compile.program import Program, compile_config, compile_onto, compile_program
from xenoovs.compile.read import with_paths
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Blocks, Decision, DesiredState, next_hops
from xenoovs.engine.change import Ends, texts_of
from xenoovs.judge.expected import expected_services
from xenoovs.judge.foreign import minimum_mask
from xenoovs.judge.simulate.walk import headers_of, tables_of, walk
from xenoovs.model.balancer import Balancer, OtherTraffic, Returns
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet
from xenoovs.model.remote import every_service, remotes_of, with_source_ports
from xenoovs.model.tunnel import MAX_TOS, PathProbe, SwitchTunnel, TunnelPorts, TunnelType
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import render_flow

laws = share(0.25)


_CLASS_SELECTORS = {8 * n for n in range(8)}
_ASSURED_FORWARDING = {8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)}
_LE, _VOICE_ADMIT, _NQB, _EF = 1, 44, 45, 46
ASSIGNED_DSCPS = _CLASS_SELECTORS | _ASSURED_FORWARDING | {_LE, _VOICE_ADMIT, _NQB, _EF}
"""RFC 2474, 2597, 3246, 5865 and 8622, and draft-ietf-tsvwg-nqb."""


@pytest.mark.parametrize("tos", range(0, MAX_TOS + 1, 4))
def test_four_ways_back_differ_in_both_values_and_take_no_assigned_dscp(tos: int) -> None:
    ways = PathProbe("xoar0", tos=tos).ways_back
    assert [*ways.values()] == [4788, 4787, 4786, 4785]
    first, *others = ways
    assert first == tos
    assert all(0 < other <= MAX_TOS and other % 4 == 0 and other >> 2 not in ASSIGNED_DSCPS for other in others)


def test_the_default_ways_back_are_those_of_the_docs() -> None:
    assert [*PathProbe("xoar0").ways_back] == [0x20, 0x24, 0x2C, 0x34]


Case = tuple[Balancer, Program, dict[str, Blocks]]


@st.composite
def programs(draw: st.DrawFn) -> Case:
    """Tunnels whose mover has placed the blocks of some remotes."""
    balancer = draw(tunnelled_balancers())
    placed = {s.name: draw(placements(s)) for _, _, s in remotes_of(balancer) if draw(st.booleans())}
    decision = decide(Decision(), DesiredState(balancer, placed=placed))
    return balancer, compile_program(balancer, decision), placed


@laws
@given(programs())
def test_the_blocks_that_the_mover_has_placed_are_active(case: Case) -> None:
    _, program, placed = case
    active = {made.service.name: made.decision.active for made in program.services}
    assert placed == {name: active[name] for name in placed}


@laws
@given(programs())
def test_after_a_restart_nothing_moves_also_where_source_ports_were_found(case: Case) -> None:
    balancer, program, _ = case
    seen = observed(program.flows)
    assert compile_onto(balancer, seen).decision == program.decision
    # The config leaves out the ports; that the agent then requests ICMP is the only difference.
    unknown = as_unknown(balancer)
    found = with_paths(unknown, seen)
    assert [s.backends for s in every_service(found)] == [s.backends for s in every_service(balancer)]
    assert compile_onto(unknown, seen).decision == program.decision


def test_a_path_keeps_its_name_over_a_restart_beside_one_whose_port_is_not_known() -> None:
    """Names of paths were renumbered, so a pin to p3 meant the port of p4."""
    balancer = as_unknown(tunnelled())
    ports = (50_001, 0, 50_003, 50_004)
    known = with_source_ports(balancer, {("rack7", "b"): ports})
    seen = observed(compile_program(known, decide(Decision(), DesiredState(known))).flows)
    assert dict(with_paths(balancer, seen).source_ports) == {("rack7", "b"): ports}


@laws
@given(programs(), st.data())
def test_a_packet_of_the_host_takes_the_path_of_its_block(case: Case, data: st.DataObject) -> None:
    balancer, program, _ = case
    tables = tables_of(program.flows)
    for tunnel, remote, service in remotes_of(balancer):
        source_port = data.draw(st.integers(0, 65_535))
        packet = Packet(tunnel.host_port, tunnel.local, remote.address, 17, source_port, tunnel.dst_port)
        (copy,) = walk(tables, packet).copies
        decided = dict(program.decision.services)
        made = next(made for made in program.services if made.service.name == service.name)
        rows = decided[made.service_id].active.rows
        owner = next(owner for block, owner in rows if block.contains(source_port))
        sent, original = copy.headers.get, headers_of(packet).get
        assert arrives(next_hops(service)[owner], port=copy.port, sent=sent, original=original)


@laws
@given(tunnelled_balancers())
def test_a_config_expresses_every_tunnel(balancer: Balancer) -> None:
    alone = replace(balancer, services=())
    assert parse_config(render_config(alone), file="c.yaml") == alone


@laws
@given(programs(), st.data())
def test_blocks_of_a_path_that_is_gone_move_and_no_others(case: Case, data: st.DataObject) -> None:
    balancer, program, _ = case
    for made in (made for made in program.services if made.service.is_remote):
        names = [backend.name for backend in made.service.backends]
        gone = frozenset(data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1)))
        desired = DesiredState(balancer, ejected={made.service.name: gone})
        after = dict(decide(program.decision, desired).services)[made.service_id].active
        assert not after.owners & gone
        if made.decision.active.owners <= gone:
            continue
        for block, owner in made.decision.active.rows:
            now = {name for _, _, name in after.within([block])}
            assert owner in gone or now == {owner}


def test_the_packets_of_another_host_are_no_packets_of_the_remote() -> None:
    """A tunnel is a tunnel of the host behind its port; other UDP for the same address is other traffic."""
    program = compile_program(tunnelled(), decide(Decision(), DesiredState(tunnelled())))
    packet = Packet("p0", IPv4Address("192.0.2.1"), TUNNEL.remotes[0].address, 17, 50_000, 4789)
    (copy,) = walk(tables_of(program.flows), packet).copies
    assert copy.port == "pf0hpf"


@pytest.mark.parametrize("ports", TunnelPorts)
def test_flows_to_a_remote_without_encryption_are_left_out_and_no_others(ports: TunnelPorts) -> None:
    balancer = behind_tunnels(SwitchTunnel("gnv0", TunnelType.GENEVE, LOCAL, 5001, ports, 6081))
    program, far = compile_config(balancer), balancer.remote_ends[0]

    def texts(unsent: Ends) -> set[str]:
        return {text for each in texts_of(program, without=frozenset(), unsent=unsent).values() for text in each}

    gone = texts(Ends()) - texts(Ends({(far.port, far.remote)}))
    assert texts(Ends({(far.port, far.remote)})) == texts(Ends()) - gone
    assert gone
    assert all("table=1" in text and str(far.mac) in text for text in gone)
    assert not any(str(far.mac) in text for text in texts(Ends({(far.port, far.remote)})))


def _from_tunnels(balancer: Balancer) -> list[str]:
    flows = compile_config(balancer).flows
    return sorted(render_flow(flow).partition("priority=")[2] for flow in flows if "gnv0" in str(flow.match.in_port))


@pytest.mark.parametrize("policy", OtherTraffic)
def test_no_policy_for_other_traffic_is_for_tunnels(policy: OtherTraffic) -> None:
    balancer = behind_tunnels(returns=Returns.DIRECT)
    uplinks = replace(balancer.uplinks, other_traffic=policy)
    expected = [] if policy is OtherTraffic.LEAVE else ["1,in_port=gnv0 actions=drop"]
    assert _from_tunnels(replace(balancer, uplinks=uplinks)) == expected


def test_services_that_share_a_vip_share_the_flows_of_its_answers() -> None:
    one = behind_tunnels()
    other = replace(one.services[0], name="dns")
    assert _from_tunnels(replace(one, services=(*one.services, other))) == _from_tunnels(one)


def test_ecn_multiplies_the_entries_of_blocks_behind_tunnels() -> None:
    (finding,) = check_clients(compile_config(behind_tunnels()))
    assert (finding.cost, finding.entries) == (CostKind.ECN, 8)
    assert finding.text.startswith("2 entries, or up to 8 if packets use ECN")


def test_the_copies_of_a_block_for_ecn_are_no_wider_than_planned() -> None:
    block = expected_services(compile_config(behind_tunnels()))[0].blocks[0]
    assert minimum_mask(Match(), block)["nw_tos"] == 3
