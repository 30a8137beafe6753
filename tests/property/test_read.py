"""Flows of any kind say what packets meet: against counting every address, and against another reading."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import observed
from tests.flow_oracle import blocks_by_service, pieces
from tests.property.decisions import OFPORTS, decided
from tests.property.rules import BITS, UNITS, nested_rules, owners, rules
from tests.strategies import balancers
from tests.unit import balancer as small
from xenoovs.compile.key import block_of, key_bits
from xenoovs.compile.program import compile_program
from xenoovs.compile.read import read
from xenoovs.decision.blocks import Blocks
from xenoovs.decision.owners import next_hop_of, next_hops
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer, OtherTraffic, Uplinks
from xenoovs.model.block_key import BlockKey
from xenoovs.model.ids import service_ids
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Flow
from xenoovs.partition.bits import select
from xenoovs.partition.block import Block

SERVICE = small.service(small.claim())
BALANCER = Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.LEAVE), (SERVICE,))
(SERVICE_ID,) = service_ids([SERVICE.claim]).values()


def is_block(flow: Flow, key: BlockKey) -> bool:
    try:
        block_of(*key_bits(flow), key)
    except ValueError:
        return False
    return True


@given(rules() | nested_rules())
def test_rules_of_any_order_say_where_each_address_goes(flows: tuple[Flow, ...]) -> None:
    """Rules that are no blocks of the key are passed over; where most are blocks of another key, that is the key."""
    cookie = 0x786F_0101 << 32 | SERVICE_ID
    decision, _ = read(observed(replace(flow, cookie=cookie) for flow in flows), BALANCER)
    found = decision.service(SERVICE_ID)
    assert (found is None) == (not flows)
    key, active = (SERVICE.key, Blocks()) if found is None else (found.key, found.active)
    blocks = [flow for flow in flows if is_block(flow, key)]
    assert len(blocks) >= sum(is_block(flow, SERVICE.key) for flow in flows)
    width = min(BITS, key.max_width)
    units = [Block(select(unit, key.positions, width), width) for unit in UNITS]
    wanted = [None if mac is None else str(Direct(Mac(mac), "p1")) for mac in owners(blocks)]
    assert [held for _, _, held in active.within(units)] == wanted


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Balancer, list[Flow]]:
    """The flows of any decision, in another order, some of them deleted."""
    balancer = draw(balancers(most=2).filter(lambda balancer: balancer.services))
    program = compile_program(balancer, *draw(decided(balancer)), ofports=OFPORTS)
    flows = draw(st.permutations(program.flows))
    gone = draw(st.sets(st.integers(0, len(flows)), max_size=6))
    return balancer, [flow for number, flow in enumerate(flows) if number not in gone]


@given(damaged())
def test_a_damaged_table_says_what_another_reading_says(case: tuple[Balancer, list[Flow]]) -> None:
    balancer, flows = case
    decision, _ = read(observed(flows), balancer)
    ids = service_ids(service.claim for service in balancer.services)
    blocks = blocks_by_service(flows)
    for service in balancer.services:
        found, hops = decision.service(ids[service.claim]), next_hops(service)
        active = Blocks() if found is None else found.active
        parts = {block_of(p.value, p.mask, service.key): p.hop for p in pieces(blocks.get(ids[service.claim], []))}
        for whole, _, name in active.within(parts):
            assert (None if name is None else next_hop_of(name, hops)) == parts[whole]
        covered = Blocks.of((block, "some") for block, hop in parts.items() if hop is not None)
        assert sum(covered.shares().values()) == sum(active.shares().values())


@given(damaged())
def test_flows_say_the_same_in_any_order(case: tuple[Balancer, list[Flow]]) -> None:
    balancer, flows = case
    assert read(observed(flows), balancer) == read(observed(reversed(flows)), balancer)
