"""Charts have the figures of the samples, and name what is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tests.judged import assert_recorded
from tests.unit.measure.made import (
    completed_run,
    completion_run,
    designs_run,
    latency_run,
    loss_run,
    paths_run,
    rate_run,
    recorded,
    suspecting,
)
from xenoovs.display import percent, quantity, span
from xenoovs.measure import compare as measure_compare
from xenoovs.measure import echo as measure_echo
from xenoovs.measure import load as measure_load
from xenoovs.measure.chart import Cell, Chart, ChartMark, load_published, published_of
from xenoovs.measure.charts import chart_of, compare
from xenoovs.measure.pictures import LIGHT, _drawn
from xenoovs.measure.run import PointTable
from xenoovs.measure.samples import Point, RecordedRun, Value
from xenoovs.measure.verdict import line_rate_pps


def chart(*runs: RecordedRun) -> Chart:
    made = chart_of(runs, [f"run{number}" for number in range(len(runs))])
    assert made is not None
    return made


WHOLE, QUICK = rate_run(), rate_run(quick=True)
WRONG = replace(WHOLE.samples[0], values={**WHOLE.samples[0].values, "throughput_pps": 1.0})
PATHS = paths_run({"fips2": 300e3})
LOSSLESS = tuple(replace(each, values={**each.values, "loss_share": 0.0}) for each in PATHS.samples)
PAIR = {"fips2": 300e3, "fips3": 200e3}
DRAWN: dict[str, tuple[RecordedRun, ...]] = {
    # A frame of 64 bytes has 84 on the wire (IEEE 802.3) and 18 of UDP payload.
    "throughput is drawn and listed in all units, with line rate and published figures": (WHOLE,),
    "no line rate of an unknown link": (rate_run(link_bps=None),),
    "latency has a panel for each split and a box for each load": (latency_run(),),
    "sent is received plus lost at each load": (loss_run(),),
    "designs have bars for each number of clients": (designs_run(),),
    "suspect samples do not count where there are others": (
        suspecting(replace(WHOLE, samples=(WRONG, *WHOLE.samples[1:])), 0),
    ),
    # Samples of three points follow each other: every third is of 64 bytes.
    "suspect samples count where there are no others": (suspecting(WHOLE, *range(0, 15, 3)),),
    "a run that lacks samples says so": (suspecting(replace(QUICK, samples=QUICK.samples[:7]), 2),),
    "a run has the points that were measured": (replace(QUICK, samples=QUICK.samples[:2]),),
    "one repeat has no interval": (rate_run(repeats=1),),
    "few repeats have no confidence interval": (rate_run(repeats=2),),
    "two runs are compared with an interval": (WHOLE, rate_run(factor=1.25)),
    "paths have rates, round trips and what pairs reach": (paths_run(PAIR, 1.2),),
    "undecided pairs have a reason": (paths_run(PAIR, 1.2, repeats=3),),
    "paths that are not full have a reason": (replace(PATHS, samples=LOSSLESS),),
    "routing designs and the published figures": (completion_run(),),
    "a bar at the time limit is not done": (completed_run(10, 9, 9),),
    "a bar with most repeats done is": (completed_run(10, 10, 9),),
}


def shown(made: Chart) -> Iterator[str]:
    """What a chart has: its panels with each mark, table, comparison, notes and verdicts."""
    yield from (made.title, *made.subtitles, made.caption)
    for panel in made.panels:
        axes = [f"{axis.label}{' (log)' * axis.is_log}" for axis in (panel.x, panel.y) if axis.label]
        yield f"panel {panel.title}: {', '.join((*axes, *panel.categories))}"
        for one in panel.lines:
            marks = (f"{mark.x:g}: {drawn(mark)}" for mark in one.marks)
            yield f"  line {one.label}, color {one.color}: {', '.join(marks)}"
        yield from (f"  {box}" for box in panel.boxes)
        for bars in panel.bars:
            marks = (f"{name}: {drawn(mark)}" for name, mark in bars.marks.items())
            yield f"  bars {bars.label}, color {bars.color}: {', '.join(marks)}"
    for title, table in (("table", made.table), *compare(made)):
        yield from (title, *("  " + " | ".join(map(cell, row)) for row in (table.columns, *table.rows)))
    yield from made.notes
    yield from (f"{one.claim}: {one.outcome.value}: {one.reason}" for found in made.verdicts for one in found)


def drawn(mark: ChartMark) -> str:
    one, flags = mark.value, (" suspect" * mark.is_suspect, " unfinished" * mark.is_unfinished)
    bounds = f" ({one.low:.9g} to {one.high:.9g} of {one.count})" if one.count > 1 else ""
    return f"{one.estimate:.9g}{bounds}{''.join(flags)}"


def cell(value: Cell) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def test_charts_are_as_recorded(*, update_golden: bool) -> None:
    texts = {title: "\n".join(shown(chart(*runs))) for title, runs in DRAWN.items()}
    assert_recorded("measure/charts.txt", texts, update=update_golden)


def test_there_is_no_chart_without_samples_or_of_an_unknown_experiment() -> None:
    assert chart_of([replace(WHOLE, samples=())], [""]) is None
    assert chart_of([recorded("dreams", [{"flows": 1}], lambda _point, _number: {})], [""]) is None


def test_panels_of_other_units_have_axes_of_their_own() -> None:
    """Packets a second of thousands, microseconds and Gbit/s of others: each value lies within its panel."""
    points: list[Point] = [{"kind": "blocks", "entries": count} for count in (1, 16)]
    values: dict[str, Value] = {"forwarding_pps": 85e3, "cpu_us": 12.0, "packet_us": [358.0]}
    made = chart(recorded("entries", points, lambda _point, _number: values))
    drawn = _drawn(made, LIGHT, Figure)
    drawn.draw_without_rendering()
    greatest = [max(mark.value.estimate for line in panel.lines for mark in line.marks) for panel in made.panels]
    units = [panel.y.unit for panel in made.panels]
    assert len(made.panels) == 4
    for axes, most, unit in zip(drawn.axes, greatest, units, strict=True):
        assert most / unit < axes.get_ylim()[1] < 3 * most / unit


def test_bars_have_figures_in_the_unit_of_their_axis() -> None:
    points: list[Point] = [{"service": name, "way": "geneve", "frame_bytes": 64} for name in ("geneve", "far")]
    values: dict[str, Value] = {"forwarding_bps": 7.46e6, "cpu_cores": 0.302, "forwarding_pps": 14.6e3, "cpu_us": 20.7}
    made = chart(recorded("next-hops", points, lambda _point, _number: values))
    shown = [[text.get_text().strip() for text in axes.texts] for axes in _drawn(made, LIGHT, Figure).axes]
    assert shown == [["0.0075"] * 2, ["0.302"] * 2, ["14.6"] * 2, ["20.7"] * 2]
    assert made.panels[0].categories == ("far: geneve", "geneve")


def test_every_published_figure_has_a_source_with_a_name() -> None:
    assert all(figure.source.name and figure.source.title for figure in load_published())
    xenoflow = next(one for one in published_of("rate") if one.source.name.startswith("XenoFlow"))
    # 128 bytes of payload are a frame of 174 bytes, which at 100 Gbit/s is the published line rate.
    assert dict(xenoflow.points)[174] == pytest.approx(line_rate_pps(100e9, 174), rel=0.01)


def skewed(one: RecordedRun) -> RecordedRun:
    """Return a run whose first repeat is high, so that mean and median differ, and whose last is wrong and suspect."""

    def times(value: Value, factor: float) -> Value:
        if isinstance(value, list):
            return [each * factor for each in value]
        return value * factor if isinstance(value, (int, float)) else value

    factors = {0: 3.0, one.run.repeats - 1: 100.0}
    samples = [
        replace(s, values={k: times(v, factors[s.repeat]) for k, v in s.values.items()}) if s.repeat in factors else s
        for s in one.samples
    ]
    last = [index for index, sample in enumerate(samples) if sample.repeat == one.run.repeats - 1]
    return suspecting(replace(one, samples=tuple(samples)), *last)


def echo_run() -> RecordedRun:
    points = [{"bytes": 16, "offload": offload, "target": "backend"} for offload in ("on", "off")]
    return recorded("echo", points, lambda _point, _number: {"rtt_us": [9.0], "mean_us": 20.0, "median_us": 10.0})


def column(one: RecordedRun, name: str) -> list[float]:
    """Return a column of the table below the picture."""
    made = chart_of([one], [""])
    assert made is not None
    return [float(str(row[made.table.columns.index(name)])) for row in made.table.rows]


def microseconds(value: float) -> str:
    return span(value / 1e6)


TABLES: dict[str, PointTable] = {**measure_load.TABLES, **measure_compare.TABLES, "echo": measure_echo.TABLE}


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (rate_run(), {"throughput pps": quantity, "forwarding pps": quantity}),
        (loss_run(), {"loss share": percent}),
        (latency_run(), {"median us": microseconds, "p99 us": microseconds}),
        (echo_run(), {"mean us": microseconds, "median us": microseconds}),
        (designs_run(), {"forwarding pps": quantity, "cpu us": microseconds, "first packet us": microseconds}),
    ],
    ids=lambda value: value.run.experiment if isinstance(value, RecordedRun) else "",
)
def test_table_and_picture_have_the_same_figures(
    run: RecordedRun, names: dict[str, Callable[[float], str]], capsys: pytest.CaptureFixture[str]
) -> None:
    one = skewed(run)
    TABLES[run.run.experiment].show(one)
    words = capsys.readouterr().out.split()
    for name, form in names.items():
        for value in column(one, name):
            assert form(value) in words, (name, value)


_WITHOUT = """\
import sys
sys.modules |= {"numpy": None, "matplotlib": None}
from xenoovs.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("paths", "--help"), "Measure the paths of a DPU"),
        (("completion", "--help"), "the time of the slowest is measured"),
        (("paths", "--lab", "none"), "error: this needs numpy, which is not installed: `"),
        (("report", "none"), "error: this needs numpy, which is not installed: `"),
    ],
)
def test_without_the_libraries_of_the_extra_an_error_names_what_to_install(
    arguments: tuple[str, ...], message: str
) -> None:
    argv = [sys.executable, "-c", _WITHOUT, "measure", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert message in f"{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
