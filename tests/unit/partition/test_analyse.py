"""The analysis of the bits of client addresses."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from xenoovs.partition.analyse import analyse, choose_bits, suggest


def test_clients_spread_evenly_over_the_selected_bits_have_no_spread() -> None:
    report = analyse({address << 8: 5 for address in range(16)}, [8, 9, 10, 11])
    assert [row.selected for row in report.depths] == [0, 0, 0, 0]
    assert [row.entropy for row in report.depths] == [1, 2, 3, 4]
    assert report.ones == (0.5,) * 4
    # Bits that never change put all load on one block.
    assert [row.low for row in analyse({address << 8: 5 for address in range(16)}, [8, 9]).depths] == [
        1,
        pytest.approx(3**0.5),
    ]


def test_the_ideal_is_what_random_blocks_give_on_average() -> None:
    random = Random(1)
    load = {address: random.randint(1, 50) for address in range(300)}
    drawn = []
    for _ in range(200):
        hashed = {(random.getrandbits(3) | address << 3): count for address, count in load.items()}
        drawn.append(analyse(hashed, [0, 1, 2]).depths[2].selected ** 2)
    assert analyse(load, [0, 1, 2]).depths[2].ideal ** 2 == pytest.approx(fmean(drawn), rel=0.1)


def test_a_heavy_client_is_named_as_the_limit() -> None:
    load = {0: 300, **dict.fromkeys(range(1, 701), 1)}
    report = analyse(load, [0, 1, 2, 3])
    assert report.top1 == 0.3
    assert report.top10 == pytest.approx(0.309)
    assert report.clients_decide_from == 2
    assert analyse(dict.fromkeys(range(64), 1), [0, 1, 2]).clients_decide_from is None


def test_no_traffic_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="sent anything"):
        analyse({}, [0])


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
    # As many bits as before, and of the candidates alone.
    few = suggest(OFFICE, LOW_BITS, range(10))
    assert few is not None
    assert len(few.positions) == len(found.positions) == len(LOW_BITS)
    assert set(few.positions) <= set(range(10))


def test_low_bits_that_are_fine_stay() -> None:
    assert suggest(SPREAD, LOW_BITS, range(32)) is None


def test_few_clients_prove_nothing() -> None:
    assert suggest({1: 5}, LOW_BITS, range(32)) is None
    assert suggest({}, LOW_BITS, range(32)) is None
    assert suggest(OFFICE, (), range(32)) is None


def test_the_most_even_bit_comes_first() -> None:
    load = {0b00: 10, 0b01: 10, 0b10: 1, 0b11: 1}
    assert choose_bits(load, (0, 1), depth=2) == (0, 1)
    assert choose_bits({0: 3, 1: 1, 2: 1, 3: 1}, (1, 0), depth=1) == (0,)
