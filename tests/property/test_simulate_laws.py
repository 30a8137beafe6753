"""The megaflow model finds the flow that the tables mean, and nested rules of designs send clients as blocks do."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.predicted import predict_megaflows
from tests.property.programs import balance_flows, random_blocks, random_packets, random_program
from tests.strategies import share
from xenoovs.decision.decision import Blocks
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of
from xenoovs.judge.simulate.walk import Headers, headers_of, tables_of
from xenoovs.measure.design_flows import nested_rules
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field, Flow
from xenoovs.openflow.text import parse_flow
from xenoovs.partition.block import Block

_SEEDS = st.integers(0, 2**32)
_ETHERNET, _IPV4, _IPV6 = (Field.DL_SRC, Field.DL_DST), (Field.NW_SRC, Field.NW_DST), (Field.IPV6_SRC, Field.IPV6_DST)
_FREE = (*_ETHERNET, *_IPV4, *_IPV6, Field.TP_SRC, Field.TP_DST)


@given(_SEEDS)
@share(0.4)
def test_the_classifier_finds_a_flow_of_the_priority_that_the_tables_mean(seed: int) -> None:
    random = Random(seed)
    flows = random_program(random)
    tables, pipeline = tables_of(flows), pipeline_of(flows)
    for packet in random_packets(random, count=20):
        met, meant = pipeline.predict(packet)[1].flows, tables.run(packet).flows
        assert [(flow.table, flow.priority) for flow in met] == [(flow.table, flow.priority) for flow in meant]


@given(_SEEDS)
@share(0.4)
def test_every_packet_of_a_megaflow_has_that_megaflow(seed: int) -> None:
    random = Random(seed)
    pipeline = pipeline_of(random_program(random))
    for packet in random_packets(random, count=20):
        megaflow, outcome = pipeline.predict(packet)
        other = _vary_outside(megaflow, packet, random)
        assert pipeline.predict(other)[0].match == megaflow.match
        assert pipeline.predict(other)[1].flows == outcome.flows


def _vary_outside(megaflow: PredictedMegaflow, packet: Packet, random: Random) -> Headers:
    headers = headers_of(packet)
    masks = {masked.field: masked.mask for masked in megaflow.match}
    for field in _FREE:
        if headers.has(field):
            noise = random.getrandbits(field.width) & ~masks.get(field, 0)
            headers = headers.with_value(field, headers.get(field) ^ noise)
    return headers


@given(_SEEDS, st.integers(1, 5))
@share(0.4)
def test_disjoint_blocks_with_falling_priorities_have_one_megaflow_each(seed: int, services: int) -> None:
    random = Random(seed)
    blocks = [random_blocks(random, max_depth=8) for _ in range(services)]
    texts = [
        flow
        for identity, listed in enumerate(blocks, start=1)
        for flow in balance_flows(identity, listed, positions=random.sample(range(32), 8))
    ]
    texts += [
        f"table=0, priority=10,ip,in_port=p0,nw_dst=10.0.0.{i} actions=load:{i:#x}->NXM_NX_REG0[],resubmit(,1)"
        for i in range(1, services + 1)
    ]
    flows = [parse_flow(text) for text in texts]
    packets = [_packet(flow, service) for flow in flows for service in range(1, services + 1) if flow.table == 1]
    assert len(predict_megaflows(flows, packets)) == sum(map(len, blocks))


def _packet(flow: Flow, service: int) -> Headers:
    """A packet to a service whose source is in the block of a flow, so that all blocks see one."""
    source = flow.match.get(Field.NW_SRC)
    values = {Field.DL_TYPE: 0x0800, Field.NW_PROTO: 17, Field.NW_DST: 0x0A000000 | service}
    return Headers("p0", {**values, Field.NW_SRC: source.value if source else 0})


@given(st.lists(st.sampled_from("abc"), min_size=16, max_size=16))
def test_the_longest_rule_sends_clients_to_the_owner_of_their_block(owners: list[str]) -> None:
    blocks = Blocks.of((Block(value, 4), owner) for value, owner in enumerate(owners))
    rules = nested_rules(blocks)
    assert [_longest(rules, address) for address in range(16)] == owners
    assert len(rules) <= len(blocks.rows)


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=4))
def test_no_fewer_rules_do(owners: list[str]) -> None:
    blocks = Blocks.of((Block(value, 2), owner) for value, owner in enumerate(owners))
    assert len(nested_rules(blocks)) == _fewest()[tuple(owners)]


@cache
def _fewest() -> dict[tuple[str | None, ...], int]:
    """The least number of rules for everything that rules of depth 0 to 2 can do, by trying all."""
    nodes = [Block(value, depth) for depth in range(3) for value in range(1 << depth)]
    found: dict[tuple[str | None, ...], int] = {}
    for choice in product((None, "a", "b", "c"), repeat=len(nodes)):
        rules = tuple((block, owner) for block, owner in zip(nodes, choice, strict=True) if owner is not None)
        sends = tuple(_longest(rules, address) for address in range(4))
        found[sends] = min(len(rules), found.get(sends, len(nodes)))
    return found


def _longest(rules: tuple[tuple[Block, str], ...], address: int) -> str | None:
    matching = [(block.depth, owner) for block, owner in rules if block.contains(address)]
    return max(matching)[1] if matching else None
