"""How well address bits split the traffic of real clients, and which bits would split it better.

Blocks count address space, not packets; these figures say what that costs for given clients. They are statistics of
measured traffic, so floats are in place here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, log2, sqrt

from xenoovs.dataclass import dataclass
from xenoovs.partition.block import select


@dataclass(frozen=True, slots=True)
class DepthReport:
    """Blocks of one depth. The first three are standard deviations of a block's load, relative to the mean load.

    `selected`: with the selected bits. `low`: with the low bits. `ideal`: with a perfect hash, which cannot split a
    client either. `entropy`: bits of information that the selected bits carry about a packet, at most `depth`.
    """

    depth: int
    selected: float
    low: float
    ideal: float
    entropy: float


@dataclass(frozen=True, slots=True)
class BitReport:
    """`ones`: share of the load with a 1 in each selected bit. `top1`, `top10`: shares of the heaviest clients."""

    depths: tuple[DepthReport, ...]
    ones: tuple[float, ...]
    top1: float
    top10: float

    @property
    def clients_decide_from(self) -> int | None:
        """The first depth at which the heaviest client outweighs a mean block, so that no choice of bits helps."""
        return next((row.depth for row in self.depths if self.top1 * 2**row.depth > 1), None)


def analyse(load: Mapping[int, int], positions: Sequence[int]) -> BitReport:
    """`load`: packets or requests per client address. `positions`: the selected bits, in order. ValueError: no load."""
    total = sum(load.values())
    if total <= 0:
        raise ValueError("no client has sent anything")
    heaviest = sorted(load.values(), reverse=True)
    rows = tuple(_depth_report(load, positions, depth) for depth in range(1, len(positions) + 1))
    ones = tuple(
        sum(count for address, count in load.items() if address >> position & 1) / total for position in positions
    )
    return BitReport(rows, ones, heaviest[0] / total, sum(heaviest[:10]) / total)


def _depth_report(load: Mapping[int, int], positions: Sequence[int], depth: int) -> DepthReport:
    selected, low = _block_loads(load, positions, depth), _block_loads(load, None, depth)
    total = sum(load.values())
    squares = sum(count * count for count in load.values())
    return DepthReport(
        depth=depth,
        selected=_relative_spread(selected, 1 << depth),
        low=_relative_spread(low, 1 << depth),
        # each client falls into one of m blocks at random: the variance of a block is (1/m)(1 - 1/m) * sum of squares
        ideal=sqrt(((1 << depth) - 1) * squares) / total,
        entropy=-fsum(count / total * log2(count / total) for count in selected.values() if count),
    )


def _block_loads(load: Mapping[int, int], positions: Sequence[int] | None, depth: int) -> Counter[int]:
    loads: Counter[int] = Counter()
    for address, count in load.items():
        loads[select(address, positions, depth)] += count
    return loads


def _relative_spread(loads: Counter[int], blocks: int) -> float:
    """Standard deviation over all blocks, also those without load, relative to the mean."""
    total = sum(loads.values())
    return sqrt(max(0.0, sum(count * count for count in loads.values()) * blocks / total**2 - 1))


# Bits that would split given clients better, found on one half of them and proven on the other.
#
# A list that is chosen for given clients always fits these; whether it is better shows only a part that it has not
# seen.


MAX_TRAINED = 4096
"""How many of the heaviest clients of the first half choose the bits; more cost time and change little."""

_WORTH_IT = 0.8
"""A list is suggested only if it leaves at most this part of the spread: a smaller gain may be chance."""

_GOLDEN_RATIO = 2654435761
"""Knuth's multiplicative hash (The Art of Computer Programming, 3, 6.4) halves the clients independently of any bit."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Bit positions that spread the load better. `before`, `after`: the spread of other clients."""

    positions: tuple[int, ...]
    before: float
    after: float


def suggest(load: Mapping[int, int], positions: Sequence[int], candidates: Iterable[int]) -> Suggestion | None:
    """Return another list of as many bits, or None if none is clearly better. `load`: packets by client address."""
    learned = {address: count for address, count in load.items() if _is_learned(address)}
    proof = {address: count for address, count in load.items() if not _is_learned(address)}
    if not positions or not sum(learned.values()) or not sum(proof.values()):
        return None
    heaviest = sorted(learned.items(), key=lambda item: (-item[1], item[0]))[:MAX_TRAINED]
    found = choose_bits(dict(heaviest), candidates, depth=len(positions))
    before, after = (analyse(proof, bits).depths[-1].selected for bits in (positions, found))
    return Suggestion(found, before, after) if after <= _WORTH_IT * before else None


def choose_bits(load: Mapping[int, int], candidates: Iterable[int], *, depth: int) -> tuple[int, ...]:
    """Choose bits one by one, each time the bit that evens out the blocks most, and the lowest one of equals."""
    left, chosen = sorted(candidates), list[int]()
    groups = dict.fromkeys(load, 0)
    for _ in range(min(depth, len(left))):
        best = min(left, key=lambda position: (_unevenness(load, groups, position), position))
        left.remove(best)
        chosen.append(best)
        groups = {address: group << 1 | address >> best & 1 for address, group in groups.items()}
    return tuple(chosen)


def _unevenness(load: Mapping[int, int], groups: Mapping[int, int], position: int) -> int:
    sums: Counter[int] = Counter()
    for address, group in groups.items():
        sums[group << 1 | address >> position & 1] += load[address]
    return sum(count * count for count in sums.values())


def _is_learned(address: int) -> bool:
    mixed = (address ^ address >> 32 ^ address >> 64 ^ address >> 96) & 0xFFFFFFFF
    return bool((mixed * _GOLDEN_RATIO & 0xFFFFFFFF) >> 31)
