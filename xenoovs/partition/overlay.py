"""Backends that are down: their addresses go to others until they are back, and all other addresses stay.

The plan is the assignment for all backends. An overlay is what differs from it while some are down; it is taken away,
not recomputed, when they return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.partition.block import Assignment
from xenoovs.partition.minplus import solve_min_plus
from xenoovs.partition.realise import fill, keep_set
from xenoovs.partition.table import Piece, Table
from xenoovs.partition.update import Goal, renumbered
from xenoovs.partition.windows import Weight, Window, first_feasible_width, strict_windows, windows

_WIDTHS_TRIED = 3
_WIDENINGS = 10
"""Halvings of the search for the least tolerance that keeps the plan; finer steps change no window worth having."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The address space by what may happen to it: `planned` is fixed, `lent` may move, `free` has no owner."""

    width: int
    planned: tuple[Piece, ...]
    lent: tuple[Piece, ...]
    free: tuple[Piece, ...]

    def held(self, backends: int) -> list[int]:
        return _units((*self.planned, *self.lent), backends)

    def without_loans(self) -> _Parts:
        return _Parts(self.width, self.planned, (), (*self.free, *self.lent))


def overlay(
    plan: Assignment,
    live: Assignment,
    *,
    goal: Goal,
    down: Collection[int],
    owners: Sequence[int | None] | None = None,
) -> Assignment:
    """The assignment to use while the backends `down` serve nothing.

    `plan`: made for `goal`, with all backends. `live`: in use now, the plan itself at first; its backend i is
    `owners[i]` of the plan (None: gone; left out: indices are the same). Addresses whose plan owner is up are its own;
    others stay with the owner they have if the shares of the rest allow it. With nobody down the result is the plan.

    More bits than the plan's are used where the tolerance needs them. If no width up to the goal's keeps the plan and
    the tolerance, the least tolerance that does is used. ValueError: no weight is left.
    """
    if not any(owner in down for _, owner in plan.blocks):
        return plan
    weights = tuple(0 if index in down else weight for index, weight in enumerate(goal.weights))
    first = first_feasible_width(weights, goal.tolerance, goal.max_width)
    least = max(plan.width, live.width, goal.max_width if first is None else first)
    most = max(least, min(least + _WIDTHS_TRIED - 1, goal.max_width))
    known = renumbered(live, plan.backends, owners)
    for width in range(least, most + 1):
        parts = _parts(plan, Table.of(live, width, known), {*down, plan.backends})
        result = _within(parts, windows(weights, width, goal.tolerance))
        if result is not None:
            return result.assignment(plan.backends)
    return _widened(parts.without_loans(), weights, goal.tolerance).assignment(plan.backends)


def _parts(plan: Assignment, live: Table, down: Collection[int]) -> _Parts:
    width = live.width
    planned: list[Piece] = []
    lent: list[Piece] = []
    free: list[Piece] = []
    for piece in Table.of(plan, width):
        if piece.owner not in down:
            planned.append(piece)
            continue
        for part in live.within(piece.start, piece.size):
            (free if part.owner in down else lent).append(part)
    return _Parts(width, _coalesced(width, planned), _coalesced(width, lent), tuple(free))


def _coalesced(width: int, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    table = Table(width, pieces)
    table.coalesce_all()
    return tuple(table)


def _units(pieces: Iterable[Piece], backends: int) -> list[int]:
    units = [0] * backends
    for piece in pieces:
        units[piece.owner] += piece.size
    return units


def _within(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """The gentlest way that meets the windows: only free addresses, then few loans, then all loans."""
    held = parts.held(len(allowed))
    if not parts.free and all(lo <= units <= hi for units, (lo, hi) in zip(held, allowed, strict=True)):
        return _fill(parts, held)
    return (
        (_grown(parts, allowed) if parts.free else None)
        or _with_loans_moved(parts, allowed)
        or _grown(parts.without_loans(), allowed)
    )


def _grown(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """The free addresses given away and nothing else changed; None: the windows forbid it."""
    held = parts.held(len(allowed))
    ranges = [Window(max(units, lo), hi) for units, (lo, hi) in zip(held, allowed, strict=True)]
    spaces = _fewest_pieces(parts, held, ranges)
    return None if spaces is None else _fill(parts, spaces)


def _with_loans_moved(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """As few loans as possible change hands; None: addresses of the plan would have to."""
    backends = len(allowed)
    held, planned = parts.held(backends), _units(parts.planned, backends)
    free = sum(piece.size for piece in parts.free)
    ranges = strict_windows((*held, free), (*allowed, Window(0, 0)), (*planned, 0))[:-1]
    spaces = _fewest_pieces(parts, held, ranges)
    if spaces is None:
        return None
    kept: list[Piece] = []
    released: list[Piece] = []
    for pieces, space, least in zip(Table(parts.width, parts.lent).by_owner(backends), spaces, planned, strict=True):
        stay, leave = keep_set(pieces, min(space - least, sum(piece.size for piece in pieces)))
        kept += stay
        released += leave
    return _fill(_Parts(parts.width, parts.planned, tuple(kept), (*parts.free, *released)), spaces)


def _fill(parts: _Parts, spaces: Sequence[int]) -> Table:
    table = Table(parts.width, (*parts.planned, *parts.lent))
    table.coalesce_all()
    fill(table, parts.free, spaces)
    return table


def _fewest_pieces(parts: _Parts, held: Sequence[int], ranges: Sequence[Window]) -> tuple[int, ...] | None:
    options = [
        [(space, abs(space - units).bit_count()) for space in range(lo, hi + 1)]
        for units, (lo, hi) in zip(held, ranges, strict=True)
    ]
    return solve_min_plus(options, 1 << parts.width)


def _widened(parts: _Parts, weights: Sequence[Weight], tolerance: Fraction) -> Table:
    """All loans given anew, within the least tolerance that the plan leaves possible."""
    low, high = tolerance, max(2 * tolerance, Fraction(1, 100))
    while (table := _grown(parts, windows(weights, parts.width, high))) is None:
        low, high = high, 2 * high
    for _ in range(_WIDENINGS):
        middle = (low + high) / 2
        closer = _grown(parts, windows(weights, parts.width, middle))
        if closer is None:
            low = middle
        else:
            table, high = closer, middle
    return table
