"""Fewer blocks with the same spaces: exchange intervals of equal size so that an owner's pieces become buddies.

An owner with two pieces of one size gives the content of one piece's buddy the position of the other piece, and takes
the buddy. The exchange is an aligned translation, so it splits nothing. It saves one block, and one more for each merge
that follows it. Its cost is the number of units that it moves away from the table that clients know.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from xenoovs.partition.table import Piece, Table

_PIECES_TRIED = 24
"""Pieces of one owner and size that are paired with each other."""

_BARGAINS = (4, 2, 1)
"""Divisors of the highest price: exchanges that save many blocks for little movement come first."""


class _Exchange(NamedTuple):
    cost: int
    saved: int
    grown: int
    given: int

    def gain(self, price: Fraction) -> int:
        """Return what the blocks saved are worth less what they cost, in fractions of a unit that make both whole."""
        return self.saved * price.numerator - self.cost * price.denominator


def compact(table: Table, known: Table, price: Fraction | int) -> None:
    """Exchange pieces while an exchange moves at most `price` units of a space for each block that it saves.

    Args:
        table: The table that is changed.
        known: The table that moves are counted against; both cover the same space.
        price: Units that one block is worth.
    """
    _sweep(table, known, Fraction(price), units=_unlimited(table))


def compact_within(table: Table, known: Table, price: Fraction | int, *, units: int) -> None:
    """Exchange pieces as `compact` does, but move at most `units` units more; the best bargains come first."""
    for divisor in _BARGAINS:
        units -= _sweep(table, known, Fraction(price) / divisor, units=units)


def compact_to(table: Table, known: Table, blocks: int) -> None:
    """Exchange pieces, at rising prices, until the table has at most `blocks` blocks or no exchange is left."""
    price = 1
    while len(table) > blocks and price <= 1 << (table.width + 1):
        _sweep(table, known, Fraction(price), units=_unlimited(table), blocks=blocks)
        price *= 2


def _unlimited(table: Table) -> int:
    """Return more units than any sequence of exchanges moves: each unit is moved or it is not."""
    return 1 << table.width


def _sweep(table: Table, known: Table, price: Fraction, *, units: int, blocks: int = 0) -> int:
    """Exchange pieces of all owners, small ones first; return the units moved, which are at most `units`."""
    left = units
    size = 1
    while size < 1 << table.width:
        for owner in table.owners_of_several(size):
            while len(table) > blocks and (best := _best(table, known, owner, size, price)) is not None:
                if best.gain(price) < 0 or best.cost > left:
                    break
                _do(table, owner, size, best)
                left -= best.cost
        size *= 2
    return units - left


def _best(table: Table, known: Table, owner: int, size: int, price: Fraction) -> _Exchange | None:
    """Return the best way to double one piece (`grown`) by giving away another (`given`); None: there is only one."""
    starts = table.starts(owner, size)[:_PIECES_TRIED]
    if len(starts) < 2:
        return None
    buddies = [table.within(start ^ size, size) for start in starts]
    gained = [_extra_if_owned(known, start ^ size, buddy, owner) for start, buddy in zip(starts, buddies, strict=True)]
    before = [known.within(start, size) for start in starts]
    wrong = [_wrong(pieces, owner) for pieces in before]
    merges = [1 + _merges(table, Piece(start & ~size, 2 * size, owner)) for start in starts]
    others = [buddy[0].owner if len(buddy) == 1 else None for buddy in buddies]
    joined = [
        0 if other is None else _merges(table, Piece(start, size, other))
        for start, other in zip(starts, others, strict=True)
    ]
    return max(
        (
            _Exchange(
                cost=gained[i] + _mismatch(buddies[i], before[j]) - wrong[j],
                saved=merges[i] + (joined[j] if others[i] is not None and others[i] == others[j] else 0),
                grown=starts[i],
                given=starts[j],
            )
            for i in range(len(starts))
            for j in range(len(starts))
            if i != j
        ),
        key=lambda exchange: exchange.gain(price),
    )


def _merges(table: Table, piece: Piece) -> int:
    """Return how often a piece would merge with its buddy, and the result again."""
    start, size, owner = piece
    count = 0
    while Piece(start ^ size, size, owner) in table:
        start, size, count = start & ~size, 2 * size, count + 1
    return count


def _extra_if_owned(known: Table, start: int, content: list[Piece], owner: int) -> int:
    """Return by how much more units of an interval would be wrong if the owner had all of it."""
    size = sum(piece.size for piece in content)
    before = known.within(start, size)
    return _wrong(before, owner) - _mismatch(content, before)


def _wrong(pieces: Iterable[Piece], owner: int) -> int:
    return sum(piece.size for piece in pieces if piece.owner != owner)


def _mismatch(ours: list[Piece], theirs: list[Piece]) -> int:
    """Return the units with different owners when two contents of equal size are laid on each other."""
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
