"""Runs that are damaged, or of a later version: a report or a sentence each, never a traceback."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.command_line import CommandLine
from tests.unit.measure.made import designs_run, latency_run, loss_run, paths_run, rate_run, write
from tests.unit.measure.test_completion import completion_run
from xenoovs.errors import FileUnusable, MeasureError, XenoovsError
from xenoovs.measure.charts import chart_of
from xenoovs.measure.pictures import svg_of
from xenoovs.measure.report import ReportSource, charts_of, read_sources
from xenoovs.measure.samples import RUN_FILE, SAMPLES_FILE, RecordedRun, Sample, parse_run, parse_samples, render_run

RUNS = (
    rate_run(repeats=1),
    loss_run(),
    latency_run(),
    designs_run(),
    paths_run({"a": 3e5, "b": 2e5}, repeats=1),
    completion_run(),
)
RUN_TEXT = render_run(RUNS[0].run)


def text_of(samples: tuple[Sample, ...]) -> str:
    names = Sample.__dataclass_fields__
    return "".join(json.dumps({name: getattr(one, name) for name in names}) + "\n" for one in samples)


def test_a_run_file_that_ends_anywhere_is_a_sentence() -> None:
    for end in range(len(RUN_TEXT) - 1):
        with pytest.raises(FileUnusable, match=r"run\.json"):
            parse_run(RUN_TEXT[:end], file="run.json")


def test_samples_that_end_anywhere_in_the_last_line_are_those_before_it() -> None:
    samples = RUNS[0].samples[:2]
    text = text_of(samples)
    for end in range(text.index("\n") + 1, len(text)):
        assert parse_samples(text[:end], file="samples.jsonl", experiment="rate") == samples[:1]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"xenoovs_run": 1', '"xenoovs_run": 99, "later": []', "it is from another version of xenoovs"),
        ('"repeats": 1', '"repeats": 99999999999999999999', "`repeats` must be above 0, and make at most 1,000,000"),
        ('"repeats": 1', '"repeats": 0', "`repeats` must be above 0"),
        ('"ovs": "3.1.0"', '"ovs": {}', "`versions.ovs` must be a text"),
        ('"options": {}', '"options": {"a": []}', "`options.a` must be a plain value"),
        ('"frame_bytes": 64', '"frame_bytes": 1e400', "`points` must be a list of mappings of plain values"),
        ('"seed": 0', f'"seed": {"1" * 5000}', "a number has thousands of digits"),
        ('"seed": 0', '"seed": -Infinity', "-Infinity is not a number"),
        ("made by hand", "\\ud800", "a text has half of a surrogate pair"),
        ('"measure"', "7", "`command` must be a list of texts"),
    ],
)
def test_values_that_no_run_has_are_named(before: str, after: str, reason: str) -> None:
    assert before in RUN_TEXT
    with pytest.raises(FileUnusable, match=re.escape(reason)):
        parse_run(RUN_TEXT.replace(before, after, 1), file="run.json")


_VALUE = re.compile(r'(?<=[:,\[] )("[^"]*"|-?[0-9][0-9.e+-]*|true|false|\[\]|\{\})(?=[,\]}\n])')
_WRONG = (
    *("NaN", "-Infinity", "1e400", "1e100", "-1e100", "1e-320", "0", "-1", "12.5", "null", "true", "9" * 20),
    *('""', '"x"', '"\\u0000"', "[]", "{}", "[[1]]", '["x"]', '{"a": 1}'),
)


@given(st.sampled_from(RUNS), st.booleans(), st.floats(0, 1, exclude_max=True), st.sampled_from(_WRONG))
def test_any_other_value_gives_a_picture_or_a_sentence(
    recorded: RecordedRun, in_run: bool, place: float, wrong: str
) -> None:
    texts = [render_run(recorded.run), text_of(recorded.samples)]
    text = texts[0 if in_run else 1]
    spots = [*_VALUE.finditer(text)]
    spot = spots[int(place * len(spots))]
    texts[0 if in_run else 1] = f"{text[: spot.start()]}{wrong}{text[spot.end() :]}"
    with suppress(XenoovsError):
        run = parse_run(texts[0], file="run.json")
        samples = parse_samples(texts[1], file="samples.jsonl", experiment=run.experiment)
        read = RecordedRun(recorded.directory, run, samples)
        charts = charts_of([ReportSource("", {run.experiment: read}, ())])
        assert [chart.name for chart in charts] == [run.experiment]


@pytest.mark.parametrize("experiment", ["latency", "moon"])
def test_a_run_of_another_experiment_or_of_none_is_a_sentence(
    experiment: str, tmp_path: Path, xenoovs: CommandLine
) -> None:
    directory = write(tmp_path / "r", designs_run())
    for file in directory.glob("*/*"):
        file.write_text(file.read_text().replace('"experiment": "designs"', f'"experiment": "{experiment}"'))
    result = xenoovs("measure", "report", directory)
    assert (result.status, result.err.count("\n")) == (1, 1), result.err
    assert "of another version of xenoovs; report the other runs without" in result.err


def test_files_that_are_none_are_a_sentence(tmp_path: Path) -> None:
    (run,) = write(tmp_path / "r", rate_run()).iterdir()
    (run / SAMPLES_FILE).unlink()
    os.mkfifo(run / SAMPLES_FILE)
    with pytest.raises(FileUnusable, match=r"samples\.jsonl: it is not a file"):
        read_sources([run])
    (run / SAMPLES_FILE).unlink()
    (run / SAMPLES_FILE).symlink_to(SAMPLES_FILE)
    with pytest.raises(FileUnusable, match=r"Too many levels of symbolic links"):
        read_sources([run])
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(MeasureError, match=r"loop cannot be read: Too many levels of symbolic links"):
        read_sources([tmp_path / "loop"])
    (run / RUN_FILE).unlink()
    (run / RUN_FILE).mkdir()
    with pytest.raises(FileUnusable, match=r"run\.json: it is not a file"):
        read_sources([tmp_path / "r"])


def test_names_of_directories_are_text_and_no_formula(tmp_path: Path) -> None:
    names = (b"a$b$_$\\frac{", b"\xff\xfe")
    (one,), (two,) = (read_sources([write(Path(os.fsdecode(bytes(tmp_path) + b"/" + n)), rate_run())]) for n in names)
    chart = chart_of([one.runs["rate"], two.runs["rate"]], [one.label, two.label])
    assert chart is not None
    assert svg_of(chart).encode()
