"""A new assignment near an old one: other weights, failover of backends that are down, slow start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import NamedTuple

from xenoovs.dataclass import dataclass
from xenoovs.partition.block import MAX_WIDTH, Assignment, Piece, Table
from xenoovs.partition.solve import (
    Option,
    Weight,
    Window,
    block_count,
    first_feasible_width,
    lb2,
    partition,
    solve,
    solve_min_plus,
    strict_windows,
    unreachable,
    whole_weights,
    windows,
)

# A table with other spaces: keep large pieces, merge free buddies, fill the rest best fit first.


class FreeSpace:
    """Free aligned intervals; free buddies are merged."""

    __slots__ = ("_starts", "_total")

    def __init__(self, width: int, pieces: Iterable[Piece]) -> None:
        self._total = 1 << width
        self._starts: dict[int, set[int]] = {1 << bit: set() for bit in range(width + 1)}
        for piece in pieces:
            self._add(piece.start, piece.size)

    def take(self, start: int, size: int) -> bool:
        """Take exactly this interval if it is wholly free."""
        outer = size
        while outer <= self._total:
            holder = start & -outer
            if holder in self._starts[outer]:
                self._starts[outer].remove(holder)
                while outer > size:
                    outer //= 2
                    self._starts[outer].add((start & -outer) ^ outer)
                return True
            outer *= 2
        return False

    def take_any(self, size: int) -> int | None:
        """Take `size` units at the start of the smallest interval that holds them, lowest first. None if none does."""
        outer = size
        while outer <= self._total:
            if self._starts[outer]:
                start = min(self._starts[outer])
                self.take(start, size)
                return start
            outer *= 2
        return None

    def _add(self, start: int, size: int) -> None:
        while start ^ size in self._starts[size]:
            self._starts[size].remove(start ^ size)
            start, size = start & ~size, 2 * size
        self._starts[size].add(start)


def keep_set(pieces: Sequence[Piece], space: int) -> tuple[list[Piece], list[Piece]]:
    """Keep exactly `space` units in as few pieces as possible; return the kept and the released pieces.

    `pieces` belong to one owner and are sorted largest first, then by position.
    """
    kept, skipped = [], []
    for piece in pieces:
        if piece.size <= space:
            kept.append(piece)
            space -= piece.size
        else:
            skipped.append(piece)
    if not space:
        return kept, skipped
    cut = min(skipped, key=lambda piece: (piece.size, piece.start))
    released = [piece for piece in skipped if piece != cut]
    return kept + _aligned(cut.start, space, cut.owner), released + _other_units(cut, space)


def _other_units(piece: Piece, count: int) -> list[Piece]:
    """Return the rest of a piece after its first `count > 0` units as pieces, smallest first."""
    found = []
    while count < piece.size:
        part = count & -count
        found.append(Piece(piece.start + count, part, piece.owner))
        count += part
    return found


def realise(table: Table, wanted: Sequence[int]) -> Table:
    """Return a coalesced table in which owner i has `wanted[i]` units. No owner both loses and gains units."""
    result = table.copy()
    released = []
    for pieces, space in zip(table.by_owner(len(wanted)), wanted, strict=True):
        if sum(piece.size for piece in pieces) > space:
            kept, given = keep_set(pieces, space)
            released += given
            for piece in pieces:
                result.remove(piece)
            for piece in kept:
                result.put(piece)
    fill(result, released, wanted)
    return result


def fill(table: Table, released: Sequence[Piece], wanted: Sequence[int]) -> None:
    """Give the released intervals, which are no longer in the table, to the owners that have less than `wanted`."""
    free = FreeSpace(table.width, released)
    needs = [space - held for space, held in zip(wanted, table.spaces(len(wanted)), strict=True)]
    _merge_buddies(table, free, needs)
    _place_pieces(table, free, needs)
    table.coalesce_all()


def _merge_buddies(table: Table, free: FreeSpace, needs: list[int]) -> None:
    """Extend pieces of growing owners into their free buddies, largest first: that needs no new block."""
    queue = [(-piece.size, piece) for piece in table if needs[piece.owner] >= piece.size]
    heapify(queue)
    while queue:
        _, piece = heappop(queue)
        start, size, owner = piece
        if needs[owner] >= size and piece in table and free.take(start ^ size, size):
            table.remove(piece)
            double = Piece(start & ~size, 2 * size, owner)
            table.put(double)
            needs[owner] -= size
            heappush(queue, (-double.size, double))


def _place_pieces(table: Table, free: FreeSpace, needs: Sequence[int]) -> None:
    """Place the powers of two of every need, largest first, into the smallest free intervals that hold them."""
    queue = [
        (-(1 << bit), owner) for owner, need in enumerate(needs) for bit in range(need.bit_length()) if need >> bit & 1
    ]
    heapify(queue)
    while queue:
        size, owner = heappop(queue)
        start = free.take_any(-size)
        if start is None:
            heappush(queue, (size // 2, owner))
            heappush(queue, (size // 2, owner))
        else:
            table.put(Piece(start, -size, owner))


# Fewer blocks with the same spaces: exchange intervals of equal size so that an owner's pieces become buddies.
#
# An owner with two pieces of one size gives the content of one piece's buddy the position of the other piece, and
# takes the buddy. The exchange is an aligned translation, so it splits nothing. It saves one block, and one more for
# each merge that follows it. Its cost is the number of units that it moves away from the table that clients know.


_PIECES_TRIED = 24
"""Pieces of one owner and size that are paired with each other."""

_BARGAINS = (4, 2, 1)
"""Divisors of the highest price. Exchanges that save many blocks for little movement come first."""


class _Exchange(NamedTuple):
    cost: int
    saved: int
    grown: int
    given: int

    def gain(self, price: Fraction) -> int:
        """Return the worth of the saved blocks minus the units moved, scaled so that both are integers."""
        return self.saved * price.numerator - self.cost * price.denominator


def compact(table: Table, known: Table, price: Fraction | int) -> None:
    """Exchange pieces as long as each saved block moves at most `price` units, compared with `known`."""
    _sweep(table, known, Fraction(price), units=1 << table.width)


def compact_within(table: Table, known: Table, price: Fraction | int, *, units: int) -> None:
    """Exchange pieces as `compact` does, but move at most `units` more units, and take the best exchanges first."""
    for divisor in _BARGAINS:
        units -= _sweep(table, known, Fraction(price) / divisor, units=units)


def compact_to(table: Table, known: Table, blocks: int) -> None:
    """Exchange pieces, at rising prices, until the table has at most `blocks` blocks or no exchange is left."""
    price = 1
    while len(table) > blocks and price <= 1 << (table.width + 1):
        _sweep(table, known, Fraction(price), units=1 << table.width, blocks=blocks)
        price *= 2


def _sweep(table: Table, known: Table, price: Fraction, *, units: int, blocks: int = 0) -> int:
    """Exchange pieces of all owners, small ones first. Return the units moved, at most `units`."""
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
    """Return the best way to double a piece (`grown`) by giving away another (`given`). None if there is no other."""
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
    """Return how many merges follow when a piece merges with its buddy, and the result with its own."""
    start, size, owner = piece
    count = 0
    while Piece(start ^ size, size, owner) in table:
        start, size, count = start & ~size, 2 * size, count + 1
    return count


def _extra_if_owned(known: Table, start: int, content: list[Piece], owner: int) -> int:
    """Return how many more units of an interval would differ from `known` if the owner had all of it."""
    size = sum(piece.size for piece in content)
    before = known.within(start, size)
    return _wrong(before, owner) - _mismatch(content, before)


def _wrong(pieces: Iterable[Piece], owner: int) -> int:
    return sum(piece.size for piece in pieces if piece.owner != owner)


def _mismatch(ours: list[Piece], theirs: list[Piece]) -> int:
    """Return the number of units with different owners in two contents of equal size."""
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


# New weights, backends or tolerance: a new assignment near the old one.
#
# By default the spaces are those that move the fewest units, and among them those with the fewest 1 bits. Then a small
# part more is moved where that makes fewer blocks (`spare_units`). With a price, a change minimises units moved +
# price * blocks. Old owners that are gone, and backends without a weight, give up all they have.


_FULL_WINDOW = 64
"""Size of a window above which only likely values are searched first."""

_MOST_BLOCKS = 4
"""With more blocks than this multiple of the usual number, fewer blocks go before least movement."""

_SPARE_PART = Fraction(1, 4)
"""With the usual number of blocks, this part of the least movement may be moved besides."""

_LEAVING = Fraction(1, 8)
"""Weight of the units of a leaving backend in that part."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a change aims at. A weight of 0 gets no units. `tolerance`: relative difference that a share may have.

    `block_price`: units that may move to save one block; the fewest units move if it is 0, the default above applies if
    it is None. `max_blocks`: most blocks after the change, where exchanges can reach that; no limit if None.
    """

    weights: tuple[Weight, ...]
    tolerance: Fraction
    max_width: int = MAX_WIDTH
    block_price: Fraction | None = None
    max_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """An old table with width and owners of a goal, its spaces and windows. Removed owners share the last index."""

    table: Table
    spaces: tuple[int, ...]
    allowed: tuple[Window, ...]

    @property
    def least_moved(self) -> int:
        """Return the units that any table within the windows must move: the larger of surplus and deficit."""
        over = sum(max(0, space - hi) for space, (_, hi) in zip(self.spaces, self.allowed, strict=True))
        under = sum(max(0, lo - space) for space, (lo, _) in zip(self.spaces, self.allowed, strict=True))
        return max(over, under)

    @property
    def fewest_blocks(self) -> int:
        """Return a lower bound for the blocks of any table within the windows; nearly always a table reaches it."""
        return ceil(lb2(self.allowed, 1 << self.table.width))

    @property
    def usual_blocks(self) -> int:
        """Return how many blocks ordinary weights need, at least the fewest.

        A space has as many bits above the width of its window as the tolerance fixes, and half of them are usually 1.
        16 like backends need 16 blocks, 15 and 17 need many times more: what is usual does not follow such a dip.
        """
        bits = sum(hi.bit_length() - (hi - lo).bit_length() for lo, hi in self.allowed if hi)
        return max(self.fewest_blocks, bits // 2)

    @property
    def spare_units(self) -> int:
        """Return the units that may be moved beyond the least movement for fewer blocks.

        They grow with the square of the blocks there are, so that tables do not get more and more of them. A backend
        that leaves is no reason to move the clients of others: its units count little.
        """
        leaving = sum(space for space, (_, hi) in zip(self.spaces, self.allowed, strict=True) if not hi)
        part = _SPARE_PART * Fraction(len(self.table), self.usual_blocks) ** 2
        return ceil(part * (self.least_moved - leaving)) + int(part * _LEAVING * leaving)


def start(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> Start:
    """`owners[i]`: new index of old backend i, None if it is gone; two may become one. Indices stay if `owners` is left
    out.

    The width grows where the goal needs it. Raises ToleranceUnreachable.
    """
    backends = len(goal.weights)
    width = first_feasible_width(goal.weights, goal.tolerance, goal.max_width)
    if width is None:
        raise unreachable(whole_weights(goal.weights), goal.tolerance, goal.max_width)
    if goal.block_price or goal.max_blocks is not None:
        # Only a width at which the fewest blocks can be had reaches them.
        width = partition(goal.weights, tolerance=goal.tolerance, max_width=goal.max_width).assignment.width
    width = max(width, min(old.width, goal.max_width), *(block.depth for block, _ in old.blocks))
    table = Table.of(old, width, renumbered(old, backends, owners))
    kept = [index for index in owners or () if index is not None]
    if len({*kept}) < len(kept):
        table.coalesce_all()
    allowed = (*windows(goal.weights, width, goal.tolerance), Window(0, 0))
    return Start(table, tuple(table.spaces(backends + 1)), allowed)


def renumbered(old: Assignment, backends: int, owners: Sequence[int | None] | None) -> list[int]:
    """Return the new index of every old backend; `backends`, the first unused index, for those that are gone."""
    kept = range(old.backends) if owners is None else owners
    return [index if index is not None and index < backends else backends for index in kept]


def update(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> Assignment:
    """Return an assignment within the goal's windows that is near the old one.

    `owners` as in `start`. Without a price nothing changes if the old assignment meets the windows and `max_blocks`. If
    the old one uses more bits than the goal allows, the new one does not depend on it. Raises ToleranceUnreachable.
    """
    if any(block.depth > goal.max_width for block, _ in old.blocks):
        return partition(goal.weights, tolerance=goal.tolerance, max_width=goal.max_width).assignment
    begin = start(old, goal, owners=owners)
    table = cheapest_change(begin, goal.block_price) if goal.block_price else _nearest(begin, goal)
    if goal.max_blocks is not None:
        compact_to(table, begin.table, goal.max_blocks)
        if len(table) > goal.max_blocks:
            table = cheapest_change(begin, Fraction(1 << begin.table.width))
    return table.assignment(len(goal.weights))


def _nearest(begin: Start, goal: Goal) -> Table:
    """Return a table within the windows that moves the fewest units, by default a few more for fewer blocks."""
    total = 1 << begin.table.width
    result = realise(begin.table, solve(strict_windows(begin.spaces, begin.allowed), total))
    spare = 0 if goal.block_price == 0 else begin.spare_units
    # no block is worth more than half a block of mean size
    compact_within(result, begin.table, Fraction(total, 2 * begin.fewest_blocks), units=spare)
    if goal.block_price is None and begin.least_moved:
        compact_to(result, begin.table, _MOST_BLOCKS * begin.usual_blocks)
    return result


def cheapest_change(begin: Start, price: Fraction) -> Table:
    """Return a table in the windows for which units moved + `price` * blocks is small. ValueError: there is none."""
    result = realise(begin.table, _cheapest_spaces(begin, price))
    compact(result, begin.table, price)
    return result


def _cheapest_spaces(begin: Start, price: Fraction) -> tuple[int, ...]:
    total = 1 << begin.table.width
    # A block that is worth all units is saved wherever it can be.
    most = block_count(solve(begin.allowed, total)) if price >= total else inf
    for candidates in (_likely_values, lambda _space, window: range(window.lo, window.hi + 1)):
        options = [
            _priced(candidates(space, window), space, price)
            for space, window in zip(begin.spaces, begin.allowed, strict=True)
        ]
        spaces = solve_min_plus(options, total)
        if spaces is not None and block_count(spaces) <= most:
            return spaces
    raise ValueError(f"no spaces within the windows sum to {total}")


def _priced(values: Sequence[int], space: int, price: Fraction) -> list[Option]:
    """Return the cost of each value: units gained plus the price of the blocks, scaled to whole numbers."""
    return [
        (value, max(0, value - space) * price.denominator + price.numerator * value.bit_count()) for value in values
    ]


def _likely_values(space: int, window: Window) -> Sequence[int]:
    """Return the window if it is small, else about 100 values: near its ends and the old space, and round ones."""
    lo, hi = window
    if hi - lo < _FULL_WINDOW:
        return range(lo, hi + 1)
    bases = {lo, hi, space}
    values = bases | set(range(lo, lo + 9))
    for base in bases:
        for bit in range((hi - lo).bit_length() + 1):
            low_bits = (1 << bit) - 1
            for rounded in (base & ~low_bits, (base | low_bits) + 1):
                values.add(rounded)
                values.update(rounded + sign * (1 << lower) for lower in range(bit) for sign in (1, -1))
    return sorted(value for value in values if lo <= value <= hi)


# Failover: the clients of backends that are down go to other backends until these return; all other clients stay.
#
# `home` is the assignment for all backends, `active` the one in use. When a backend returns, its failover blocks go
# back to it; nothing else is computed again.


_WIDTHS_TRIED = 3
_WIDENINGS = 10
"""Steps of the binary search for the least tolerance that keeps the home blocks; more steps change no useful window."""


_PIECE = 8
"""Cost of a piece. The distance of a space from the middle of its window costs fractions of it."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The address space in three parts: `home` is fixed, `failover` may move, `free` has no owner."""

    width: int
    home: tuple[Piece, ...]
    failover: tuple[Piece, ...]
    free: tuple[Piece, ...]

    def held(self, backends: int) -> list[int]:
        return _units_by_owner((*self.home, *self.failover), backends)

    def without_failover(self) -> _Parts:
        return _Parts(self.width, self.home, (), (*self.free, *self.failover))


