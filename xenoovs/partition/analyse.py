"""How well selected address bits split real clients: the spread of load over blocks, beside what any choice could do.

Blocks count address space, not packets; these figures say what that costs for given clients. They are statistics of
measured traffic, so floats are in place here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt

from xenoovs.partition.bits import select


@dataclass(frozen=True, slots=True)
class DepthReport:
    """Blocks of one depth. The first three are standard deviations of a block's load, relative to the mean load.

    `selected`: for the selected bits. `low`: for the low bits. `ideal`: for a perfect hash, which still has to put each
    client somewhere. `entropy`: bits of information that the selected bits carry about a packet, at most `depth`.
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
    """`load`: packets or requests per client address. `positions`: the selected bits, first one first.

    ValueError: there is no load.
    """
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
        entropy=-sum(count / total * log2(count / total) for count in selected.values() if count),
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
