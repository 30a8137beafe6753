"""Drains in flows and in counters: which flows they take, when a block is quiet, what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compiled import compiled, draining, observed
from tests.unit import balancer as small
from xenoovs.compile.drain_progress import Draining, Quiet, drains_of, leftover, old_packets
from xenoovs.compile.offloadable.cost import CostKind, check_cost
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.read import drain_ports
from xenoovs.decision.advance import Progress
from xenoovs.model.address import Mac
from xenoovs.model.balancer import AT_ONCE, Balancer, Drain, DrainMode, Failover, Protocol
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

PORTS = {"p0": 1, "p1": 2}
B1 = Direct(Mac(0x0A0000000001), "p1")
PIN = Drain(DrainMode.PIN, timeout_ms=60_000, idle_timeout_ms=10_000)


def pinning(*weights: int, drain: Drain = PIN, protocol: Protocol | None = Protocol.TCP) -> Balancer:
    return small.balancer(replace(small.service(small.claim(protocol=protocol), *weights), drain=drain))


def moving(before: Program, balancer: Balancer, *, age_s: float = 0.0) -> Program:
    """The program for a switch whose flows are that old."""
    return draining(balancer, observed(before.flows, age_s=age_s), Progress(0.0, PORTS), ofports=PORTS)


def drain(*, drain: Drain = PIN, protocol: Protocol | None = Protocol.TCP) -> Program:
    """All clients go to b0; b1 has had half of them, and keeps its open connections."""
    before = compiled(pinning(1, 1, drain=drain, protocol=protocol))
    return moving(before, pinning(1, 0, drain=drain, protocol=protocol))


def test_a_plan_leaves_new_connections_where_they_are() -> None:
    """A plan only compares and changes nothing, however old the drain is."""
    flows = drain().flows
    assert compile_onto(pinning(1, 0), observed(flows, age_s=30.0)).flows == flows
    assert drain_ports(observed(flows)) == {"p1": 2}


def test_a_block_is_quiet_when_its_old_backend_gets_no_packets() -> None:
    program = drain()

    def counted(packets: int) -> list[int]:
        return list(old_packets(program, observed(program.flows, packets=packets)).values())

    assert (counted(0), counted(5)) == ([0], [5])
    quiet = Quiet().after(old_packets(program, observed(program.flows)), asked_s=99, read_s=100)
    five = old_packets(program, observed(program.flows, packets=5))
    quiet = quiet.after(five, asked_s=104, read_s=105)
    assert not quiet.after(five, asked_s=114.9, read_s=115).blocks(program)
    (made,) = program.services
    assert quiet.after(five, asked_s=115, read_s=116).blocks(program) == {(made.service_id, made.moves[0].block)}


def test_a_block_is_not_quiet_while_no_packets_were_counted() -> None:
    """A switch that stands still may have counted packets until the moment before it answered."""
    program = drain()
    five = old_packets(program, observed(program.flows, packets=5))
    quiet = Quiet().after(five, asked_s=100, read_s=150)
    assert not quiet.after(five, asked_s=151, read_s=152).blocks(program)


def learned(mac: str, source: str = "198.51.100.3") -> Flow:
    """A connection of the block that moves."""
    (made,) = drain().services
    match = f"tcp,reg0={made.service_id:#x},nw_src={source},nw_dst=192.0.2.1,tp_src=7,tp_dst=80"
    cookie = f"cookie={0x786F_0106 << 32 | made.service_id:#x}"
    return parse_flow(f"{cookie}, table=2, priority=400,{match} actions=mod_dl_dst:{mac},output:p1")


def test_connections_to_the_new_backend_are_counted_and_others_are_packets_of_an_old_one() -> None:
    program = drain()
    to_old, to_new = learned("0a:00:00:00:00:01"), learned("0a:00:00:00:00:00", "198.51.100.5")
    assert sum(old_packets(program, observed([to_old, to_new], packets=3)).values()) == 3
    (found,) = drains_of(program, observed([*program.flows, to_old, to_new]))
    assert found.connections == 1


def test_connections_are_left_over_when_nothing_moves_or_their_backend_is_dead() -> None:
    (made,) = drain().services
    of_b0, of_b1 = learned("0a:00:00:00:00:00"), learned("0a:00:00:00:00:01")
    assert leftover(drain(), [of_b0, of_b1], {}) == ()
    assert leftover(drain(), [of_b0, of_b1], {made.service_id: frozenset({B1})}) == (of_b1,)
    assert leftover(compiled(pinning(1, 0)), [of_b0, of_b1], {}) == (of_b0, of_b1)


def test_what_a_drain_reports() -> None:
    """Connections take entries as long as these live, and those of UDP none."""
    on, udp = moving(drain(), pinning(1, 0), age_s=20.0), drain(protocol=Protocol.UDP)
    seen = observed(on.flows, age_s=20.0, packets=4)
    (found,), (longer,) = drains_of(on, seen), drains_of(on, seen, idle_s=300.0)
    assert found == Draining("s", (("b1", "b0"),), blocks=1, left_s=40.0, connections=0, entries=2)
    assert longer == replace(found, entries=60)
    (found,) = drains_of(udp, observed(udp.flows, age_s=1.0, packets=1000))
    assert found.entries == 0


@pytest.mark.parametrize(("timeout_ms", "settles_s"), [(60_000, 1.5), (1_000, 0.5)])
def test_a_drain_reports_when_new_connections_go_on(timeout_ms: int, settles_s: float) -> None:
    (found,) = drains_of(drain(drain=replace(PIN, timeout_ms=timeout_ms)), (), now_s=0.5)
    assert found.settles_s == settles_s


def test_lint_reports_what_a_drain_costs_and_that_connections_learned_in_it_have_no_group() -> None:
    def costs(given: Balancer) -> list[CostKind]:
        return [finding.cost for finding in check_cost(compiled(given))]

    pinned = pinning(1, 1, 0)
    assert costs(pinned) == [CostKind.DRAIN]
    assert costs(pinning(1, 1, protocol=Protocol.UDP)) == []
    uplinks, (service,) = replace(pinned.uplinks, failover=Failover.IN_SWITCH), pinned.services
    backends = (
        replace(each, next_hop=replace(each.next_hop, port=f"p{number}"))
        for number, each in enumerate(service.backends, 1)
    )
    own = replace(service, backends=tuple(backends))
    assert costs(Balancer(uplinks, (own,))) == [CostKind.DRAIN, CostKind.FAILOVER]
    assert costs(Balancer(uplinks, (replace(own, drain=AT_ONCE),))) == []
    assert costs(Balancer(uplinks, (replace(own, claim=replace(own.claim, protocol=Protocol.UDP)),))) == []


def test_lint_reports_a_service_whose_only_backends_with_a_weight_are_backups() -> None:
    plain = small.service(small.claim(), 1, 1)
    backup = replace(plain, backends=tuple(replace(each, is_backup=True) for each in plain.backends))
    (found,) = check_cost(compiled(small.balancer(backup)))
    assert (found.cost, "only backups have a weight" in found.text) == (CostKind.BACKUP, True)
    mixed = replace(plain, backends=(plain.backends[0], backup.backends[1]))
    (found,) = check_cost(compiled(small.balancer(mixed)))
    assert "backups without a health check" in found.text


def test_nested_rules_of_an_older_version_drain_as_blocks_do() -> None:
    before = compiled(pinning(1, 1)).flows
    balance = [flow for flow in before if flow.table == Stage.BALANCE.table]
    others = [flow for flow in before if flow.table != Stage.BALANCE.table]
    cookie = balance[0].cookie + (2 << 32)  # stage 3, table 3 (docs/adr/README.md, 15)
    nested = [replace(flow, key=replace(flow.key, table=3), cookie=cookie) for flow in balance]
    after = draining(pinning(1, 0), observed([*others, *nested]), Progress(0.0, PORTS), ofports=PORTS)
    assert [move.since_s for made in after.services for move in made.moves] == [0.0]
