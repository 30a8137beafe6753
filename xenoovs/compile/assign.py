"""A service's weights to rules over its clients' addresses, by the mathematics of `partition`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.compile.installed import InstalledAssignment
from xenoovs.model.service import Service, SourceBits, Strategy
from xenoovs.partition.bits import spread
from xenoovs.partition.block import MAX_WIDTH, Block
from xenoovs.partition.choose import Partition, partition
from xenoovs.partition.lpm_choose import LpmPartition, lpm_partition
from xenoovs.partition.update import Goal, start, update


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


def assign_near(service: Service, installed: InstalledAssignment) -> ServiceAssignment | None:
    """Blocks near the installed ones: the same as long as they meet the weights, else with little movement.

    None where only a new layout will do: strategy lpm, or a budget of flows that these blocks exceed.
    """
    if service.strategy is Strategy.LPM:
        return None
    goal = Goal(service.weights, _tolerance(service), _most_bits(service.source_bits))
    if any(block.depth > goal.max_width for block, _ in installed.assignment.blocks):
        return None
    owners = installed.owners_for(service)
    begin = start(installed.assignment, goal, owners=owners)
    if begin.least_moved == 0:
        near = begin.table.assignment(len(service.backends))
    else:
        near = update(installed.assignment, goal, owners=owners)
    if service.max_flows is not None and len(near.blocks) > service.max_flows:
        return None
    rules = _source_rules(near.blocks, service.source_bits.positions)
    return ServiceAssignment(rules, near.width, near.spaces(), goal.tolerance)


def _tolerance(service: Service) -> Fraction:
    """The tolerance asked for, or the one that the budget of flows takes."""
    return service.tolerance if service.max_flows is None else assign(service).tolerance


def _most_bits(bits: SourceBits) -> int:
    limits = (bits.width, None if bits.positions is None else len(bits.positions))
    return min((limit for limit in limits if limit is not None), default=MAX_WIDTH)


def _source_rules(blocks: Iterable[tuple[Block, int]], positions: tuple[int, ...] | None) -> tuple[SourceRule, ...]:
    spread_blocks = ((block.depth, *spread(block, positions), owner) for block, owner in blocks)
    return tuple(sorted(SourceRule(depth, value, mask, owner) for depth, value, mask, owner in spread_blocks))
