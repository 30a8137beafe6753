"""A service's weights to rules over its clients' addresses, by the mathematics of `partition`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.service import Service, SourceBits, Strategy
from xenoovs.partition.bits import spread
from xenoovs.partition.block import MAX_WIDTH, Block
from xenoovs.partition.choose import Partition, partition
from xenoovs.partition.lpm_choose import LpmPartition, lpm_partition


@dataclass(frozen=True, slots=True, order=True)
class SourceRule:
    """Clients whose address under `mask` equals `value` belong to backend number `owner`. `depth`: bits in the mask."""

    depth: int
    value: int
    mask: int
    owner: int


@dataclass(frozen=True, slots=True)
class ServiceAssignment:
    """Which backend owns which clients of one service.

    width:     bits of the source address in use.
    units:     of the 2**width parts of the address space, how many each backend owns.
    tolerance: the relative tolerance that was used (a budget of flows may need more than was asked).
    """

    rules: tuple[SourceRule, ...]
    width: int
    units: tuple[int, ...]
    tolerance: Fraction

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Each backend's share of the address space; they sum to 1."""
        return tuple(Fraction(units, 1 << self.width) for units in self.units)


def assign(service: Service) -> ServiceAssignment:
    """The fewest rules that split the clients by weight. Raises ToleranceUnreachable or BudgetUnreachable."""
    positions, most = service.source_bits.positions, _most_bits(service.source_bits)
    chosen: Partition | LpmPartition
    match service.strategy:
        case Strategy.DISJOINT:
            chosen = partition(
                service.weights,
                tolerance=service.tolerance,
                max_width=most,
                max_flows=service.max_flows,
            )
            blocks, used = chosen.assignment.blocks, chosen.assignment.width
        case Strategy.LPM:
            chosen = lpm_partition(service.weights, tolerance=service.tolerance, max_width=most)
            blocks, used = chosen.rules, chosen.width
    return ServiceAssignment(_source_rules(blocks, positions), used, chosen.spaces, chosen.tolerance)


def _most_bits(bits: SourceBits) -> int:
    limits = (bits.width, None if bits.positions is None else len(bits.positions))
    return min((limit for limit in limits if limit is not None), default=MAX_WIDTH)


def _source_rules(blocks: Iterable[tuple[Block, int]], positions: tuple[int, ...] | None) -> tuple[SourceRule, ...]:
    spread_blocks = ((block.depth, *spread(block, positions), owner) for block, owner in blocks)
    return tuple(sorted(SourceRule(depth, value, mask, owner) for depth, value, mask, owner in spread_blocks))
