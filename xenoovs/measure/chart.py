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
class PublishedCurve:
    """A curve in the units of an experiment's picture. `panel`: Title of its panel, such as a split."""

    experiment: str
    source: PublishedSource
    label: str
    points: tuple[tuple[float, float], ...]
    panel: str = ""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One number. `at`: Its position on the picture's x axis; None for all positions."""

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
        """Return each source once, in the order of curves and figures."""
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
