"""The clients of a service as a strip: one cell for a block, or for a column where there are very many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xenoovs.agent.snapshot import BlockView
from xenoovs.agent.web.html import Markup, element
from xenoovs.openflow.value import render_bits
from xenoovs.verify.verdict import Verdict

COLUMNS = 512
"""Most cells that a strip is drawn with: a screen shows no more."""

_GAPS_UP_TO = 128


@dataclass(frozen=True, slots=True)
class Cell:
    """Part of the strip. start, size: 0..1. `tip`: what it is, in words."""

    start: float
    size: float
    backend: str
    verdict: Verdict | None
    tip: str


def cells(blocks: Sequence[BlockView]) -> tuple[Cell, ...]:
    """What is to be drawn, in this order: later ones cover earlier ones."""
    if len(blocks) <= COLUMNS:
        return tuple(Cell(b.start, b.size, b.backend, b.verdict, _tip(b)) for b in blocks)
    return tuple(_runs(blocks))


def draw(drawn: Iterable[Cell], classes: Iterable[str], *, label: str) -> Markup:
    """The strip as SVG, one class a cell."""
    pairs = list(zip(drawn, classes, strict=True))
    rects = (
        element(
            "rect",
            element("title", cell.tip),
            class_=name,
            x=_percent(cell.start),
            width=_percent(cell.size),
            height="100%",
        )
        for cell, name in pairs
    )
    gaps = "strip gaps" if len(pairs) <= _GAPS_UP_TO else "strip"
    return element("svg", *rects, class_=gaps, role="img", tabindex="0", aria_label=label)


def _runs(blocks: Sequence[BlockView]) -> Iterator[Cell]:
    """Columns that look alike as one cell."""
    columns: list[BlockView | None] = [None] * COLUMNS
    for block in blocks:
        first = int(block.start * COLUMNS)
        for column in range(first, max(first + 1, int((block.start + block.size) * COLUMNS))):
            columns[min(column, COLUMNS - 1)] = block
    start = 0
    for column in range(1, COLUMNS + 1):
        here = columns[start]
        if column < COLUMNS and _looks(columns[column]) == _looks(here):
            continue
        if here is not None:
            tip = f"{here.backend} · {_word(here.verdict)} · {len(blocks)} blocks in {COLUMNS} columns"
            yield Cell(start / COLUMNS, (column - start) / COLUMNS, here.backend, here.verdict, tip)
        start = column


def _looks(block: BlockView | None) -> tuple[str, Verdict | None] | None:
    return None if block is None else (block.backend, block.verdict)


def _tip(block: BlockView) -> str:
    value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
    return f"{block.backend} · {_word(block.verdict)} · {block.field}={value}/{mask}"


def _word(verdict: Verdict | None) -> str:
    return "not looked at yet" if verdict is None else verdict.value


def _percent(share: float) -> str:
    return f"{share * 100:.5g}%"