def failover(
    home: Assignment,
    active: Assignment,
    *,
    goal: Goal,
    down: Collection[int],
    closed: Collection[int] = (),
    owners: Sequence[int | None] | None = None,
) -> Assignment:
    """Return the assignment to use while the backends `down` serve nothing, and `closed` their home blocks alone.

    Blocks whose home owner is up belong to it. The others stay with the owner that they have, if the shares of the rest
    allow it. With no backend down the result is `home`.

    More bits than those of `home` are used where the tolerance needs them. If no width up to the goal's keeps the home
    blocks and the tolerance, the least tolerance that does is used.

    Args:
        home: Made for `goal`, with all backends.
        active: In use now; `home` itself at first.
        closed: Ignored where all that are not down are among them.
        owners: The index in `home` of each backend of `active`; None in it: gone; None: indices are the same.

    Raises:
        ValueError: No weight is left.
    """
    if not any(owner in down for _, owner in home.blocks):
        return home
    weights: Sequence[Weight] = tuple(0 if index in down else weight for index, weight in enumerate(goal.weights))
    if not any(weight for index, weight in enumerate(weights) if index not in closed):
        closed = ()
    weights = _with_home_shares(weights, home, closed)
    first = first_feasible_width(weights, goal.tolerance, goal.max_width)
    least = max(home.width, active.width, goal.max_width if first is None else first)
    most = max(least, min(least + _WIDTHS_TRIED - 1, goal.max_width))
    known = renumbered(active, home.backends, owners)
    for width in range(least, most + 1):
        parts = _parts(home, Table.of(active, width, known), {*down, home.backends}, closed)
        result = _within(parts, _windows(parts, weights, goal.tolerance, closed))
        if result is not None:
            return result.assignment(home.backends)
    return _with_least_tolerance(parts.without_failover(), weights, goal.tolerance, closed).assignment(home.backends)


