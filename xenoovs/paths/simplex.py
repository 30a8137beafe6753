"""An exact linear program in fractions: the simplex method with Bland's rule."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

Row = list[Fraction]


class Optimum(NamedTuple):
    """The best x, and of each constraint how much the first objective gains by a unit more of its limit."""

    x: list[Fraction]
    prices: list[Fraction]


class Unbounded(ValueError):
    """No constraint limits a variable. `variable`: its index."""

    def __init__(self, variable: int) -> None:
        self.variable = variable
        super().__init__(f"variable {variable} has no limit")


def maximise(
    objectives: Sequence[Sequence[Fraction]], rows: Sequence[Sequence[Fraction]], limits: Sequence[Fraction]
) -> Optimum:
    """Return the x >= 0 with `rows` x <= `limits` that is best by the first objective, then by the second, and so on.

    Bland's rule makes it end (R. Bland, New finite pivoting rules for the simplex method, 1977). `limits`: none below
    0, so that x = 0 is a first solution. Raises Unbounded: an objective can grow without a limit.
    """
    size = len(objectives[0]) if objectives else 0
    # Columns: the variables, a slack of each constraint, the right side.
    table = [
        [*map(Fraction, row), *(Fraction(int(index == other)) for other in range(len(rows))), Fraction(limit)]
        for index, (row, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    basis = [size + index for index in range(len(rows))]
    usable = set(range(size + len(rows)))
    prices = list[Fraction]()
    for objective in objectives:
        costs = _reduced([*objective, *([Fraction(0)] * (len(rows) + 1))], table, basis)
        while (entering := min((c for c in usable if costs[c] > 0), default=None)) is not None:
            costs = _pivot(table, basis, costs, entering)
        # The reduced costs of the slacks are the dual solution, with the sign turned.
        prices = prices or [-cost for cost in costs[size:-1]]
        # A column that would lower this objective stays at 0 for all later ones.
        usable -= {column for column in usable if costs[column] < 0}
    solution = [Fraction(0)] * (size + len(rows))
    for row, column in zip(table, basis, strict=True):
        solution[column] = row[-1]
    return Optimum(solution[:size], prices)


def _reduced(costs: Row, table: list[Row], basis: list[int]) -> Row:
    """Return the costs without the columns of the basis."""
    for row, column in zip(table, basis, strict=True):
        if factor := costs[column]:
            costs = [cost - factor * value for cost, value in zip(costs, row, strict=True)]
    return costs


def _pivot(table: list[Row], basis: list[int], costs: Row, entering: int) -> Row:
    """Bring a column into the basis, and return the costs without it."""
    steps = [(row[-1] / row[entering], basis[index], index) for index, row in enumerate(table) if row[entering] > 0]
    if not steps:
        raise Unbounded(entering)
    _, _, leaving = min(steps)
    pivot = table[leaving][entering]
    table[leaving] = [value / pivot for value in table[leaving]]
    for index, row in enumerate(table):
        if index != leaving and (factor := row[entering]):
            table[index] = [a - factor * b for a, b in zip(row, table[leaving], strict=True)]
    basis[leaving] = entering
    factor = costs[entering]
    return [cost - factor * value for cost, value in zip(costs, table[leaving], strict=True)]
