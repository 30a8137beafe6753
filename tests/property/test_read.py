"""The reader of flows against counting every address, and against an independent one, `settled_blocks`.

Text, wire and reader give back the flows of every kind of program, of which no two have one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import observed
from tests.openflow_replies import flows_reply
from tests.property import test_failover_laws as failover
from tests.property import test_nat as nat
from tests.property import test_remotes as remotes
from tests.property.decisions import OFPORTS, decided
from tests.strategies import NESTED, balancers
from tests.switch_tunnels import moved_behind_tunnels
from tests.unit import balancer as small
from xenoovs.compile.encoding import block_of, hop_of, key_bits
from xenoovs.compile.pipeline import TO_DRAIN, Stage
from xenoovs.compile.program import Program, compile_config, compile_program
from xenoovs.compile.read import read, stage_number
from xenoovs.decision.decision import Blocks, Space, next_hops, split
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer, BlockKey, OtherTraffic, Uplinks, service_ids
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import (
    ETH_IPV4,
    ETH_IPV6,
    Failover,
    Field,
    Flow,
    FlowKey,
    Masked,
    Output,
    SetField,
    exact,
    match_of,
)
from xenoovs.openflow.text import parse_flow, render_flow
from xenoovs.openflow.wire.message import decode_flows
from xenoovs.partition.block import MAX_WIDTH, Block, select

SERVICE = small.service(small.claim())
BALANCER = Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.LEAVE), (SERVICE,))
(SERVICE_ID,) = service_ids([SERVICE.claim]).values()
BITS = 7
UNITS = range(1 << BITS)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """Overlapping rules of any masks, no two of one priority; owner 0 is a drop."""
    masks = st.integers(0, (1 << BITS) - 1)
    drawn = draw(st.lists(st.tuples(masks, masks, st.integers(0, 3)), max_size=12))
    return tuple(rule(value & mask, mask, owner, priority) for priority, (value, mask, owner) in enumerate(drawn))


@st.composite
def nested_rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """As those of a service: masks of low bits, longest or shortest first, holes left."""
    sign = draw(st.sampled_from((1, -1)))
    blocks = st.integers(0, BITS).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, (1 << d) - 1)))
    drawn = draw(st.lists(st.tuples(blocks, st.integers(1, 3)), max_size=12, unique_by=lambda r: r[0]))
    return tuple(rule(value, (1 << depth) - 1, owner, 1000 + sign * depth) for (depth, value), owner in drawn)


def rule(value: int, mask: int, owner: int, priority: int) -> Flow:
    match = match_of((exact(Field.DL_TYPE, ETH_IPV4), Masked(Field.NW_SRC, value, mask)))
    actions = (SetField(Field.DL_DST, owner), Output("p1")) if owner else ()
    return Flow(FlowKey(1, priority, match), 0, actions)


def owners(flows: Sequence[Flow]) -> list[int | None]:
    """For each unit the MAC of its rule of highest priority; None: dropped or no rule."""
    found: list[int | None] = [None] * len(UNITS)
    for flow in sorted(flows, key=lambda flow: flow.priority):
        source = flow.match.get(Field.NW_SRC)
        setting = flow.actions[0] if flow.actions else None
        for unit in UNITS:
            if source is None or unit & source.mask == source.value:
                found[unit] = setting.value if isinstance(setting, SetField) else None
    return found


def is_block(flow: Flow, key: BlockKey) -> bool:
    try:
        block_of(*key_bits(flow), key)
    except ValueError:
        return False
    return True


@given(rules() | nested_rules())
def test_rules_in_any_order_give_the_owner_of_each_address(flows: tuple[Flow, ...]) -> None:
    """Rules that are no blocks of the key are passed over; where most are blocks of another key, that is the key."""
    cookie = 0x786F_0101 << 32 | SERVICE_ID
    decision, _ = read(observed(replace(flow, cookie=cookie) for flow in flows), BALANCER)
    found = dict(decision.services).get(SERVICE_ID)
    assert (found is None) == (not flows)
    key, active = (SERVICE.key, Blocks()) if found is None else (found.key, found.active)
    blocks = [flow for flow in flows if is_block(flow, key)]
    assert len(blocks) >= sum(is_block(flow, SERVICE.key) for flow in flows)
    width = min(BITS, key.max_width)
    units = [Block(select(unit, key.positions, width), width) for unit in UNITS]
    wanted = [None if mac is None else str(Direct(Mac(mac), "p1")) for mac in owners(blocks)]
    assert [held for _, _, held in active.within(units)] == wanted


def settled_blocks(flows: Sequence[Flow], service_id: int, family: int) -> Iterator[Flow]:
    """The flows of one IP version that balance. Blocks in a drain: as they will be; without a stored home nowhere."""
    of_service = [flow for flow in flows if flow.cookie & 0xFFFFFFFF == service_id]
    later = {flow.match: flow.actions for flow in of_service if stage_number(flow) == Stage.DRAIN_TARGET.value}
    for flow in of_service:
        if stage_number(flow) == Stage.BALANCE.value and flow.match.get(Field.DL_TYPE) == exact(Field.DL_TYPE, family):
            is_pinned = flow.actions == TO_DRAIN
            yield replace(flow, actions=later.get(flow.match, ())) if is_pinned else flow


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Balancer, list[Flow]]:
    """The flows of any decision, in another order, some of them deleted."""
    balancer = draw(balancers(most=2, vips=NESTED).filter(lambda balancer: balancer.services))
    program = compile_program(balancer, *draw(decided(balancer)), ofports=OFPORTS)
    flows = draw(st.permutations(program.flows))
    gone = draw(st.sets(st.integers(0, len(flows)), max_size=6))
    # The home flow of a block of either IP version counts for both; the independent reader ignores this.
    return balancer, [
        f for number, f in enumerate(flows) if number not in gone or stage_number(f) == Stage.DRAIN_TARGET.value
    ]


@given(damaged())
def test_both_readers_agree_on_a_damaged_table(case: tuple[Balancer, list[Flow]]) -> None:
    """Where one IP version has lost flows, those of the other give the owners of the clients, in any order."""
    balancer, flows = case
    decision, transition = read(observed(flows), balancer)
    assert read(observed(reversed(flows)), balancer) == (decision, transition)
    ids = service_ids(service.claim for service in balancer.services)
    for service in balancer.services:
        found, hops = dict(decision.services).get(ids[service.claim]), next_hops(service)
        active = Blocks() if found is None else found.active
        rows = list[tuple[Block, str]]()
        for family in (ETH_IPV6, ETH_IPV4):
            settled = settled_blocks(flows, ids[service.claim], family)
            rows += (own := [(block_of(*key_bits(flow), service.key), str(hop_of(flow.actions))) for flow in settled])
            assert Space(MAX_WIDTH, own), "no two overlap"
        assert active.renamed({name: str(hop) for name, hop in hops.items()}) == Blocks.of(rows)


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Balancer, list[Flow]]:
    """Flows of two decisions in one table, as after another program has restored earlier flows."""
    balancer = draw(balancers(most=1).filter(lambda balancer: balancer.services))
    both = [compile_program(balancer, *draw(decided(balancer)), ofports=OFPORTS).flows for _ in range(2)]
    return balancer, list({flow.key: flow for flows in both for flow in flows}.values())


@given(mixed() | damaged())
def test_moves_never_overlap_and_each_has_a_new_owner(case: tuple[Balancer, list[Flow]]) -> None:
    """A drain of overlapping moves would raise in every round."""
    balancer, flows = case
    decision, transition = read(observed(flows), balancer)
    for service_id, moves in transition.services:
        found = dict(decision.services).get(service_id)
        assert found is not None
        cut = list(split(found.active, moves))
        assert {move for _, _, move in cut} - {None} == set(moves)
        assert Blocks.of((block, owner) for block, owner, _ in cut) == found.active


Case = tuple[Balancer, Program]


def of(drawn: st.SearchStrategy[Balancer]) -> st.SearchStrategy[Case]:
    return drawn.map(lambda balancer: (balancer, compile_config(balancer)))


CASES: dict[str, st.SearchStrategy[Case]] = {
    "services": of(balancers()),
    "prefixes": of(balancers(vips=NESTED)),
    "NAT": of(nat.balancers()),
    "tunnels of the switch": of(balancers(most=2).flatmap(moved_behind_tunnels)),
    "tunnels of hosts": remotes.programs().map(lambda case: case[:2]),
    "groups": failover.moments().map(lambda case: (case[0].balancer, failover.compiled(*case[:2]))),
}
_A_MESSAGE = 100
"""Flows. A message has room for 64 KiB."""


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
@given(data=st.data())
def test_flows_are_read_back(cases: st.SearchStrategy[Case], data: st.DataObject) -> None:
    balancer, program = data.draw(cases)
    flows, seen = list(program.flows), observed(program.flows)
    assert len({flow.key for flow in flows}) == len(flows)
    assert read(seen, balancer)[0] == program.decision
    assert [parse_flow(render_flow(flow)) for flow in flows] == flows
    if any(isinstance(action, Failover) for flow in flows for action in flow.actions):
        return  # Groups have messages of their own.
    numbers = {name: number for number, name in enumerate(balancer.ports, start=1)}
    names = {number: name for name, number in numbers.items()}
    parts = (flows_reply(seen[start : start + _A_MESSAGE], numbers) for start in range(0, len(seen), _A_MESSAGE))
    assert [one.flow for part in parts for one in decode_flows(part, names)] == flows
