"""The content of a picture as values: axes, lines, boxes and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import yaml

from xenoovs.dataclass import dataclass, field
from xenoovs.measure.samples import RecordedRun
from xenoovs.measure.statistics import Interval, Quantiles
from xenoovs.measure.verdict import ClaimVerdict


@dataclass(frozen=True, slots=True)
class ChartMark:
    """One point of a line, or one bar.

    `is_suspect`: Whether all its samples are suspect. `is_unfinished`: Whether flows had not ended: the value is the
    time limit.
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
    """A line through points. `color`: Number of its colour; None for a reference, thin and grey."""

    label: str
    marks: tuple[ChartMark, ...]
    color: int | None = None
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A box plot. `place`: Number of the run, as boxes of several runs stand side by side."""

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
    """An axis. `ticks`: Positions with labels; empty for matplotlib's own."""

    label: str
    is_log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    unit: float = 1.0
    """Divisor of the values, such as 1e6 for Mpps."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One coordinate system. `categories`: Names of the rows of bars, from the top."""

    title: str
    x: Axis
    y: Axis = Axis("")
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
    """A picture of one experiment. `panels`: Row by row, `columns` in each. `subtitles`: One for each run."""

    title: str
    panels: tuple[Panel, ...]
    caption: str
    table: ChartTable
    name: str = ""
    subtitles: tuple[str, ...] = ()
    verdicts: tuple[tuple[ClaimVerdict, ...], ...] = ()
    columns: int = 1
    notes: tuple[str, ...] = ()
    runs: tuple[RecordedRun, ...] = field(default=(), compare=False)


def further_runs(sources: Sequence[object]) -> tuple[str, ...]:
    """Return the note of a picture that draws only the first run; empty if there is one run."""
    return ("Further runs are in the table.",) if len(sources) > 1 else ()


# Published figures of others, from `published.yaml`, for comparison with samples.

OTHER_HARDWARE = "published, other hardware"


@dataclass(frozen=True, slots=True)
class PublishedSource:
    """The source of a figure. `url`: Empty if the text is not on the web."""

    name: str
    title: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A curve in the units of an experiment's picture, or one number with its unit.

    `points`: Positions on the picture's x axis, and values; the position of a number is None if it is for all of them.
    `panel`: Title of the panel of a curve, such as a split.
    """

    experiment: str
    source: PublishedSource
    label: str
    points: tuple[tuple[float | None, float], ...]
    unit: str = ""
    panel: str = ""


@cache
def load_published() -> tuple[PublishedFigure, ...]:
    """Return all curves, then all numbers."""
    document = yaml.safe_load((files("xenoovs.measure") / "published.yaml").read_text(encoding="utf-8"))
    sources = {key: PublishedSource(**source) for key, source in document["sources"].items()}
    for each in document["figures"]:
        each["points"] = [(each.pop("at", None), each.pop("value"))]
    for each in (*document["curves"], *document["figures"]):
        each["source"] = sources[each["source"]]
        each["points"] = tuple((x if x is None else float(x), float(y)) for x, y in each["points"])
    return tuple(PublishedFigure(**each) for each in (*document["curves"], *document["figures"]))


def published_of(experiment: str) -> list[PublishedFigure]:
    return [figure for figure in load_published() if figure.experiment == experiment]
