"""Which megaflows Open vSwitch makes for the blocks of one service: a model of its tuple space search.

A lookup visits one subtable per mask, by falling highest priority, and stops when the rest cannot beat the match found;
the masks of all visited subtables, hit or miss, are joined in the megaflow (Open vSwitch, lib/classifier.c,
`classifier_lookup__`). So blocks with the shortest mask first get one megaflow each, and other orders get more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A block with its OpenFlow priority."""

    value: int
    depth: int
    backend: int
    priority: int


@dataclass(frozen=True, slots=True, order=True)
class Megaflow:
    """All addresses whose first `depth` selected bits equal `value`; `backend` None: no rule matched."""

    value: int
    depth: int
    backend: int | None


@dataclass(frozen=True, slots=True)
class _Subtable:
    depth: int
    max_priority: int
    rules: dict[int, Rule]


def megaflows(rules: Iterable[Rule]) -> frozenset[Megaflow]:
    """The megaflows once every class of addresses has sent a packet. At equal priority the shorter mask goes first."""
    by_depth: dict[int, dict[int, Rule]] = {}
    for rule in sorted(rules, key=lambda rule: rule.priority):
        by_depth.setdefault(rule.depth, {})[rule.value] = rule
    subtables = [
        _Subtable(depth, max(rule.priority for rule in found.values()), found) for depth, found in by_depth.items()
    ]
    subtables.sort(key=lambda subtable: (-subtable.max_priority, subtable.depth))
    return frozenset(_visit(subtables, Megaflow(0, 0, None), None))


def _visit(subtables: Sequence[_Subtable], seen: Megaflow, best: Rule | None) -> Iterator[Megaflow]:
    """The megaflows of all packets that agree with `seen` so far and have yet to pass the given subtables."""
    if not subtables or (best is not None and best.priority >= subtables[0].max_priority):
        yield Megaflow(seen.value, seen.depth, None if best is None else best.backend)
        return
    first, rest = subtables[0], subtables[1:]
    depth = max(seen.depth, first.depth)
    for more in range(1 << (depth - seen.depth)):
        value = seen.value | more << seen.depth
        hit = first.rules.get(value & ((1 << first.depth) - 1))
        better = hit if hit is not None and (best is None or hit.priority > best.priority) else best
        yield from _visit(rest, Megaflow(value, depth, None), better)
