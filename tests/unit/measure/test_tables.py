"""The tables of commands have the values of the charts in reports: means of the repeats that are not suspect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.measure.made import designs_run, latency_run, loss_run, paths_run, rate_run, recorded, suspecting
from xenoovs.display import percent, quantity, span
from xenoovs.measure.charts import chart_of
from xenoovs.measure.commands import designs as measure_designs
from xenoovs.measure.commands import echo as measure_echo
from xenoovs.measure.commands import load as measure_load
from xenoovs.measure.samples import RecordedRun, Value


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


@pytest.mark.parametrize(
    ("run", "show", "names"),
    [
        (rate_run(), measure_load._show_rate, {"throughput pps": quantity, "forwarding pps": quantity}),
        (loss_run(), measure_load._show_loss, {"loss share": percent}),
        (latency_run(), measure_load._show_latency, {"median us": microseconds, "p99 us": microseconds}),
        (echo_run(), measure_echo._show, {"mean us": microseconds, "median us": microseconds}),
        (
            designs_run(),
            measure_designs._show,
            {"forwarding pps": quantity, "cpu us": microseconds, "first packet us": microseconds},
        ),
    ],
    ids=["rate", "loss", "latency", "echo", "designs"],
)
def test_table_and_picture_have_the_same_figures(
    run: RecordedRun,
    show: Callable[[RecordedRun], None],
    names: dict[str, Callable[[float], str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = skewed(run)
    show(one)
    words = capsys.readouterr().out.split()
    for name, form in names.items():
        for value in column(one, name):
            assert form(value) in words, (name, value)


def test_few_repeats_of_paths_have_no_interval_of_95_percent(capsys: pytest.CaptureFixture[str]) -> None:
    from xenoovs.measure.commands import paths as measure_paths
    from xenoovs.measure.path_figures import measured_file, measured_paths

    few = paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2, repeats=2)
    measure_paths._show_measured(measured_paths(few))
    measure_paths._say_few_repeats(measured_paths(few))
    output = capsys.readouterr().out
    assert "300k to 300k of 2" in output
    assert "of 2: from the least to the greatest of so many repeats; an interval needs 5" in output
    assert "# interval: the least and the greatest, of 2 repeats." in measured_file(few)
    assert "# interval: 95 % confidence, of 5 repeats." in measured_file(paths_run({"fips2": 300e3}))


_WITHOUT = """\
import sys
for library in ("numpy", "matplotlib"):
    sys.modules[library] = None
from xenoovs.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("paths", "--help"), "Measure the paths of a DPU"),
        (("completion", "--help"), "the time of the slowest counts"),
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
