"""Decisions read from flows: whole tables, damaged ones, and flows that are no blocks."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.compiled import compiled, decided, draining, observed
from tests.unit import balancer as small
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Program
from xenoovs.compile.read import learns, read, stage_number
from xenoovs.decision.advance import Progress
from xenoovs.decision.decision import BlockMove, Blocks, Decision, Phase, ServiceDecision, Transition
from xenoovs.model.balancer import Balancer, Drain, DrainMode, Protocol, Service
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow
from xenoovs.partition.block import Block

B1 = "00:00:00:00:00:01@p1"
"""A backend of a service that no config describes."""

ALL, EVEN_HALF, ODD_HALF = Block(0, 0), Block(0, 1), Block(1, 1)


def block(source: str, mac: int, *, priority: int = 999, family: str = "ip", stage: int = 1) -> Flow:
    field = "nw_src" if family == "ip" else "ipv6_src"
    conditions = f"priority={priority},{family},reg0=0x1" + (f",{field}={source}" if source else "")
    actions = f"mod_dl_dst:00:00:00:00:00:0{mac},output:p1" if mac else "drop"
    return parse_flow(f"cookie={0x786F_0100_0000_0001 | stage << 32:#x}, table={stage}, {conditions} actions={actions}")


EVEN, ODD = block("0.0.0.0/0.0.0.1", 1), block("0.0.0.1/0.0.0.1", 2)


def decision(*flows: Flow) -> ServiceDecision:
    """Return the decision in the flows of a service that no config describes."""
    return decided(flows, small.balancer())[1]


def test_a_rule_of_more_bits_than_a_block_has_is_passed_over() -> None:
    one = block("2001:db8::1/128", 2, priority=1128, family="ipv6")
    found = decision(block("", 1, priority=1000, family="ipv6"), one)
    assert (found.active, found.key.field) == (Blocks.of([(ALL, B1)]), KeyField.SOURCE_ADDRESS)


def test_of_two_ip_versions_that_differ_ipv4_stands_for_both() -> None:
    both = EVEN, ODD, block("::/::1", 2, family="ipv6"), block("::1/::1", 1, family="ipv6")
    assert decision(*both) == decision(EVEN, ODD)


TWO = small.service(small.claim(IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")), 1, 1)
TWO_HALVES = Blocks.of([(EVEN_HALF, "b0"), (ODD_HALF, "b1")])


def of_config(flows: list[Flow] | tuple[Flow, ...], service: Service = TWO) -> ServiceDecision | None:
    made = small.balancer(service)
    (service_id,) = (each.service_id for each in compiled(made).services)
    return decided(flows, made).get(service_id)


def test_blocks_of_an_earlier_key_are_read_by_that_key() -> None:
    """A plan reports how many clients a change of the key moves."""
    other = compiled(small.balancer(replace(TWO, key=BlockKey(positions=(7, 8))))).flows
    assert of_config(other) == ServiceDecision(BlockKey(positions=(7,)), TWO_HALVES, TWO_HALVES)


@pytest.mark.parametrize(("was", "now"), [tuple(KeyField), tuple(KeyField)[::-1]])
def test_blocks_of_another_field_are_read_by_that_field(was: KeyField, now: KeyField) -> None:
    udp = replace(TWO, claim=replace(TWO.claim, protocol=Protocol.UDP))
    flows = compiled(small.balancer(replace(udp, key=BlockKey(was)))).flows
    found = of_config(flows, replace(udp, key=BlockKey(now)))
    assert found == ServiceDecision(BlockKey(was, (0,)), TWO_HALVES, TWO_HALVES)


DRAINED = replace(small.service(small.claim(), 1, 1), drain=Drain(DrainMode.PIN))


def of_drain() -> tuple[Balancer, Program]:
    """All clients move to b0; b1 had the odd half, and keeps its open connections."""
    before = compiled(small.balancer(DRAINED))
    after = small.balancer(replace(DRAINED, backends=small.backends(1, 0)))
    ports = {"p0": 1, "p1": 2}
    return after, draining(after, observed(before.flows), Progress(0.0, ports), ofports=ports)


def without(program: Program, *stages: Stage, learning: bool = False) -> list[Flow]:
    numbers = {stage.value for stage in stages}
    return [flow for flow in program.flows if stage_number(flow) not in numbers and not (learning and learns(flow))]


def moves_of(flows: list[Flow] | tuple[Flow, ...]) -> list[BlockMove]:
    balancer, _ = of_drain()
    _, transition = read(observed(flows, age_s=20.0), balancer, now_s=100.0)
    return [move for _, moves in transition.services for move in moves]


def test_without_its_home_flow_a_block_has_no_owner() -> None:
    balancer, program = of_drain()
    flows = without(program, Stage.DRAIN_TARGET)
    assert [found.active for found in decided(flows, balancer).values()] == [Blocks.of([(EVEN_HALF, "b0")])]
    assert moves_of(flows) == []


def test_without_the_flows_of_open_connections_no_backend_keeps_them() -> None:
    assert moves_of(without(of_drain()[1], Stage.DRAIN)) == []


def test_without_the_flow_of_new_connections_a_block_settles_once_more() -> None:
    assert moves_of(without(of_drain()[1], learning=True)) == [BlockMove(ODD_HALF, "b1", 80.0, Phase.SETTLING)]


def test_a_block_of_a_service_that_learns_nothing_is_open() -> None:
    udp = replace(DRAINED, claim=replace(DRAINED.claim, protocol=Protocol.UDP))
    before, after = compiled(small.balancer(udp)), small.balancer(replace(udp, backends=small.backends(1, 0)))
    ports = {"p0": 1, "p1": 2}
    program = draining(after, observed(before.flows), Progress(0.0, ports), ofports=ports)
    _, transition = read(observed(program.flows), after, now_s=100.0)
    assert [move.phase for _, moves in transition.services for move in moves] == [Phase.OPEN]


LEARNED = "table=2, priority=400,ip actions=mod_dl_dst:00:00:00:00:00:01,output:p1"


@pytest.mark.parametrize(
    "text",
    [
        "cookie=0x786f010000000001, priority=9,ip actions=resubmit(,1)",
        f"cookie=0x786f010600000001, {LEARNED}",
        f"cookie=0x786f010700000001, {LEARNED}",
        f"cookie=0x786f010100000000, {LEARNED}",
        "cookie=0x1, table=1, priority=1009,ip actions=drop",
    ],
    ids=["it finds packets", "it is learned", "a stage that is not there", "no service", "of others"],
)
def test_flows_that_are_no_blocks_of_a_service_are_no_decision(text: str) -> None:
    assert read(observed([parse_flow(text)]), small.balancer()) == (Decision(), Transition())
