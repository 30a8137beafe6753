"""The picture of the completion experiment: each design in each case, and the published figures beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xenoovs.measure.chart import (
    OTHER_HARDWARE,
    Axis,
    Bars,
    Cell,
    Chart,
    ChartMark,
    ChartTable,
    Panel,
    further_runs,
    load_published,
)
from xenoovs.measure.completion import CompletionCase, Scene
from xenoovs.measure.completion_figures import CompletionFigures, figures_of, scene_title
from xenoovs.measure.routing_designs import RoutingDesign
from xenoovs.measure.samples import RecordedRun
from xenoovs.measure.statistics import Statistic, interval

_NAMES = {
    RoutingDesign.BLOCKS.value: "blocks that move (xenoovs)",
    RoutingDesign.DOCA_AR.value: "a probe for each flow (DOCA-AR's algorithm)",
    RoutingDesign.ECMP.value: "ECMP",
}
_UNDISTURBED = "ECMP, undisturbed"
_MS = 1e-3
_AXIS = Axis("milliseconds (log scale)", is_log=True)
_COLUMNS = (
    *("run", "case", "flows", "bytes", "elephant load", "design", "min ms", "median ms", "low", "high", "max ms"),
    *("mean ms", "undisturbed median ms", "times undisturbed", "ECMP/it", "completed", "of flows", "moves"),
    *("path empty after ms", "samples"),
)


def completion_chart(runs: Sequence[tuple[RecordedRun, str]]) -> Chart:
    """Return the picture of some runs, each with the prefix of its rows; the first is drawn, the table has all."""
    first = runs[0][0]
    rows = tuple(row for run, prefix in runs for row in _rows(run, prefix))
    rehash = "with" if first.run.options.get("txrehash") else "without"
    return Chart(
        "completion",
        "Flow completion time beside an elephant",
        (_measured(figures_of(first.run.points, first.samples)), _published()),
        "Some flows begin together, and the time of the slowest counts. Bars are medians of the samples with "
        "confidence intervals of 95 %; the published figures are means. All designs were measured in random order in "
        f"one lab, whose hosts send {rehash} txrehash, by TCP CUBIC. Flows that did not end count with the time limit "
        f"of {first.run.options.get('limit_s')} s. What ECMP loses are time-outs of TCP, so that a ratio depends on "
        "the undisturbed time.",
        ChartTable(_COLUMNS, rows),
        notes=further_runs(runs),
    )


def _measured(scenes: Mapping[Scene, Sequence[CompletionFigures]]) -> Panel:
    marks: dict[str, dict[str, ChartMark]] = {name: {} for name in (*_NAMES.values(), _UNDISTURBED)}
    # Where only ECMP was measured alone, its bar stands in every scene as the undisturbed one.
    shown = {
        scene: found for scene, found in scenes.items() if scene.case is not CompletionCase.ALONE or len(found) > 1
    }
    for scene, figures in (shown or scenes).items():
        for one in figures:
            title = scene_title(scene)
            times_ms = [value / _MS for value in one.times_s]
            median = interval(times_ms, Statistic.MEDIAN)
            marks[_NAMES[one.design]][title] = ChartMark(0, median, is_unfinished=one.is_unfinished)
            if one.undisturbed_s is not None:
                marks[_UNDISTURBED][title] = ChartMark.exactly(one.undisturbed_s / _MS)
    bars = tuple(Bars(name, of_design, color) for color, (name, of_design) in enumerate(marks.items()) if of_design)
    categories = tuple(map(scene_title, shown or scenes))
    return Panel("measured here, medians", _AXIS, Axis(""), bars=bars, categories=categories)


def _published() -> Panel:
    marks: dict[str, dict[str, ChartMark]] = {_NAMES["doca-ar"]: {}, _NAMES["ecmp"]: {}}
    for figure in load_published().of("completion").figures:
        scene, _, design = figure.label.rpartition(", ")
        marks[_NAMES["ecmp" if design == "ECMP" else "doca-ar"]][scene] = ChartMark.exactly(figure.value)
    scenes = dict.fromkeys(scene for of_design in marks.values() for scene in of_design)
    colors = {name: color for color, name in enumerate(_NAMES.values())}
    bars = tuple(Bars(name, of_design, colors[name]) for name, of_design in marks.items())
    title = f"DOCA-AR on BlueField-2, 5 MB a flow, means ({OTHER_HARDWARE})"
    return Panel(title, _AXIS, Axis(""), bars=bars, categories=tuple(scenes))


def _rows(recorded: RecordedRun, prefix: str) -> Iterator[tuple[Cell, ...]]:
    for scene, figures in figures_of(recorded.run.points, recorded.samples).items():
        for one in figures:
            found = interval(one.times_s, Statistic.MEDIAN)
            yield (
                prefix.rstrip(": "),
                scene.case.value,
                scene.flows,
                scene.size,
                scene.load,
                one.design,
                *(value / _MS for value in (one.least_s, one.median_s, found.low, found.high, one.greatest_s)),
                one.mean_s / _MS,
                None if one.undisturbed_s is None else one.undisturbed_s / _MS,
                None if one.undisturbed_s is None else one.median_s / one.undisturbed_s,
                one.gain,
                one.completed,
                one.flows,
                one.moves,
                None if one.emptied_s is None else one.emptied_s / _MS,
                len(one.times_s),
            )
