"""Measure how many clients changes move, against how many blocks there are: `scripts/movement.py [--seed N] [--write]`.

`--write` puts two tables and the picture into docs/explanation/movement.md; without it they are printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.movement_streams import CONFIG, Change, Cost, Kind, Step, by_update, measure, measure_health
from xenoovs.partition.block import Assignment
from xenoovs.partition.change import Goal, start, update

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "movement.md"

UNLIKE = Kind("8 to 20 backends of different weights", 8, 20, 20)
LIKE = Kind("14 to 20 backends of one weight", 14, 20, 1, (Step.REMOVAL, Step.ADDITION))
CHAIN = Kind("19 of different weights", 2, 19, 20, (Step.REMOVAL,))
KINDS = (
    Kind("2 to 8 backends", 2, 8, 20),
    UNLIKE,
    Kind("30 to 64 backends", 30, 64, 20),
    Kind("150 to 250 backends", 150, 250, 20),
    LIKE,
)
TOLERANCE = Fraction(5, 100)
TOLERANCES = (Fraction(1, 100), TOLERANCE, Fraction(10, 100))

_ON_THE_PAGE = ("curve-like", "default")
"""The page has these tables; of the others it has a sentence."""

PRICES = tuple(Fraction(1, 1 << power) for power in range(6))
"""Prices of a block, in blocks of mean size."""

_WIDTH, _HEIGHT = 900, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 860, 60, 390
_MOST_BLOCKS, _MOST_MOVED = 3.0, 2.0
"""Size of the picture, edges of its diagram, and the ends of the axes."""


class Point(NamedTuple):
    """A setting and what it costs: `blocks` in multiples of the fewest, `moved` in multiples of the least."""

    name: str
    blocks: float
    moved: float


class Curve(NamedTuple):
    """The points of fixed prices, and others of the same streams."""

    name: str
    colour: str
    prices: tuple[Point, ...]
    others: tuple[Point, ...]


def main() -> None:
    """Measure everything and print it, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="first of the seeds")
    parser.add_argument("--streams", type=int, default=3, help="streams of each kind")
    parser.add_argument("--events", type=int, default=60, help="events of each stream")
    parser.add_argument("--write", action="store_true", help="write docs/explanation/movement.md and its picture")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.streams)
    unlike, like = (curve_of(kind, seeds, given.events) for kind in (UNLIKE, LIKE))
    tables = {
        "curve-unlike": curve_table(unlike),
        "curve-like": curve_table(like),
        "default": default_table(seeds, given.events),
        "health": health_table(seeds, given.events),
        "long": long_table(given.seed),
        "chain": chain_table(seeds),
    }
    drawing = picture((_drawn(UNLIKE.name, "#4e79a7", unlike), _drawn(LIKE.name, "#e15759", like)))
    if given.write:
        PAGE.with_suffix(".svg").write_text(drawing)
        PAGE.write_text(filled(PAGE.read_text(), {name: tables[name] for name in _ON_THE_PAGE}))
        return
    for name, lines in tables.items():
        print(f"{name}\n\n{lines}\n")


def curve_of(kind: Kind, seeds: Sequence[int], events: int) -> dict[str, Cost]:
    """Return the cost of each churn, and of fixed prices of a block."""
    settings: dict[str, Change] = {
        "`churn: compact`": at_price(Fraction(1 << 16)),
        **{f"a block is worth {_part(price)} of mean size": at_price(price) for price in PRICES},
        "`churn: least`": by_least,
        "`churn: balanced`": by_update,
    }
    return {
        name: measure(kind, TOLERANCE, seeds=seeds, events=events, change=change) for name, change in settings.items()
    }


def at_price(price: Fraction) -> Change:
    """Return the change that minimises units moved + price * blocks, at a price in blocks of mean size."""

    def change(old: Assignment, goal: Goal, owners: Sequence[int | None]) -> Assignment:
        begin = start(old, goal, owners=owners)
        units = price * Fraction(1 << begin.table.width, begin.fewest_blocks)
        return update(old, replace(goal, block_price=units), owners=owners)

    return change


def by_least(old: Assignment, goal: Goal, owners: Sequence[int | None]) -> Assignment:
    """Change the blocks as `churn: least` does."""
    return update(old, replace(goal, block_price=Fraction(0)), owners=owners)


def curve_table(costs: dict[str, Cost]) -> str:
    """Return the rows of one curve."""
    steps = [step for step in CONFIG if any(step in cost.moved for cost in costs.values())]
    rows = [["setting", "all", *(step.value for step in steps), "blocks", "most"]]
    for name, cost in costs.items():
        rows.append([name, _times(cost.movement()), *(_times(cost.movement(step)) for step in steps), *_blocks(cost)])
    return _table(rows)


def default_table(seeds: Sequence[int], events: int) -> str:
    """Return what `churn: balanced` costs for each kind."""
    rows = [["backends", "tolerance", *(step.value for step in CONFIG), "blocks", "most"]]
    for kind in KINDS:
        rows.append(default_row(kind, TOLERANCE, seeds, events))
    return _table(rows)


def default_row(kind: Kind, tolerance: Fraction, seeds: Sequence[int], events: int) -> list[str]:
    """Return the cells of one kind and tolerance."""
    cost = measure(kind, tolerance, seeds=seeds, events=events)
    moved = (_times(cost.movement(step)) if step in cost.moved else "" for step in CONFIG)
    return [kind.name, f"{tolerance * 100}%", *moved, *_blocks(cost)]


