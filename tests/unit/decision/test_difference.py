"""Decisions by different bits, compared: each client counts once."""

from __future__ import annotations

from fractions import Fraction

from xenoovs.decision.decision import Blocks, Decision, ServiceDecision, Shift, compare, moved
from xenoovs.model.balancer import BlockKey, KeyField
from xenoovs.partition.block import Block

THREE_TO_ONE = Blocks.of([(Block(0, 1), "a"), (Block(1, 2), "a"), (Block(3, 2), "b")])


def decided(key: BlockKey, blocks: Blocks = THREE_TO_ONE) -> ServiceDecision:
    return ServiceDecision(key, blocks, blocks)


def test_addresses_and_ports_are_independent() -> None:
    """Three quarters of those of a, and one quarter of those of b, come to where they were."""
    by_address, by_port = decided(BlockKey()), decided(BlockKey(KeyField.SOURCE_PORT))
    assert moved(by_address, by_port) == moved(by_port, by_address) == 2 * Fraction(3, 4) * Fraction(1, 4)
    (found,) = compare(Decision.of({1: by_address}), Decision.of({1: by_port}))
    assert found.shifts == (Shift("a", "b", Fraction(3, 16)), Shift("b", "a", Fraction(3, 16)))


def test_other_bits_of_one_field_are_independent_too() -> None:
    ports = [BlockKey(KeyField.SOURCE_PORT, positions) for positions in ((0, 1), (2, 3), (1, 0), (0, 5))]
    one, apart, turned, shared = (decided(key) for key in ports)
    assert moved(one, one) == 0
    assert moved(one, apart) == Fraction(3, 8)
    assert moved(one, turned) == 0, "b has those with both bits set, whatever their order"
    assert moved(one, shared) == Fraction(1, 4), "of the half with bit 0, those with one of the other bits"
