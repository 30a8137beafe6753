"""Fewer blocks with the same spaces: exchange intervals of equal size so that an owner's pieces become buddies.

An exchange is an aligned translation, so it fragments nothing, and it removes at least one block. Its price is what it
moves away from the table that clients know.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from xenoovs.partition.table import Piece, Table

_PIECES_TRIED = 24
"""Pieces of one owner and size that are paired with each other."""


class _Exchange(NamedTuple):
    price: int
    grown: int
    given: int


def compact(table: Table, known: Table, max_price: Fraction | int) -> None:
    """Exchange pieces while one exchange moves at most `max_price` units of a space more than before.

    `known`: the table that moves are counted against; both cover the same space.
    """
    size = 1
    while size < 1 << table.width:
        for owner in table.owners_of_several(size):
            while (best := _cheapest(table, known, owner, size)) is not None and best.price <= max_price:
                _do(table, owner, size, best)
        size *= 2


def _cheapest(table: Table, known: Table, owner: int, size: int) -> _Exchange | None:
    """The best way to double one piece (`grown`) by giving away another (`given`); None: there is only one."""
    starts = table.starts(owner, size)[:_PIECES_TRIED]
    buddies = [table.within(start ^ size, size) for start in starts]
    gained = [_extra_if_owned(known, start ^ size, buddy, owner) for start, buddy in zip(starts, buddies, strict=True)]
    before = [known.within(start, size) for start in starts]
    wrong = [_wrong(pieces, owner) for pieces in before]
    return min(
        (
            _Exchange(gained[i] + _mismatch(buddies[i], before[j]) - wrong[j], starts[i], starts[j])
            for i in range(len(starts))
            for j in range(len(starts))
            if i != j
        ),
        default=None,
        key=lambda exchange: exchange.price,
    )


def _extra_if_owned(known: Table, start: int, content: list[Piece], owner: int) -> int:
    """By how much more units of an interval would be wrong if the owner had all of it."""
    size = sum(piece.size for piece in content)
    before = known.within(start, size)
    return _wrong(before, owner) - _mismatch(content, before)


def _wrong(pieces: Iterable[Piece], owner: int) -> int:
    return sum(piece.size for piece in pieces if piece.owner != owner)


def _mismatch(ours: list[Piece], theirs: list[Piece]) -> int:
    """Units with different owners when two contents of equal size are laid on each other."""
    units = 0
    i = j = 0
    left, right = ours[0].size, theirs[0].size
    while True:
        step = min(left, right)
        if ours[i].owner != theirs[j].owner:
            units += step
        left -= step
        right -= step
        if not left:
            i += 1
            if i == len(ours):
                return units
            left = ours[i].size
        if not right:
            j += 1
            right = theirs[j].size


def _do(table: Table, owner: int, size: int, exchange: _Exchange) -> None:
    buddy = exchange.grown ^ size
    content = table.within(buddy, size)
    for piece in content:
        table.remove(piece)
    table.remove(Piece(exchange.given, size, owner))
    table.remove(Piece(exchange.grown, size, owner))
    translated = [piece._replace(start=piece.start - buddy + exchange.given) for piece in content]
    double = Piece(exchange.grown & ~size, 2 * size, owner)
    for piece in (*translated, double):
        table.put(piece)
    table.coalesce(double)
    if translated[0] in table:
        table.coalesce(translated[0])
