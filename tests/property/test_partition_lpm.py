"""Longest-match rules: exact spaces, and no rule too many on cases small enough to search."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.partition.block import Block
from xenoovs.partition.lpm import bit_matcher, lpm_spaces, niagara, realise_lpm
from xenoovs.partition.lpm_choose import lpm_partition
from xenoovs.partition.windows import deviation


def spaces_of_sum(total: int, backends: int) -> list[tuple[int, ...]]:
    cuts = combinations(range(total + backends - 1), backends - 1)
    ends = [(-1, *cut, total + backends - 1) for cut in cuts]
    return [tuple(high - low - 1 for low, high in pairwise(end)) for end in ends]


def winner(rules: tuple[tuple[Block, int], ...], address: int) -> int:
    return max((block.depth, owner) for block, owner in rules if block.contains(address))[1]


def reachable(width: int, backends: int, most: int) -> dict[tuple[int, ...], int]:
    """The least number of rules, up to `most`, of every vector of spaces: all sets of rules are tried."""
    blocks = [Block(value, depth) for depth in range(1, width + 1) for value in range(1 << depth)]
    found: dict[tuple[int, ...], int] = {}
    for count in range(most):
        for chosen in combinations(blocks, count):
            for owners in product(range(backends), repeat=count + 1):
                rules = ((Block(0, 0), owners[0]), *zip(chosen, owners[1:], strict=True))
                found.setdefault(lpm_spaces(rules, width, backends), count + 1)
    return found


@pytest.mark.parametrize(("width", "backends"), [(5, 2), (6, 2), (4, 3), (5, 3), (3, 4), (4, 4)])
def test_the_longest_match_realises_all_spaces_exactly(width: int, backends: int) -> None:
    for spaces in spaces_of_sum(1 << width, backends):
        root, transactions = bit_matcher(spaces, width)
        rules = realise_lpm(width, [root], transactions)
        assert len(rules) == 1 + len(transactions)
        owners = [winner(rules, address) for address in range(1 << width)]
        assert tuple(owners.count(backend) for backend in range(backends)) == spaces
        assert lpm_spaces(rules, width, backends) == spaces


@pytest.mark.parametrize(("width", "backends", "most"), [(4, 2, 4), (3, 3, 4), (2, 4, 4)])
def test_bit_matcher_is_exhaustively_minimal(width: int, backends: int, most: int) -> None:
    least = reachable(width, backends, most)
    for spaces in spaces_of_sum(1 << width, backends):
        count = 1 + len(bit_matcher(spaces, width)[1])
        assert count == least.get(spaces, count)
        assert count <= most or spaces not in least


some_weights = st.lists(st.integers(1, 500), min_size=1, max_size=10)


@given(some_weights, st.integers(4, 10))
def test_the_imbalance_of_niagara_never_rises(weights: list[int], width: int) -> None:
    goal, total = sum(weights), 1 << width
    heaviest = weights.index(max(weights))
    start = [total if index == heaviest else 0 for index in range(len(weights))]
    steps = [start, *(spaces for _, spaces in niagara(weights, width, [heaviest]))]
    errors = [
        sum(abs(space * goal - weight * total) for space, weight in zip(spaces, weights, strict=True))
        for spaces in steps
    ]
    assert all(later < earlier for earlier, later in pairwise(errors))


@given(some_weights, st.integers(4, 10))
def test_the_rules_of_niagara_have_its_spaces(weights: list[int], width: int) -> None:
    defaults = list(range(1 << (len(weights).bit_length() - 1)))
    steps = list(niagara(weights, width, defaults))
    rules = realise_lpm(width, defaults, [transaction for transaction, _ in steps])
    start = [defaults.count(index) << width >> (len(weights).bit_length() - 1) for index in range(len(weights))]
    assert list(lpm_spaces(rules, width, len(weights))) == [start, *(spaces for _, spaces in steps)][-1]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any), st.integers(2, 25))
def test_the_rules_are_within_the_tolerance(weights: list[int], percent: int) -> None:
    tolerance = Fraction(percent, 100)
    chosen = lpm_partition(weights, tolerance=tolerance)
    owners = {winner(chosen.rules, address) for address in range(1 << min(chosen.width, 10))}
    assert all(weights[owner] for owner in owners)
    assert deviation(weights, chosen.spaces) == chosen.deviation <= tolerance
    assert all(space == 0 for space, weight in zip(chosen.spaces, weights, strict=True) if weight == 0)
