"""What a picture shows, as values: axes, lines, boxes and bars."""

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


# Figures that others published, from `published.yaml`, to stand beside samples.

OTHER_HARDWARE = "published, other hardware"


@dataclass(frozen=True, slots=True)
class PublishedSource:
    """Where a figure comes from. `url`: empty where the text is not on the web."""

    name: str
    title: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class PublishedCurve:
    """A curve in the units of the picture of an experiment. `panel`: title of its part, such as a split."""

    experiment: str
    source: PublishedSource
    label: str
    points: tuple[tuple[float, float], ...]
    panel: str = ""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One number. `at`: where on the axis of the picture it belongs; None: everywhere."""

    experiment: str
    source: PublishedSource
    label: str
    value: float
    unit: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Published:
    curves: tuple[PublishedCurve, ...]
    figures: tuple[PublishedFigure, ...]

    def of(self, experiment: str) -> Published:
        return Published(
            tuple(curve for curve in self.curves if curve.experiment == experiment),
            tuple(figure for figure in self.figures if figure.experiment == experiment),
        )

    @property
    def sources(self) -> tuple[PublishedSource, ...]:
        """Each source once, in the order of its figures."""
        of_curves, of_figures = (curve.source for curve in self.curves), (figure.source for figure in self.figures)
        return tuple(dict.fromkeys((*of_curves, *of_figures)))


@cache
def load_published() -> Published:
    document = yaml.safe_load((files("xenoovs.measure") / "published.yaml").read_text(encoding="utf-8"))
    sources = {key: PublishedSource(**source) for key, source in document["sources"].items()}
    for each in (*document["curves"], *document["figures"]):
        each["source"] = sources[each["source"]]
    points = (tuple((float(x), float(y)) for x, y in each["points"]) for each in document["curves"])
    curves = (PublishedCurve(**{**each, "points": of}) for each, of in zip(document["curves"], points, strict=True))
    figures = (PublishedFigure(**{**each, "value": float(each["value"])}) for each in document["figures"])
    return Published(tuple(curves), tuple(figures))
