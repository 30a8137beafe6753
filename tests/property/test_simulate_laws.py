"""The megaflow model finds the flow that the tables mean, and nested rules of designs send clients as blocks do."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.property.programs import random_packets, random_program
from tests.strategies import share
from xenoovs.decision.decision import Blocks
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of, predict
from xenoovs.judge.simulate.walk import Headers, headers_of, tables_of, walk
from xenoovs.measure.design_flows import nested_rules
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field
from xenoovs.partition.block import Block

_SEEDS = st.integers(0, 2**32)
_ETHERNET, _IPV4, _IPV6 = (Field.DL_SRC, Field.DL_DST), (Field.NW_SRC, Field.NW_DST), (Field.IPV6_SRC, Field.IPV6_DST)
_FREE = (*_ETHERNET, *_IPV4, *_IPV6, Field.TP_SRC, Field.TP_DST)


@given(_SEEDS)
@share(0.4)
def test_every_packet_of_a_megaflow_has_that_megaflow_and_the_flows_that_the_tables_mean(seed: int) -> None:
    random = Random(seed)
    flows = random_program(random)
    tables, pipeline = tables_of(flows), pipeline_of(flows)
    for packet in random_packets(random, count=20):
        megaflow, outcome = predict(pipeline, packet)
        met, meant = outcome.flows, walk(tables, packet).flows
        assert [(flow.table, flow.priority) for flow in met] == [(flow.table, flow.priority) for flow in meant]
        other = _vary_outside(megaflow, packet, random)
        assert predict(pipeline, other)[0].match == megaflow.match
        assert predict(pipeline, other)[1].flows == outcome.flows


def _vary_outside(megaflow: PredictedMegaflow, packet: Packet, random: Random) -> Headers:
    headers = headers_of(packet)
    masks = {masked.field: masked.mask for masked in megaflow.match}
    for field in _FREE:
        if headers.has(field):
            noise = random.getrandbits(field.width) & ~masks.get(field, 0)
            headers = headers.with_value(field, headers.get(field) ^ noise)
    return headers


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
