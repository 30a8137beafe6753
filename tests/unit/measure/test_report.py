"""Reports about runs: a pure function of the samples, self-contained, honest about what is missing."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.unit.measure.made import designs_run, latency_run, loss_run, rate_run, suspecting, write
from xenoovs.errors import MeasureError
from xenoovs.measure.report import MeasureReport, make_report, read_sources, write_report
from xenoovs.measure.samples import BedKind

RECORDED = Path(__file__).parent / "recorded"


def report(*directories: Path) -> MeasureReport:
    return make_report(read_sources(directories))


def page(*directories: Path) -> str:
    return report(*directories).files["report.html"].decode()


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run of each experiment."""
    directory = tmp_path_factory.mktemp("measured") / "all"
    return write(directory, rate_run(), latency_run(), loss_run(), designs_run())


@pytest.fixture(scope="module")
def everything(all_runs: Path) -> MeasureReport:
    """Their report, made once: pictures take seconds."""
    return report(all_runs)


def test_recorded_runs_become_a_page_with_their_pictures() -> None:
    made = report(RECORDED)
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
    assert [row["bytes"] for row in rows] == [f"{16.0 * 4**n}" for n in range(11)]
    # Quick runs have fewer repeats than a verdict needs.
    assert {verdict.outcome.value for _, verdict in made.verdicts} == {"undecided"}


def test_counts_of_recorded_runs_are_exact() -> None:
    for chart in report(RECORDED).charts:
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


def test_the_page_needs_nothing_else(everything: MeasureReport) -> None:
    text = everything.files["report.html"].decode()
    assert "<script" not in text
    assert "default-src 'none'" in text
    # Addresses are those of sources, to follow, and names of XML; nothing is fetched.
    assert set(re.findall(r'(\w+)="https?://(?!www\.w3\.org)', text)) == {"href"}
    assert not re.search(r'(src|url)\s*[=(]\s*["\']?(?!#|data:)[a-z]+:', text)
    assert re.findall(r"#0102[0-9a-f]{2}", text) == []
    assert text.count("<svg ") == 4


def test_names_of_parts_are_unique_in_the_page(everything: MeasureReport) -> None:
    names = re.findall(r' id="([^"]+)"', everything.files["report.html"].decode())
    shared = {name for name in names if names.count(name) > 1}
    # The forms of characters are the same in all pictures.
    assert {name for name in shared if not name.startswith("DejaVuSans")} == set()


def test_verdicts_are_on_the_page(everything: MeasureReport) -> None:
    text = everything.files["report.html"].decode()
    assert "Latency does not depend on load" in text
    assert 'class="pill refuted">refuted' in text
    assert [verdict.outcome.value for _, verdict in everything.verdicts] == ["refuted", "refuted", "refuted"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            BedKind.LAB,
            "Figures of a lab: Open vSwitch in software, with all machines on one. They are not figures of a NIC.",
        ),
        (BedKind.EMULATED, "Figures of a virtual machine with an emulated NIC. They are not figures of hardware."),
    ],
)
def test_figures_of_a_lab_are_never_those_of_hardware(kind: BedKind, sentence: str, tmp_path: Path) -> None:
    assert sentence in page(write(tmp_path / "it", rate_run(kind=kind)))
    assert "not figures of" not in page(write(tmp_path / "real", rate_run(kind=BedKind.MACHINES)))


def test_quick_interrupted_and_suspect_runs_are_called_so(tmp_path: Path) -> None:
    whole = rate_run(quick=True)
    text = page(write(tmp_path / "r", suspecting(replace(whole, samples=whole.samples[:7]), 1)))
    assert "Quick runs, with fewer repeats and shorter measurements: rate-20260101T000000Z." in text
    assert "Incomplete runs, of which the report has what was measured: rate-20260101T000000Z." in text
    assert "the counters do not add up (1 sample)" in text


def test_two_directories_stand_side_by_side(tmp_path: Path) -> None:
    before, after = write(tmp_path / "before", rate_run()), write(tmp_path / "after", rate_run(factor=2))
    text = page(before, after)
    assert "after against before: throughput" in text
    assert text.count("<svg ") == 1