def _with_home_shares(weights: Sequence[Weight], home: Assignment, closed: Collection[int]) -> Sequence[Weight]:
    """Return weights by which each closed backend gets exactly its home blocks, and the others share the rest."""
    if not closed:
        return weights
    spaces = home.spaces()
    rest = (1 << home.width) - sum(spaces[index] for index in closed)
    others = sum(weight for index, weight in enumerate(weights) if index not in closed)
    return [Fraction(others) * spaces[i] / rest if i in closed else weight for i, weight in enumerate(weights)]


def _windows(parts: _Parts, weights: Sequence[Weight], tolerance: Fraction, closed: Collection[int]) -> list[Window]:
    """Return the window of each backend. A closed backend has exactly its home blocks."""
    home = _units_by_owner(parts.home, len(weights))
    allowed = windows(weights, parts.width, tolerance)
    return [Window(home[i], home[i]) if i in closed else window for i, window in enumerate(allowed)]


def _parts(home: Assignment, active: Table, down: Collection[int], closed: Collection[int]) -> _Parts:
    width = active.width
    own: list[Piece] = []
    elsewhere: list[Piece] = []
    free: list[Piece] = []
    for piece in Table.of(home, width):
        if piece.owner not in down:
            own.append(piece)
            continue
        for part in active.within(piece.start, piece.size):
            (free if part.owner in down or part.owner in closed else elsewhere).append(part)
    return _Parts(width, _coalesced(width, own), _coalesced(width, elsewhere), tuple(free))


