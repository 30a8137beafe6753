"""What a picture shows, as values: axes, lines, boxes and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xenoovs.dataclass import dataclass, field
from xenoovs.measure.samples import RecordedRun
from xenoovs.measure.statistics import Interval, Quantiles
from xenoovs.measure.verdict import ClaimVerdict


@dataclass(frozen=True, slots=True)
class ChartMark:
    """One point of a line, or one bar.

    `is_suspect`: Whether all its samples are. `is_unfinished`: Whether what was timed had not ended: the value is a
    limit.
    """

    x: float
    value: Interval
    is_suspect: bool = False
    is_unfinished: bool = False

    @classmethod
    def exactly(cls, value: float, x: float = 0.0) -> ChartMark:
        return cls(x, Interval(value, value, value, 1))


@dataclass(frozen=True, slots=True)
class ChartLine:
    """Points that belong together. `color`: Number of its colour; None: a reference, thin and grey."""

    label: str
    marks: tuple[ChartMark, ...]
    color: int | None = None
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A box plot. `place`: number of the run, for boxes side by side."""

    x: float
    value: Quantiles
    place: int = 0
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars of one colour, one for each category that has a value."""

    label: str
    marks: Mapping[str, ChartMark]
    color: int


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis. `ticks`: places with their labels; empty: the usual ones."""

    label: str
    is_log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    unit: float = 1.0
    """Values are divided by it, as 1e6 for Mpps."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One coordinate system. `categories`: names of the rows of bars, from the top."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[ChartLine, ...] = ()
    boxes: tuple[Box, ...] = ()
    bars: tuple[Bars, ...] = ()
    categories: tuple[str, ...] = ()


Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class ChartTable:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(i for row in self.rows for i, cell in enumerate(row) if isinstance(cell, (int, float)))


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of one experiment. `subtitles`: One for each run. `panels`: From left to right, `columns` in a row."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    table: ChartTable
    subtitles: tuple[str, ...] = ()
    verdicts: tuple[tuple[ClaimVerdict, ...], ...] = ()
    columns: int = 1
    notes: tuple[str, ...] = ()
    runs: tuple[RecordedRun, ...] = field(default=(), compare=False)


def further_runs(sources: Sequence[object]) -> tuple[str, ...]:
    """Return the note of a picture that only the first run is drawn in."""
    return ("Further runs are in the table.",) if len(sources) > 1 else ()