def test_the_newest_run_with_samples_counts(tmp_path: Path) -> None:
    old = rate_run()
    new = replace(rate_run(factor=2), run=replace(old.run, started="2026-02-01T00:00:00.000Z"))
    empty = replace(old, run=replace(old.run, started="2026-03-01T00:00:00.000Z"), samples=())
    text = page(write(tmp_path / "r", old, new, empty))
    assert "rate-20260101T000000Z is left out: a newer run of rate is in the same directory." in text
    assert "800,000" in text


def test_a_complete_run_counts_before_a_newer_fragment(tmp_path: Path) -> None:
    old = rate_run()
    new = replace(rate_run(factor=2), run=replace(old.run, started="2026-02-01T00:00:00.000Z"))
    text = page(write(tmp_path / "r", old, replace(new, samples=new.samples[:3])))
    assert "rate-20260201T000000Z is left out: a complete or newer run of rate is in the same directory." in text
    assert "Incomplete runs" not in text


@pytest.mark.parametrize("value", ["x", "1e308", "null", '"\\u001b[31m"', "[]", "{}", "1" + "0" * 400])
@pytest.mark.parametrize("key", ["clients", "forwarding_pps"])
def test_runs_with_values_of_another_kind_are_a_sentence(
    key: str, value: str, tmp_path: Path, xenoovs: CommandLine
) -> None:
    directory = write(tmp_path / "r", designs_run())
    (samples,) = directory.glob("*/samples.jsonl")
    first, *others = samples.read_text().splitlines(keepends=True)
    text = value if value != "x" else '"x"'
    samples.write_text("".join((re.sub(rf'"{key}": [0-9.]+', lambda _found: f'"{key}": {text}', first), *others)))
    result = xenoovs("measure", "report", directory)
    assert result.status in (0, 1)
    assert result.status == 0 or result.err.startswith("error: "), result.err
    assert "Traceback" not in result.err
    assert "\x1b[31m" not in result.out + result.err


def test_nothing_measured_is_a_sentence(tmp_path: Path) -> None:
    directory = write(tmp_path / "r", replace(rate_run(), samples=()))
    with pytest.raises(MeasureError, match="the runs have no samples yet"):
        report(directory)
    with pytest.raises(MeasureError, match="5 directories are more than the 4 that fit side by side"):
        report(*[directory] * 5)


def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasureError, match=r"the report cannot be written to .*/file/sub: Not a directory"):
        write_report(report(RECORDED), tmp_path / "file" / "sub")


def test_text_of_a_run_cannot_be_markup(tmp_path: Path) -> None:
    one = rate_run()
    text = page(write(tmp_path / "r", replace(one, run=replace(one.run, datapath="<b>&bold"))))
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;bold" in text


def test_the_command_writes_the_report_and_prints_the_verdicts(tmp_path: Path, xenoovs: CommandLine) -> None:
    directory = write(tmp_path / "r", loss_run())
    result = xenoovs("measure", "report", str(directory))
    assert result.status == 0
    assert "no packet is lost below line rate  refuted" in result.out
    assert f"report: {directory}/report.html, with loss.png" in result.out
    assert (directory / "loss.csv").read_text().startswith("run,frame bytes,offered share,")
    assert not list(directory.glob(".*"))


def test_the_command_writes_json(tmp_path: Path, xenoovs: CommandLine) -> None:
    directory = write(tmp_path / "r", loss_run())
    result = xenoovs("measure", "report", str(directory), "--out", str(tmp_path / "o"), "-o", "json")
    document = json.loads(result.out)
    assert document["report"] == str(tmp_path / "o" / "report.html")
    assert [verdict["verdict"] for verdict in document["verdicts"]] == ["refuted"]


def test_the_command_refuses_what_is_no_run(tmp_path: Path, xenoovs: CommandLine) -> None:
    result = xenoovs("measure", "report", str(tmp_path))
    assert result.status == 1
    assert "holds no run of `xenoovs measure`" in result.err
