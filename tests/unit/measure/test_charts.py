"""Charts have the figures of the samples, and name what is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tests.unit.measure.made import designs_run, latency_run, loss_run, paths_run, rate_run, recorded, suspecting
from xenoovs.display import percent, quantity, span
from xenoovs.measure.chart import OTHER_HARDWARE, Chart, ChartLine, load_published
from xenoovs.measure.charts import chart_of, compare
from xenoovs.measure.commands import compare as measure_compare
from xenoovs.measure.commands import echo as measure_echo
from xenoovs.measure.commands import load as measure_load
from xenoovs.measure.commands.run import PointTable
from xenoovs.measure.pictures import LIGHT, _drawn
from xenoovs.measure.samples import Point, RecordedRun, Value
from xenoovs.measure.verdict import ClaimOutcome, line_rate_pps


def chart(*runs: RecordedRun) -> Chart:
    made = chart_of(runs, [f"run{number}" for number in range(len(runs))])
    assert made is not None
    return made


def line(made: Chart, label: str, panel: int = 0) -> ChartLine:
    return next(each for each in made.panels[panel].lines if each.label == label)


def test_throughput_is_drawn_and_listed_in_all_units() -> None:
    made = chart(rate_run())
    drawn = line(made, "throughput, without loss")
    assert [(mark.x, mark.value.estimate) for mark in drawn.marks] == [(64, 400e3), (512, 300e3), (1518, 200e3)]
    row = dict(zip(made.table.columns, made.table.rows[0], strict=True))
    assert row["throughput pps"] == 400e3
    # A frame of 64 bytes has 84 on the wire (IEEE 802.3) and 18 of UDP payload.
    assert row["L1 Gbit/s"] == pytest.approx(400e3 * 84 * 8 / 1e9)
    assert row["payload Gbit/s"] == pytest.approx(400e3 * 18 * 8 / 1e9)
    assert row["of line rate"] == pytest.approx(400e3 / line_rate_pps(10e9, 64))


def test_line_rate_and_published_figures_are_references() -> None:
    made = chart(rate_run())
    references = [each for each in made.panels[1].lines if each.color is None]
    assert references[0].label == "line rate of 10 Gbit/s"
    assert [each.label for each in references[1:]] == [
        f"XenoFlow, BlueField-3, 2 backends ({OTHER_HARDWARE})",
        f"Katran, eBPF, 64 B ({OTHER_HARDWARE})",
    ]
    assert not any(each.color is None for each in made.panels[0].lines)
    unknown = [each.label for each in chart(rate_run(link_bps=None)).panels[1].lines]
    assert not any("line rate" in label for label in unknown)


def test_latency_has_a_panel_for_each_split_and_a_box_for_each_load() -> None:
    made = chart(latency_run())
    assert [panel.title for panel in made.panels] == ["split 50/50", "split 100/0"]
    assert [(box.x, box.value.median, box.value.count) for box in made.panels[0].boxes] == [
        (0, 100, 505),
        (0.9, 200, 505),
    ]
    # Published for this split alone.
    assert [len(panel.lines) for panel in made.panels] == [0, 1]
    assert made.verdicts[0][0].outcome is ClaimOutcome.REFUTED


def test_sent_is_received_plus_lost_at_each_load() -> None:
    rows = [dict(zip(chart(loss_run()).table.columns, row, strict=True)) for row in chart(loss_run()).table.rows]
    assert [(row["offered share"], row["sent"], row["received"], row["lost"]) for row in rows] == [
        (0.5, 1_500_000, 1_500_000, 0),
        (1.0, 3_000_000, 3_000_000, 0),
        (1.5, 4_500_000, 3_000_000, 1_500_000),
    ]


def test_designs_have_bars_for_each_number_of_clients() -> None:
    made = chart(designs_run())
    megaflows = next(panel for panel in made.panels if panel.title.startswith("megaflows"))
    assert megaflows.x.is_log
    assert megaflows.categories == ("masked blocks, short first (xenoovs)", "learn, a flow a connection")
    assert [(bars.label, [mark.value.estimate for mark in bars.marks.values()]) for bars in megaflows.bars] == [
        ("10 clients", [3, 10]),
        ("100,000 clients", [3, 100_000]),
    ]
    # The table has the other figures too; of lists, the median of each repeat.
    assert made.table.rows[0][made.table.columns.index("first packet us")] == 120


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


def test_suspect_samples_count_only_where_there_are_no_others() -> None:
    whole = rate_run()
    wrong = replace(whole.samples[0], values={**whole.samples[0].values, "throughput_pps": 1.0})
    some = suspecting(replace(whole, samples=(wrong, *whole.samples[1:])), 0)
    mark = line(chart(some), "throughput, without loss").marks[0]
    assert (mark.value.estimate, mark.value.count, mark.is_suspect) == (400e3, 4, False)
    # Samples of three points follow each other: every third is of 64 bytes.
    mark = line(chart(suspecting(whole, 0, 3, 6, 9, 12)), "throughput, without loss").marks[0]
    assert (mark.value.count, mark.is_suspect) == (5, True)


def test_the_picture_has_what_there_is_and_names_what_the_run_lacks() -> None:
    whole = rate_run(quick=True)
    part = suspecting(replace(whole, samples=whole.samples[:7]), 2)
    lacks = "quick run, 5 repeats; incomplete: 7 of 15 samples; 1 sample suspect"
    assert chart(part).subtitles == (f"Open vSwitch 3.1.0, made by hand; {lacks}",)
    assert chart(rate_run()).subtitles == ("Open vSwitch 3.1.0, made by hand",)
    made = chart(replace(whole, samples=whole.samples[:2]))
    assert [mark.x for mark in line(made, "throughput, without loss").marks] == [64, 512]
    assert chart_of([replace(whole, samples=())], [""]) is None
    assert chart_of([recorded("dreams", [{"flows": 1}], lambda _point, _number: {})], [""]) is None


def test_few_repeats_have_no_confidence_interval_in_picture_and_table() -> None:
    note = "Points with fewer than 5 repeats have no confidence interval"
    for repeats, is_noted, has_bounds in ((1, False, False), (2, True, True), (5, False, True)):
        made = chart(rate_run(repeats=repeats))
        assert any(each.startswith(note) for each in made.notes) == is_noted
        row = dict(zip(made.table.columns, made.table.rows[0], strict=True))
        assert row["repeats"] == repeats
        assert (row["low"] is not None, row["high"] is not None) == (has_bounds, has_bounds)


def test_two_runs_are_compared_with_an_interval() -> None:
    made = chart(rate_run(), rate_run(factor=1.25))
    assert made.subtitles[1].startswith("run1: ")
    assert line(made, "run1: throughput, without loss").color == 1
    ((title, table),) = compare(made)
    assert title == "run1 against run0: throughput"
    assert [row[:2] for row in table.rows] == [("64", 25), ("512", 25), ("1518", 25)]


def test_every_published_figure_has_a_source_with_a_name() -> None:
    published = load_published()
    assert published.curves
    assert all(source.name and source.title for source in published.sources)
    xenoflow = next(curve for curve in published.of("rate").curves if curve.source.name.startswith("XenoFlow"))
    # 128 bytes of payload are a frame of 174 bytes, which at 100 Gbit/s is the published line rate.
    assert dict(xenoflow.points)[174] == pytest.approx(line_rate_pps(100e9, 174), rel=0.01)


def test_paths_have_rates_round_trips_and_what_pairs_reach() -> None:
    made = chart(paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2))
    rates, trips, same, opposite = made.panels
    assert [bars.label for bars in rates.bars] == ["in: to the backend", "out: from the backend"]
    assert {name: mark.value.estimate for name, mark in rates.bars[0].marks.items()} == {"fips2": 300e3, "fips3": 200e3}
    assert {mark.value.estimate for mark in trips.bars[0].marks.values()} == {100}
    assert same.categories == ("fips2, fips3: shared",)
    assert opposite.categories == ("fips2: shared", "fips2, fips3: shared", "fips3: shared")
    assert [round(mark.value.estimate) for mark in same.bars[0].marks.values()] == [120]
    rows = [dict(zip(made.table.columns, row, strict=True)) for row in made.table.rows]
    assert len(rows) == 4 + 1 + 3
    assert next((row["path"], row["beside"], row["verdict"]) for row in rows if row["reached %"]) == (
        "fips2",
        "fips3",
        "shared",
    )


def test_undecided_pairs_and_paths_that_are_not_full_have_a_reason() -> None:
    made = chart(paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2, repeats=3))
    (undecided,) = (note for note in made.notes if "undecided" in note)
    assert undecided == (
        "fips2 + fips3, fips2 + fips2 out, fips2 + fips3 out, fips3 + fips3 out are undecided: 3 repeats that can be "
        "trusted, and a verdict needs 5."
    )
    whole = paths_run({"fips2": 300e3})
    lossless = replace(whole, samples=tuple(replace(s, values={**s.values, "loss_share": 0.0}) for s in whole.samples))
    assert "fips2 lost nothing: it may carry more than was sent." in chart(lossless).notes


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
