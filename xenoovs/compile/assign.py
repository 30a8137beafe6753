"""A service's weights to rules over its clients' addresses, by the mathematics of `partition`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.compile.installed import InstalledAssignment
from xenoovs.compile.key import bits_of, block_of
from xenoovs.model.service import Churn, Service
from xenoovs.partition.block import MAX_WIDTH, Assignment
from xenoovs.partition.choose import partition
from xenoovs.partition.ease import ease, part_of
from xenoovs.partition.overlay import overlay
from xenoovs.partition.update import Goal, start, update

_BLOCK_PRICE = {Churn.LEAST: Fraction(0), Churn.BALANCED: None, Churn.COMPACT: Fraction(1 << MAX_WIDTH)}
"""Units that one block less is worth (docs/adr/0006): nothing, a quarter of a mean share, or all there are."""


@dataclass(frozen=True, slots=True, order=True)
class BlockRule:
    """Clients whose key bits under `mask` equal `value` belong to backend number `owner`. `depth`: bits in the mask."""

    depth: int
    value: int
    mask: int
    owner: int


@dataclass(frozen=True, slots=True)
class ServiceAssignment:
    """Which backend owns which clients of one service.

    width:     bits of the key in use.
    units:     of the 2**width parts of the key space, how many each backend owns.
    tolerance: the relative tolerance that was used (a budget of flows may need more than was asked).
    """

    rules: tuple[BlockRule, ...]
    width: int
    units: tuple[int, ...]
    tolerance: Fraction

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Each backend's share of the key space; they sum to 1."""
        return tuple(Fraction(units, 1 << self.width) for units in self.units)


def assign(service: Service) -> ServiceAssignment:
    """The fewest rules that split the clients by weight. Raises ToleranceUnreachable or BudgetUnreachable."""
    chosen = partition(
        service.weights,
        tolerance=service.tolerance,
        max_width=service.key.max_width,
        max_flows=service.max_flows,
    )
    return _of_blocks(service, chosen.assignment, chosen.tolerance)


def assign_near(service: Service, installed: InstalledAssignment) -> ServiceAssignment | None:
    """Blocks near the installed ones: the same as long as they meet the weights, else with little movement.

    None where only a new layout will do: a budget of flows that these blocks exceed, or more bits than there are.
    """
    goal = goal_of(service, _tolerance(service))
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
    return _of_blocks(service, near, goal.tolerance)


def assign_without(
    service: Service,
    plan: ServiceAssignment,
    *,
    live: InstalledAssignment | None,
    out: Collection[int],
    parts: Mapping[int, Fraction] | None = None,
) -> ServiceAssignment:
    """The plan while the backends `out` (by index) serve nothing: their clients are lent to others, nobody else moves.

    `live`: what is in use now; None: the plan. `parts`: of which backends only a part of the clients is lent, by the
    part that they have; somebody else is left then. Without any backend left the result has no rules.
    """
    easing = parts or {}
    if not any(weight for index, weight in enumerate(service.weights) if index not in out):
        return ServiceAssignment((), plan.width, (0,) * len(service.backends), plan.tolerance)
    if not out and not easing:
        return plan
    planned = _blocks_of(service, plan)
    goal = goal_of(service, plan.tolerance)
    down = {*out, *easing}
    if live is None or live.assignment.width > goal.max_width:
        lent = overlay(planned, planned, goal=goal, down=down)
    else:
        lent = overlay(planned, live.assignment, goal=goal, down=down, owners=live.same_owners(service))
    eased = ease(planned, lent, parts=easing, max_width=goal.max_width) if easing else lent
    return _of_blocks(service, eased, plan.tolerance)


def parts_held(
    service: Service, plan: ServiceAssignment, live: InstalledAssignment, *, out: Collection[int]
) -> dict[int, Fraction]:
    """Of the backends `out` those that have a part of their clients, as in a slow start, and which part."""
    planned, owners = _blocks_of(service, plan), live.same_owners(service)
    held = {
        index: part_of(planned, live.assignment, index, live_owner=owners.index(index))
        for index in sorted(out)
        if index in owners
    }
    return {index: part for index, part in held.items() if part}


def goal_of(service: Service, tolerance: Fraction) -> Goal:
    """What a change of the service's blocks aims at."""
    return Goal(service.weights, tolerance, service.key.max_width, _BLOCK_PRICE[service.churn])


def _blocks_of(service: Service, assignment: ServiceAssignment) -> Assignment:
    blocks = ((block_of(rule.value, rule.mask, service.key), rule.owner) for rule in assignment.rules)
    return Assignment.of(assignment.width, blocks, len(service.backends))


def _of_blocks(service: Service, assignment: Assignment, tolerance: Fraction) -> ServiceAssignment:
    rules = sorted(BlockRule(block.depth, *bits_of(block, service.key), owner) for block, owner in assignment.blocks)
    return ServiceAssignment(tuple(rules), assignment.width, assignment.spaces(), tolerance)


def _tolerance(service: Service) -> Fraction:
    """The tolerance asked for, or the one that the budget of flows takes."""
    return service.tolerance if service.max_flows is None else assign(service).tolerance
