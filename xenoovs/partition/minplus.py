"""Solver B: one value per backend with a given sum and the least cost, by (min,+) dynamic programming.

Works for any cost. Vectors are numpy arrays where numpy is installed and plain lists where it is not; the result is the
same. numpy is imported on first use, because most services never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

Option = tuple[int, int]
"""(value, cost): a value that a backend may take, and its cost; values >= 0, costs of any sign."""

_SMALL_WORK = 50_000
"""Steps below which plain lists beat the import of numpy."""


def solve_min_plus(options: Sequence[Sequence[Option]], total: int) -> tuple[int, ...] | None:
    """One value per backend, sum `total`, least sum of costs; None if no choice has that sum.

    Ties are broken towards the option that stands first, for the last backend first.
    """
    if not all(options):
        return None
    lowest = [min(value for value, _ in choice) for choice in options]
    highest = [max(value for value, _ in choice) for choice in options]
    room_low, room_high = total - sum(lowest), sum(highest) - total
    if room_low < 0 or room_high < 0:
        return None
    reach = min(room_low, room_high)
    sign, base = (1, lowest) if reach == room_low else (-1, highest)
    steps = [
        [(offset, cost) for value, cost in choice if (offset := sign * (value - start)) <= reach]
        for choice, start in zip(options, base, strict=True)
    ]
    work = sum(map(len, steps)) * (reach + 1)
    solver = _solve_numpy if work > _SMALL_WORK and find_spec("numpy") is not None else _solve_lists
    offsets = solver(steps, reach)
    if offsets is None:
        return None
    return tuple(start + sign * offset for start, offset in zip(base, offsets, strict=True))


def _worst(steps: Sequence[Sequence[Option]]) -> int:
    """A cost that no choice reaches."""
    return sum(max(abs(cost) for _, cost in choice) for choice in steps) + 1


def _solve_lists(steps: Sequence[Sequence[Option]], reach: int) -> list[int] | None:
    never = 2 * _worst(steps)
    rows = [[0] + [never] * reach]
    for choice in steps:
        before, row = rows[-1], [never] * (reach + 1)
        for offset, cost in choice:
            row[offset:] = [
                old if old <= (new := known + cost) else new for old, known in zip(row[offset:], before, strict=False)
            ]
        rows.append(row)
    return _trace_back(steps, reach, lambda index, rest: rows[index][rest], never // 2)


def _solve_numpy(steps: Sequence[Sequence[Option]], reach: int) -> list[int] | None:
    import numpy as np  # takes a tenth of a second, and most services never get here

    never = 2 * _worst(steps)
    kind = next(dtype for dtype in (np.int16, np.int32, np.int64) if 2 * never < np.iinfo(dtype).max)
    rows: list[NDArray[Any]] = [np.full(reach + 1, never, dtype=kind)]
    rows[0][0] = 0
    shifted = np.empty(reach + 1, dtype=kind)
    for choice in steps:
        row = np.full(reach + 1, never, dtype=kind)
        for offset, cost in choice:
            length = reach + 1 - offset
            np.add(rows[-1][:length], cost, out=shifted[:length])
            np.minimum(row[offset:], shifted[:length], out=row[offset:])
        rows.append(row)
    return _trace_back(steps, reach, lambda index, rest: int(rows[index][rest]), never // 2)


def _trace_back(
    steps: Sequence[Sequence[Option]], reach: int, cost_at: Callable[[int, int], int], never: int
) -> list[int] | None:
    """The offsets of a cheapest choice. `cost_at(i, r)`: the least cost of sum r with the first i backends."""
    rest, due = reach, cost_at(len(steps), reach)
    if due >= never:
        return None
    chosen = []
    for index in range(len(steps) - 1, -1, -1):
        offset, cost = next(
            (offset, cost)
            for offset, cost in steps[index]
            if offset <= rest and cost_at(index, rest - offset) + cost == due
        )
        chosen.append(offset)
        rest -= offset
        due -= cost
    return chosen[::-1]
