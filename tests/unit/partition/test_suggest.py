"""Better bits: suggested where the addresses have them, and not where the gain may be chance."""

from __future__ import annotations

from random import Random

from xenoovs.partition.analyse import choose_bits, suggest

RANDOM = Random(7)
LOW_BITS = (0, 1, 2, 3)
OFFICE = {RANDOM.getrandbits(12) << 8 | 1: RANDOM.randint(1, 9) for _ in range(1500)}
"""Gateways: every address ends with .1."""
SPREAD = {RANDOM.getrandbits(32): 1 for _ in range(1500)}


def test_bits_that_never_change_are_left() -> None:
    found = suggest(OFFICE, LOW_BITS, range(32))
    assert found is not None
    assert set(found.positions) <= set(range(8, 20))
    assert found.after < 0.5 < found.before


def test_low_bits_that_are_fine_stay() -> None:
    assert suggest(SPREAD, LOW_BITS, range(32)) is None


def test_as_many_bits_as_before_and_of_the_candidates_alone() -> None:
    found = suggest(OFFICE, LOW_BITS, range(10))
    assert found is not None
    assert len(found.positions) == 4
    assert set(found.positions) <= set(range(10))


def test_few_clients_prove_nothing() -> None:
    assert suggest({1: 5}, LOW_BITS, range(32)) is None
    assert suggest({}, LOW_BITS, range(32)) is None
    assert suggest(OFFICE, (), range(32)) is None


def test_the_most_even_bit_comes_first() -> None:
    load = {0b00: 10, 0b01: 10, 0b10: 1, 0b11: 1}
    assert choose_bits(load, (0, 1), depth=2) == (0, 1)
    assert choose_bits({0: 3, 1: 1, 2: 1, 3: 1}, (1, 0), depth=1) == (0,)
