"""The published figures of "one rule, one megaflow": by the model and by a real ovs-vswitchd, both exact.

Blocks of 1/2, 1/4, ... 1/256, 1/256 of the address space for nine backends; every value of the low 8 bits is seen.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import Shape, install, observed_shapes, predicted_shape, send
from tests.predicted import predict_megaflows
from tests.property.programs import Block, balance_flows
from xenoovs.model.packet import Packet
from xenoovs.openflow.text import parse_flow

pytestmark = pytest.mark.ovs

NINE = [*(Block((1 << depth) - 1 >> 1, depth) for depth in range(1, 9)), Block(255, 8)]
LOW_BITS = range(8)


def short_first(identity: int, blocks: list[Block], base: int = 1000) -> list[str]:
    return balance_flows(identity, blocks, positions=LOW_BITS, base=base)


def long_first(identity: int, blocks: list[Block]) -> list[str]:
    # The same blocks with the priorities turned round.
    return [
        _reprioritised(flow, 900 + block.depth)
        for flow, block in zip(short_first(identity, blocks), blocks, strict=True)
    ]


def longest_match(identity: int) -> list[str]:
    # Nested rules: all ones of each depth, the longest mask wins.
    nested = [Block((1 << depth) - 1, depth) for depth in range(9)]
    return long_first(identity, nested)


def _reprioritised(flow: str, priority: int) -> str:
    head, _, tail = flow.partition("priority=")
    return f"{head}priority={priority}{tail[tail.index(',') :]}"


def halved(rules: int) -> list[Block]:
    """As many blocks as asked for, by halving the shallowest one again and again."""
    blocks = [Block(0, 0)]
    while len(blocks) < rules:
        block = blocks.pop(0)
        blocks += [Block(block.value | bit << block.depth, block.depth + 1) for bit in (0, 1)]
    return blocks


CASES = {
    "nine rules, short masks first": ([short_first(1, NINE)], [9]),
    "nine rules, long masks first": ([long_first(1, NINE)], [256]),
    "longest match": ([longest_match(1)], [256]),
    "two services, one base": ([short_first(1, NINE), short_first(2, NINE)], [9, 9]),
    "two services, bases 1000 and 2000": ([short_first(1, NINE), short_first(2, NINE, base=2000)], [256, 9]),
    "six services, one base": ([short_first(i, halved(4 * i + 1)) for i in range(1, 7)], [5, 9, 13, 17, 21, 25]),
}


@pytest.mark.parametrize("case", CASES)
def test_as_many_megaflows_as_published(bridge: DummyBridge, case: str) -> None:
    services, published = CASES[case]
    texts = [flow for flows in services for flow in flows]
    texts += [
        f"table=0, priority=10,ip,nw_dst=10.0.0.{i} actions=load:{i:#x}->NXM_NX_REG0[],resubmit(,1)"
        for i in range(1, len(services) + 1)
    ]
    flows = [parse_flow(text) for text in texts]
    packets = [
        Packet("p0", IPv4Address(0xC6336400 + low), IPv4Address(0x0A000000 + i), 17, 4000, 53)
        for i in range(1, len(services) + 1)
        for low in range(256)
    ]
    install(bridge, flows)
    bridge.settle(removed_s=0)
    send(bridge, packets)

    predicted = {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, packets)}
    assert _per_service(predicted) == published
    assert observed_shapes(bridge) == predicted


def _per_service(shapes: set[Shape]) -> list[int]:
    vips = Counter(value for _, fields, _ in shapes for name, _, value in fields if name == "nw_dst")
    return [vips[vip] for vip in sorted(vips)]