def health_table(seeds: Sequence[int], events: int) -> str:
    """Return what deaths and returns cost for each kind and tolerance."""
    rows = [["backends", "tolerance", "both", "deaths", "returns", "blocks", "most"]]
    for kind in (KINDS[0], UNLIKE, LIKE):
        for tolerance in TOLERANCES:
            cost = measure_health(kind, tolerance, seeds=seeds, events=events)
            moved = (cost.movement(), cost.movement(Step.DEATH), cost.movement(Step.RETURN))
            rows.append([kind.name, f"{tolerance * 100}%", *map(_times, moved), *_blocks(cost)])
    return _table(rows)


def long_table(seed: int) -> str:
    """Return the blocks over a long stream, by hundreds of events."""
    rows = [["backends", "events 1 to 100", "101 to 200", "201 to 300"]]
    for kind in (KINDS[0], UNLIKE, LIKE):
        blocks = measure(kind, TOLERANCE, seeds=[seed], events=300).blocks
        parts = (blocks[first : first + 100] for first in range(0, 300, 100))
        rows.append([kind.name, *(_times(sum(part, Fraction(0)) / len(part)) for part in parts)])
    return _table(rows)


def chain_table(seeds: Sequence[int]) -> str:
    """Return what removals alone cost, down to two backends."""
    rows = [["backends", Step.REMOVAL.value, "blocks", "most"]]
    for kind in (CHAIN, replace(CHAIN, name="19 of one weight", heaviest=1)):
        cost = measure(kind, TOLERANCE, seeds=seeds, events=17)
        rows.append([kind.name, _times(cost.movement()), *_blocks(cost)])
    return _table(rows)


def filled(page: str, tables: dict[str, str]) -> str:
    """Return the page with the text between its markers replaced. Raises ValueError for a marker that it lacks."""
    for name, text in tables.items():
        begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
        page, count = re.subn(f"{begin}.*?{end}", f"{begin}{text}\n{end}", page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE} has {count} parts `{name}`, not one")
    return page


def _drawn(name: str, colour: str, costs: dict[str, Cost]) -> Curve:
    points = {title: Point(title.strip("`"), float(c.mean_blocks), float(c.movement())) for title, c in costs.items()}
    balanced = costs["`churn: balanced`"]
    removals = Point("its removals", float(balanced.mean_blocks), float(balanced.movement(Step.REMOVAL)))
    prices = tuple(point for title, point in points.items() if "worth" in title)
    return Curve(name, colour, prices, (points["`churn: balanced`"], removals))


def picture(curves: tuple[Curve, ...]) -> str:
    """Return the picture; points beyond its edges are left out."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="20" y="32" font-size="18" font-weight="bold">Clients moved against blocks, tolerance 5%</text>',
        *_axes(),
    ]
    lines += chain.from_iterable(map(_curve, curves))
    for number, curve in enumerate(curves):
        lines += _others(curve)
        y = _TOP + 20 + 22 * number
        lines.append(f'<rect x="560" y="{y - 11}" width="14" height="14" fill="{curve.colour}"/>')
        lines.append(f'<text x="582" y="{y + 1}">{curve.name}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _axes() -> Iterator[str]:
    for step in range(5):
        blocks = 1 + step * (_MOST_BLOCKS - 1) / 4
        yield f'<line x1="{_x(blocks):.1f}" y1="{_TOP}" x2="{_x(blocks):.1f}" y2="{_BOTTOM}" stroke="#ddd"/>'
        yield f'<text x="{_x(blocks):.1f}" y="{_BOTTOM + 22}" text-anchor="middle" fill="#555">{blocks:g}</text>'
        moved = 1 + step * (_MOST_MOVED - 1) / 4
        yield f'<line x1="{_LEFT}" y1="{_y(moved):.1f}" x2="{_RIGHT}" y2="{_y(moved):.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 12}" y="{_y(moved) + 5:.1f}" text-anchor="end" fill="#555">{moved:g}</text>'
    yield f'<text x="{_RIGHT}" y="{_BOTTOM + 46}" text-anchor="end">blocks, in multiples of the fewest</text>'
    yield f'<text x="{_LEFT - 60}" y="{_TOP - 8}">clients moved, in multiples of the least possible</text>'


def _curve(curve: Curve) -> Iterator[str]:
    inside = [point for point in curve.prices if _is_inside(point)]
    path = " ".join(f"{_x(point.blocks):.1f},{_y(point.moved):.1f}" for point in inside)
    yield f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="2"/>'
    for point in inside:
        yield f'<circle cx="{_x(point.blocks):.1f}" cy="{_y(point.moved):.1f}" r="3.5" fill="{curve.colour}"/>'


def _others(curve: Curve) -> Iterator[str]:
    for point in filter(_is_inside, curve.others):
        x, y = _x(point.blocks), _y(point.moved)
        square = f'x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" fill="#fff" stroke="{curve.colour}"'
        yield f'<rect {square} stroke-width="3"/>'
        halo = 'stroke="#fff" stroke-width="5" paint-order="stroke"'  # a curve may pass behind the name
        yield f'<text x="{x + 12:.1f}" y="{y + 5:.1f}" fill="#333" {halo}>{point.name}</text>'


def _is_inside(point: Point) -> bool:
    return point.blocks <= _MOST_BLOCKS and point.moved <= _MOST_MOVED


def _x(blocks: float) -> float:
    return _LEFT + (blocks - 1) / (_MOST_BLOCKS - 1) * (_RIGHT - _LEFT)


def _y(moved: float) -> float:
    return _BOTTOM - (moved - 1) / (_MOST_MOVED - 1) * (_BOTTOM - _TOP)


def _part(price: Fraction) -> str:
    return "one" if price == 1 else f"{price}"


def _blocks(cost: Cost) -> Iterator[str]:
    yield _times(cost.mean_blocks)
    yield _times(max(cost.blocks))


def _times(value: Fraction) -> str:
    return f"{float(value):.2f}"


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


if __name__ == "__main__":
    main()