def _coalesced(width: int, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    table = Table(width, pieces)
    table.coalesce_all()
    return tuple(table)


def _units_by_owner(pieces: Iterable[Piece], backends: int) -> list[int]:
    units = [0] * backends
    for piece in pieces:
        units[piece.owner] += piece.size
    return units


def _within(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """Return a table within the windows: give away free parts, if that fails move few failover blocks, then all."""
    held = parts.held(len(allowed))
    if not parts.free and all(lo <= units <= hi for units, (lo, hi) in zip(held, allowed, strict=True)):
        return _fill(parts, held)
    return (
        (_grown(parts, allowed) if parts.free else None)
        or _with_failover_moved(parts, allowed)
        or _grown(parts.without_failover(), allowed)
    )


def _grown(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """Give away the free parts and change nothing else. None if the windows forbid it."""
    held = parts.held(len(allowed))
    ranges = [Window(max(units, lo), hi) for units, (lo, hi) in zip(held, allowed, strict=True)]
    spaces = _even_spaces(parts, ranges, allowed)
    return None if spaces is None else _fill(parts, spaces)


def _with_failover_moved(parts: _Parts, allowed: Sequence[Window]) -> Table | None:
    """Move as few failover blocks as possible. None if home blocks would have to move."""
    backends = len(allowed)
    held, home = parts.held(backends), _units_by_owner(parts.home, backends)
    free = sum(piece.size for piece in parts.free)
    ranges = strict_windows((*held, free), (*allowed, Window(0, 0)), (*home, 0))[:-1]
    spaces = _even_spaces(parts, ranges, allowed)
    if spaces is None:
        return None
    kept: list[Piece] = []
    released: list[Piece] = []
    for pieces, space, least in zip(Table(parts.width, parts.failover).by_owner(backends), spaces, home, strict=True):
        stay, leave = keep_set(pieces, min(space - least, sum(piece.size for piece in pieces)))
        kept += stay
        released += leave
    return _fill(_Parts(parts.width, parts.home, tuple(kept), (*parts.free, *released)), spaces)


def _fill(parts: _Parts, spaces: Sequence[int]) -> Table:
    table = Table(parts.width, (*parts.home, *parts.failover))
    table.coalesce_all()
    fill(table, parts.free, spaces)
    return table


def _even_spaces(parts: _Parts, ranges: Sequence[Window], allowed: Sequence[Window]) -> tuple[int, ...] | None:
    """Return spaces within `ranges` that need few new pieces. None if no spaces are within them.

    A space at the end of its window costs as much as one more piece: the next failure or return would push it out.
    """
    options = [
        [
            (space, _PIECE * abs(space - units).bit_count() + _PIECE * abs(2 * space - lo - hi) // max(1, hi - lo))
            for space in range(narrowed.lo, narrowed.hi + 1)
        ]
        for units, narrowed, (lo, hi) in zip(parts.held(len(allowed)), ranges, allowed, strict=True)
    ]
    return solve_min_plus(options, 1 << parts.width)


def _with_least_tolerance(
    parts: _Parts, weights: Sequence[Weight], tolerance: Fraction, closed: Collection[int]
) -> Table:
    """Distribute all failover blocks again, within the least tolerance that the home blocks allow."""
    low, high = tolerance, max(2 * tolerance, Fraction(1, 100))
    while (table := _grown(parts, _windows(parts, weights, high, closed))) is None:
        low, high = high, 2 * high
    for _ in range(_WIDENINGS):
        middle = (low + high) / 2
        closer = _grown(parts, _windows(parts, weights, middle, closed))
        if closer is None:
            low = middle
        else:
            table, high = closer, middle
    return table


# Slow start: a backend that returns gets its home blocks back part by part; no other client moves for it.


STEPS = 8
"""Steps of a slow start. A power of two splits blocks, and so hardware entries, into the fewest parts."""

_STEP_BITS = STEPS.bit_length() - 1


def slow_start(home: Assignment, below: Assignment, *, parts: Mapping[int, Fraction], max_width: int) -> Assignment:
    """Return `below` with the part `parts[i]` (0..1) of the home blocks of backend i given back to it.

    A larger part contains every smaller part. Parts are cut finer than blocks only as far as `max_width` bits allow;
    then the part is rounded up to whole units. `below`: the failover assignment while all these backends serve nothing.
    """
    width = min(max(home.width, below.width) + _STEP_BITS, max(max_width, home.width, below.width))
    whole = Table.of(home, width)
    back = [cut for owner, part in sorted(parts.items()) for cut in _first_part(_held(whole, owner), part)]
    returned = Table(width, back)
    rest = [part for piece in Table.of(below, width) for part in _outside(piece, returned)]
    table = Table(width, (*back, *rest))
    table.coalesce_all()
    return table.assignment(home.backends)


def part_of(home: Assignment, active: Assignment, owner: int, *, active_owner: int) -> Fraction:
    """Return the part of its home blocks that `owner` has in `active`, in whole steps; 0 if it has none."""
    width = max(home.width, active.width)
    now = Table.of(active, width)
    pieces = _held(Table.of(home, width), owner)
    held = sum(p.size for piece in pieces for p in now.within(piece.start, piece.size) if p.owner == active_owner)
    whole = sum(piece.size for piece in pieces)
    return Fraction(held * STEPS // whole, STEPS) if whole else Fraction(0)


def _held(table: Table, owner: int) -> list[Piece]:
    return [piece for piece in table if piece.owner == owner]


def _first_part(pieces: list[Piece], part: Fraction) -> list[Piece]:
    """Return the first part of each piece. Pieces that are too small to be cut are returned whole, one by one."""
    small = [piece for piece in pieces if piece.size < STEPS]
    units = [Piece(piece.start + step, 1, piece.owner) for piece in small for step in range(piece.size)]
    count = -int(-part * len(units) // 1)
    cuts = [cut for p in pieces if p.size >= STEPS for cut in _aligned(p.start, int(part * p.size), p.owner)]
    return [*cuts, *units[:count]]


def _aligned(start: int, length: int, owner: int) -> list[Piece]:
    """Return the interval from an aligned start as aligned pieces, largest first."""
    made = []
    while length:
        size = 1 << (length.bit_length() - 1)
        made.append(Piece(start, size, owner))
        start, length = start + size, length - size
    return made


def _outside(piece: Piece, covered: Table) -> list[Piece]:
    if any(t.start <= piece.start and piece.start + piece.size <= t.start + t.size for t in covered):
        return []
    if not any(piece.start <= t.start < piece.start + piece.size for t in covered):
        return [piece]
    half = piece.size // 2
    halves = (Piece(piece.start, half, piece.owner), Piece(piece.start + half, half, piece.owner))
    return [part for side in halves for part in _outside(side, covered)]
