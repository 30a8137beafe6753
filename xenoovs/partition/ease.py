"""Slow start: a backend that returns gets its own addresses back part by part; no other address moves for it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from xenoovs.partition.block import Assignment
from xenoovs.partition.table import Piece, Table

STEPS = 8
"""Parts that a slow start goes by. A power of two splits blocks, and so hardware entries, into the fewest."""

_STEP_BITS = STEPS.bit_length() - 1


def ease(plan: Assignment, lent: Assignment, *, parts: Mapping[int, Fraction], max_width: int) -> Assignment:
    """`lent`, with the part `parts[i]` (0..1) of what `plan` has for backend i given back to it.

    `lent`: the overlay while all these backends serve nothing. What a smaller part gives, a larger one gives too. Parts
    are cut finer than blocks only as far as `max_width` bits allow; then the part is rounded up to whole units.
    """
    width = min(max(plan.width, lent.width) + _STEP_BITS, max(max_width, plan.width, lent.width))
    below, planned = Table.of(lent, width), Table.of(plan, width)
    back = [cut for owner, part in sorted(parts.items()) for cut in _first_part(_held(planned, owner), part)]
    taken = Table(width, back)
    rest = [part for piece in below for part in _outside(piece, taken)]
    table = Table(width, (*back, *rest))
    table.coalesce_all()
    return table.assignment(plan.backends)


def part_of(plan: Assignment, live: Assignment, owner: int, *, live_owner: int) -> Fraction:
    """The part of what `plan` has for backend `owner` that it holds in `live`, in whole steps; 0: nothing of it."""
    width = max(plan.width, live.width)
    now = Table.of(live, width)
    pieces = _held(Table.of(plan, width), owner)
    held = sum(p.size for piece in pieces for p in now.within(piece.start, piece.size) if p.owner == live_owner)
    whole = sum(piece.size for piece in pieces)
    return Fraction(held * STEPS // whole, STEPS) if whole else Fraction(0)


def _held(table: Table, owner: int) -> list[Piece]:
    return [piece for piece in table if piece.owner == owner]


def _first_part(pieces: list[Piece], part: Fraction) -> list[Piece]:
    """Of each piece its beginning; pieces too small for that are given back whole, one after the other."""
    small = [piece for piece in pieces if piece.size < STEPS]
    units = [unit for piece in small for unit in _units(piece.start, piece.size, piece.owner)]
    count = -int(-part * len(units) // 1)
    cuts = [cut for p in pieces if p.size >= STEPS for cut in _aligned(p.start, int(part * p.size), p.owner)]
    return [*cuts, *units[:count]]


def _units(start: int, size: int, owner: int) -> list[Piece]:
    return [Piece(position, 1, owner) for position in range(start, start + size)]


def _aligned(start: int, length: int, owner: int) -> list[Piece]:
    """The interval from an aligned start as aligned pieces, largest first."""
    made = []
    while length:
        size = 1 << (length.bit_length() - 1)
        made.append(Piece(start, size, owner))
        start, length = start + size, length - size
    return made


def _outside(piece: Piece, taken: Table) -> list[Piece]:
    """What of a piece no piece of `taken` covers."""
    if any(t.start <= piece.start and piece.start + piece.size <= t.start + t.size for t in taken):
        return []
    if not any(piece.start <= t.start < piece.start + piece.size for t in taken):
        return [piece]
    half = piece.size // 2
    halves = (Piece(piece.start, half, piece.owner), Piece(piece.start + half, half, piece.owner))
    return [part for side in halves for part in _outside(side, taken)]
