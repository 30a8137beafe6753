"""Figures that others published, from `published.yaml`, to stand beside samples as "published, other hardware"."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from xenoovs.dataclass import dataclass

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
    curves = (
        PublishedCurve(
            each["experiment"],
            sources[each["source"]],
            each["label"],
            tuple((float(x), float(y)) for x, y in each["points"]),
            each.get("panel", ""),
        )
        for each in document["curves"]
    )
    figures = (
        PublishedFigure(**{**each, "source": sources[each["source"]], "value": float(each["value"])})
        for each in document["figures"]
    )
    return Published(tuple(curves), tuple(figures))
