"""Reports about runs: a pure function of the samples, self-contained, honest about what is missing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command_line import CommandLine
from tests.judged import assert_recorded
from tests.unit.measure.made import (
    completion_run,
    designs_run,
    latency_run,
    loss_run,
    paths_run,
    rate_run,
    suspecting,
    write,
)
from xenoovs import __version__
from xenoovs.errors import FileUnusable, MeasureError, XenoovsError
from xenoovs.measure.charts import chart_of
from xenoovs.measure.pictures import svg_of
from xenoovs.measure.report import (
    MeasureReport,
    ReportSource,
    charts_of,
    element,
    make_report,
    read_sources,
    verdicts_of,
    write_report,
)
from xenoovs.measure.samples import (
    RUN_FILE,
    SAMPLES_FILE,
    BedKind,
    RecordedRun,
    Sample,
    parse_run,
    parse_samples,
    render_run,
)

RECORDED = Path(__file__).parent / "recorded"


def report(*directories: Path) -> MeasureReport:
    return make_report(read_sources(directories))


def page(*directories: Path) -> str:
    return report(*directories).files["report.html"].decode()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures, which take seconds, are empty."""
    for draw, drawn in (("svg_of", "<svg />"), ("png_of", b"")):
        monkeypatch.setattr(f"xenoovs.measure.pictures.{draw}", lambda *_, drawn=drawn: drawn)


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run of each experiment."""
    directory = tmp_path_factory.mktemp("measured") / "all"
    return write(directory, rate_run(), latency_run(), loss_run(), designs_run())


@pytest.fixture(scope="module")
def everything(all_runs: Path) -> MeasureReport:
    """Their report, made once: pictures take seconds."""
    return report(all_runs)


@pytest.fixture(scope="module")
def of_recorded() -> MeasureReport:
    """The report on the recorded runs, made once."""
    return report(RECORDED)


def test_recorded_runs_become_a_page_with_their_pictures_and_exact_counts(of_recorded: MeasureReport) -> None:
    made = of_recorded
    names = ("rate", "latency", "loss", "echo")
    assert [chart.name for chart in made.charts] == [*names]
    assert set(made.files) == {"report.html"} | {
        f"{n}{end}" for n in names for end in (".png", "-dark.png", ".svg", ".csv")
    }
    assert made.files["echo.png"].startswith(b"\x89PNG")
    text = made.files["report.html"].decode()
    assert text.count("<svg ") == 4
    assert "Open vSwitch 3.1.0, userspace datapath, in a lab on one machine; quick run" in text
    rows = list(csv.DictReader(io.StringIO(made.files["echo.csv"].decode())))
    assert [row["bytes"] for row in rows] == [f"{16 * 4**n}" for n in range(11)]
    sizes = [text for _, text in made.charts[-1].panels[0].x.ticks]
    assert (sizes[0], sizes[-4:]) == ("16 B", ["256 KiB", "1 MiB", "4 MiB", "16 MiB"])
    # Quick runs have fewer repeats than a verdict needs.
    assert {verdict.outcome.value for _, verdict in verdicts_of(made.charts)} == {"undecided"}
    for chart in made.charts:
        for recorded in chart.runs:
            for sample in recorded.samples:
                received = sample.values.get("received_by_backend")
                if isinstance(received, dict) and not sample.suspect:
                    assert sum(received.values()) == sample.values["received"]


def test_the_same_samples_give_the_same_bytes_in_whatever_order(
    all_runs: Path, everything: MeasureReport, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "all"
    shutil.copytree(all_runs, other)
    for samples in other.glob("*/samples.jsonl"):
        samples.write_text("".join(reversed(samples.read_text().splitlines(keepends=True))))
    assert report(other).files == everything.files


def test_the_page_needs_nothing_else_and_has_the_verdicts(everything: MeasureReport) -> None:
    text = everything.files["report.html"].decode()
    assert "<script" not in text
    assert "default-src 'none'" in text
    # Addresses are those of sources, to follow, and names of XML; nothing is fetched.
    assert set(re.findall(r'(\w+)="https?://(?!www\.w3\.org)', text)) == {"href"}
    assert not re.search(r'(src|url)\s*[=(]\s*["\']?(?!#|data:)[a-z]+:', text)
    assert re.findall(r"#0102[0-9a-f]{2}", text) == []
    assert text.count("<svg ") == 4
    names = re.findall(r' id="([^"]+)"', text)
    # The forms of characters are the same in all pictures.
    assert all(name.startswith("DejaVuSans") for name in names if names.count(name) > 1)
    assert "Latency does not depend on load" in text
    assert 'class="pill refuted">refuted' in text
    assert [verdict.outcome.value for _, verdict in verdicts_of(everything.charts)] == ["refuted", "refuted", "refuted"]


LAB = rate_run()
BOLD = replace(LAB, run=replace(LAB.run, datapath="<b>&bold"))
QUICK = rate_run(quick=True)


def started(run: RecordedRun, month: int) -> RecordedRun:
    return replace(run, run=replace(run.run, started=f"2026-{month:02}-01T00:00:00.000Z"))


OLD, NEW = started(LAB, 1), started(rate_run(factor=2), 2)
EMPTY, PART = replace(started(OLD, 3), samples=()), replace(NEW, samples=NEW.samples[:3])
PAGES: dict[str, dict[str, list[RecordedRun]]] = {
    "text of a run cannot be markup, and figures of a lab are not those of hardware": {"a": [BOLD]},
    "nor are those of an emulated NIC": {"a": [rate_run(kind=BedKind.EMULATED)]},
    "figures of machines are": {"a": [rate_run(kind=BedKind.MACHINES)]},
    "a quick run and another side by side": {
        "before": [suspecting(replace(QUICK, samples=QUICK.samples[:7]), 1)],
        "after": [rate_run(factor=2)],
    },
    "of several runs the newest counts, but none without samples": {"a": [OLD, NEW, EMPTY]},
    "an incomplete run counts where there is no other": {"a": [PART, EMPTY]},
    "a complete run counts before a newer part": {"a": [OLD, PART]},
}


@pytest.mark.usefixtures("undrawn")
def test_what_a_page_says_of_runs(tmp_path: Path, *, update_golden: bool) -> None:
    said = dict[str, str]()
    for number, (title, directories) in enumerate(PAGES.items()):
        text = page(*(write(tmp_path / f"{number}" / name, *runs) for name, runs in directories.items()))
        text = text.replace("<svg />", "<p>picture").replace(__version__, "VERSION")
        text = re.sub(r"<style>.*?</style>|<(?!/?(tr|p|h\d|li)\b)[^>]*>", " ", text, flags=re.DOTALL)
        lines = (" ".join(line.split()) for line in re.split(r"<[^>]*>", text))
        said[title] = "\n".join(line for line in lines if line)
    assert_recorded("measure/pages.txt", said, update=update_golden)


@pytest.mark.parametrize("value", ["1e308", '"\\u001b[31m"'])
def test_the_command_shows_no_traceback_and_no_escape_of_a_run(
    value: str, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """Designs have no verdict, and one of their values is of another kind."""
    directory = write(tmp_path / "r", designs_run())
    (samples,) = directory.glob("*/samples.jsonl")
    text = samples.read_text()
    samples.write_text(re.sub(r'"clients": [0-9.]+', lambda _found: f'"clients": {value}', text, count=1))
    result = xenoovs("measure", "report", directory)
    assert result.status == 0 or (result.status == 1 and result.err.startswith("error: ")), result.err
    assert "Traceback" not in result.err
    assert "\x1b[31m" not in result.out + result.err


def test_nothing_measured_is_a_sentence(tmp_path: Path, xenoovs: CommandLine) -> None:
    directory = write(tmp_path / "r", replace(rate_run(), samples=()))
    with pytest.raises(MeasureError, match="the runs have no samples yet"):
        report(directory)
    result = xenoovs("measure", "report", tmp_path / "r" / "..")
    assert (result.status, "holds no run of `xenoovs measure`" in result.err) == (1, True)
    with pytest.raises(MeasureError, match="5 directories are more than the 4 that fit side by side"):
        report(*[directory] * 5)


def test_a_directory_that_cannot_be_written_is_a_sentence(of_recorded: MeasureReport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasureError, match=r"the report cannot be written to .*/file/sub: Not a directory"):
        write_report(of_recorded, tmp_path / "file" / "sub")


@pytest.mark.usefixtures("undrawn")
def test_the_command_writes_the_report_beside_the_runs(tmp_path: Path, xenoovs: CommandLine) -> None:
    directory = write(tmp_path / "r", loss_run())
    result = xenoovs("measure", "report", str(directory))
    assert f"report: {directory}/report.html, with loss.png" in result.out
    assert (directory / "loss.csv").read_text().startswith("run,frame bytes,offered share,")
    assert not list(directory.glob(".*"))


RUNS = (
    rate_run(repeats=1),
    loss_run(),
    latency_run(),
    designs_run(),
    paths_run({"a": 3e5, "b": 2e5}, repeats=1),
    completion_run(),
)


def text_of(samples: tuple[Sample, ...]) -> str:
    names = [each.name for each in fields(Sample)]
    return "".join(json.dumps({name: getattr(one, name) for name in names}) + "\n" for one in samples)


def test_samples_that_end_anywhere_in_the_last_line_are_those_before_it() -> None:
    samples = RUNS[0].samples[:2]
    text = text_of(samples)
    for end in range(text.index("\n") + 1, len(text)):
        assert parse_samples(text[:end], file="samples.jsonl", experiment="rate") == samples[:1]


_VALUE = re.compile(r'(?<=[:,\[] )("[^"]*"|-?[0-9][0-9.e+-]*|true|false|\[\]|\{\})(?=[,\]}\n])')
_WRONG = (
    *("NaN", "-Infinity", "1e400", "1e308", "1e100", "-1e100", "1e-320", "0", "-1", "12.5", "null", "true", "9" * 20),
    "1" + "0" * 400,
    *('""', '"x"', '"\\u0000"', '"\\u001b[31m"', "[]", "{}", "[[1]]", '["x"]', '{"a": 1}'),
)


@settings(max_examples=50)
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
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for make, place, said in (
        (os.mkfifo, run / SAMPLES_FILE, r"samples\.jsonl: it is not a file"),
        (lambda path: path.symlink_to(path.name), run / SAMPLES_FILE, "Too many levels of symbolic links"),
        (os.mkdir, run / RUN_FILE, r"run\.json: it is not a file"),
    ):
        place.unlink()
        make(place)
        with pytest.raises(FileUnusable, match=said):
            read_sources([run])
    with pytest.raises(MeasureError, match=r"loop cannot be read: Too many levels of symbolic links"):
        read_sources([loop])


def test_names_of_directories_are_text_and_no_formula(tmp_path: Path) -> None:
    names = (b"a$b$_$\\frac{", b"\xff\xfe")
    (one,), (two,) = (read_sources([write(Path(os.fsdecode(bytes(tmp_path) + b"/" + n)), rate_run())]) for n in names)
    chart = chart_of([one.runs["rate"], two.runs["rate"]], [one.label, two.label])
    assert chart is not None
    assert svg_of(chart).encode()


@given(st.text(), st.text())
def test_no_text_becomes_markup(child: str, value: str) -> None:
    text = element("p", child, title=value)
    assert [text.count(mark) for mark in '<>"'] == [2, 2, 2]
