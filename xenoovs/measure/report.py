"""`xenoovs measure report`: one HTML page with all pictures, and each picture as PNG, SVG and CSV.

It is a pure function of the samples: the same runs give the same bytes.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import click

from xenoovs import __version__
from xenoovs.dataclass import dataclass
from xenoovs.display import percent
from xenoovs.errors import MeasureError, counted
from xenoovs.lab.lab import write_whole
from xenoovs.measure.chart import OTHER_HARDWARE, Cell, Chart, ChartTable, PublishedSource, published_of
from xenoovs.measure.charts import chart_of, compare, experiments_of, subtitle_of
from xenoovs.measure.samples import BedKind, RecordedRun, find_runs, read_recorded
from xenoovs.measure.statistics import require_libraries
from xenoovs.measure.verdict import ClaimVerdict
from xenoovs.terminal.options import output_option
from xenoovs.terminal.output import answer, echo, print_table, print_text

REPORT_FILE = "report.html"
MAX_SOURCES = 4

_KIND_NOTICES = {
    BedKind.LAB: "Figures of a lab: Open vSwitch in software, with all machines on one. They are not figures of a NIC.",
    BedKind.EMULATED: "Figures of a virtual machine with an emulated NIC. They are not figures of hardware: the NIC is "
    "a program on the processor that also runs Open vSwitch, and times with offload on and off say nothing.",
}


@dataclass(frozen=True, slots=True)
class ReportSource:
    """The runs of one directory. `runs`: Newest complete run of each experiment, or the newest with samples."""

    label: str
    runs: dict[str, RecordedRun]
    older: tuple[RecordedRun, ...]


@dataclass(frozen=True, slots=True)
class MeasureReport:
    files: dict[str, bytes]
    charts: tuple[Chart, ...]


def verdicts_of(charts: Iterable[Chart]) -> Iterator[tuple[str, ClaimVerdict]]:
    """Yield all verdicts, each with the label of its run; empty if the picture has one run."""
    for chart in charts:
        for subtitle, verdicts in zip(chart.subtitles, chart.verdicts, strict=True):
            label = subtitle.partition(":")[0] if len(chart.runs) > 1 else ""
            yield from ((label, verdict) for verdict in verdicts)


def read_sources(directories: Sequence[Path]) -> tuple[ReportSource, ...]:
    """Read the runs of some directories. Raises MeasureError, FileUnusable."""
    if len(directories) > MAX_SOURCES:
        raise MeasureError(f"{len(directories)} directories are more than the {MAX_SOURCES} that fit side by side")
    labels = _labels(directories)
    sources = list[ReportSource]()
    for directory, label in zip(directories, labels, strict=True):
        newest, older = dict[str, RecordedRun](), list[RecordedRun]()
        for recorded in sorted(map(read_recorded, find_runs(directory)), key=_rank):
            before = newest.get(recorded.run.experiment)
            older += [before] if before is not None and before.samples else []
            newest[recorded.run.experiment] = recorded
        sources.append(ReportSource(label, newest, tuple(older)))
    return tuple(sources)


def _rank(recorded: RecordedRun) -> tuple[bool, bool, str]:
    """Return the sort key of a run: complete runs last, and of those the newest."""
    return recorded.is_complete, bool(recorded.samples), recorded.run.started


def _labels(directories: Sequence[Path]) -> list[str]:
    """Return a name for each: the last part of its path, or the whole path if two names would be equal."""
    # File names may be no UTF-8; the page is.
    whole = [str(directory).encode(errors="replace").decode() for directory in directories]
    names = [Path(os.path.realpath(name)).name for name in whole]
    return names if len(set(names)) == len(names) else whole


def charts_of(sources: Sequence[ReportSource]) -> tuple[Chart, ...]:
    """Return the pictures of some directories side by side. Raises MeasureError if there are no samples yet."""
    charts = list[Chart]()
    for experiment in experiments_of(run for source in sources for run in source.runs.values()):
        chosen = [(source.runs[experiment], source.label) for source in sources if experiment in source.runs]
        try:
            chart = chart_of([run for run, _ in chosen], [label for _, label in chosen])
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            names = ", ".join(str(run.directory) for run, _ in chosen)
            raise MeasureError(
                f"{names}: points or samples are not those of experiment {experiment} ({error}): they are damaged, or "
                "of another version of xenoovs; report the other runs without them"
            ) from None
        if chart is not None:
            charts.append(chart)
    if not charts:
        run = next((run for source in sources for run in source.runs.values() if run.samples), None)
        if run is not None:
            raise MeasureError(
                f"{run.directory}: there is no picture of an experiment {run.run.experiment[:40]!r}: the run is of "
                "another version of xenoovs; report the other runs without it"
            )
        raise MeasureError("the runs have no samples yet, so there is nothing to report")
    return tuple(charts)


def make_report(sources: Sequence[ReportSource]) -> MeasureReport:
    """Return the report of some directories side by side. Raises MeasureError if there are no samples yet."""
    from xenoovs.measure.pictures import DARK, STYLED, png_of, svg_of

    charts = charts_of(sources)
    written = dict[str, bytes]()
    pictures = list[Markup]()
    for chart in charts:
        pictures.append(Markup(svg_of(chart, STYLED)))
        written[f"{chart.name}.png"] = png_of(chart)
        written[f"{chart.name}-dark.png"] = png_of(chart, DARK)
        written[f"{chart.name}.svg"] = svg_of(chart).encode()
        written[f"{chart.name}.csv"] = _csv(chart.table)
    page = _page(sources, charts, pictures)
    return MeasureReport({REPORT_FILE: page.encode(errors="replace"), **written}, charts)


def write_report(report: MeasureReport, directory: Path) -> Path:
    """Write all files, each atomically, and return the path of the page. Raises MeasureError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in report.files.items():
            write_whole(directory / name, content)
    except OSError as error:
        raise MeasureError(
            f"the report cannot be written to {directory}: {error.strerror}; name another directory with --out"
        ) from None
    return directory / REPORT_FILE


def _csv(table: ChartTable) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return stream.getvalue().encode()


_MAX_ROWS = 24
"""Rows; longer tables are folded."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""Content security policy (CSP Level 3): no scripts and no external content; pictures have style attributes."""


def _page(sources: Sequence[ReportSource], charts: Sequence[Chart], pictures: Sequence[Markup]) -> str:
    recorded = [run for source in sources for run in source.runs.values()]
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", f"xenoovs measure · {' and '.join(source.label for source in sources)}"),
        element("style", Markup(_style())),
    )
    body = element(
        "body",
        element("h1", "xenoovs measure"),
        element("p", _headline(recorded), class_="quiet"),
        *_notices(recorded),
        _verdicts(charts),
        *(_section(chart, picture) for chart, picture in zip(charts, pictures, strict=True)),
        _circumstances(sources),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _style() -> str:
    from xenoovs.measure.pictures import DARK, LIGHT, style_variables

    text = (files("xenoovs.measure") / "report.css").read_text(encoding="utf-8")
    return text.replace("LIGHT_PICTURES", style_variables(LIGHT)).replace("DARK_PICTURES", style_variables(DARK))


def _headline(recorded: Sequence[RecordedRun]) -> str:
    samples = sum(len(run.samples) for run in recorded)
    datapaths = dict.fromkeys(run.run.datapath for run in recorded)
    return f"{' | '.join(datapaths)}: {counted(len(recorded), 'run')}, {counted(samples, 'sample')}"


def _notices(recorded: Sequence[RecordedRun]) -> Iterator[Markup]:
    for kind in dict.fromkeys(run.run.kind for run in recorded):
        if kind in _KIND_NOTICES:
            yield element("p", _KIND_NOTICES[kind], class_="notice")
    names = {
        "Quick runs, with fewer repeats and shorter measurements": [run for run in recorded if run.run.quick],
        "Incomplete runs, of which the report has what was measured": [run for run in recorded if not run.is_complete],
        "Runs with suspect samples": [run for run in recorded if any(sample.suspect for sample in run.samples)],
    }
    for text, runs in names.items():
        if runs:
            yield element("p", f"{text}: {', '.join(run.directory.name for run in runs)}.", class_="notice warn")


def _verdicts(charts: Sequence[Chart]) -> Markup | None:
    rows = [
        element(
            "tr",
            element("td", _sentence(verdict.claim)),
            element("td", element("span", verdict.outcome.value, class_=f"pill {verdict.outcome.value}")),
            element("td", label and f"{label}: ", _sentence(verdict.reason)),
        )
        for label, verdict in verdicts_of(charts)
    ]
    if not rows:
        return None
    legend = (
        "The three claims that the talk about XenoFlow tested, and those about paths of tunnels. A claim is confirmed "
        "or refuted where a confidence interval of 95 % lies wholly on one side; the unit is the repeat, of which a "
        "verdict needs five. In scenes that a probe per flow was published for, its claim also holds within the noise."
    )
    return element(
        "section",
        element("h2", "Verdicts"),
        element("table", *rows, class_="verdicts"),
        element("p", legend, class_="quiet"),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _section(chart: Chart, picture: Markup) -> Markup:
    figure = element(
        "figure",
        element("div", picture, class_="picture"),
        element("figcaption", " ".join((chart.caption, *chart.notes))),
    )
    return element(
        "section",
        element("h2", chart.title),
        figure,
        *_comparison(chart),
        _figures(chart.table),
        *_suspects(chart.runs),
        *_published(chart.name),
        id=chart.name,
    )


def _figures(table: ChartTable) -> Markup:
    shown = element("div", _table(table), class_="wide")
    if len(table.rows) <= _MAX_ROWS:
        return join(element("h3", "Figures"), shown)
    return element("details", element("summary", f"figures of {counted(len(table.rows), 'point')}"), shown)


def _comparison(chart: Chart) -> Iterator[Markup]:
    for title, table in compare(chart):
        shown = element("div", _table(table), class_="wide")
        yield element("details", element("summary", title), shown, open="" if len(table.rows) <= _MAX_ROWS else None)


def _table(table: ChartTable) -> Markup:
    # The first column names the run if there are several.
    used = [index for index in range(len(table.columns)) if any(row[index] not in (None, "") for row in table.rows)]
    head = (element("th", table.columns[i], class_="n" if i in table.numbers else None) for i in used)
    rows = (
        element("tr", *(element("td", _cell(row[i]), class_="n" if i in table.numbers else None) for i in used))
        for row in table.rows
    )
    return element("table", element("thead", element("tr", *head)), element("tbody", *rows))


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _suspects(runs: Iterable[RecordedRun]) -> Iterator[Markup]:
    reasons = Counter(reason for run in runs for sample in run.samples for reason in sample.suspect)
    if reasons:
        yield element("h3", "Suspect samples")
        yield element("p", "They count only at points that have no others.", class_="quiet")
        yield element("ul", *(element("li", f"{reason} ({counted(n, 'sample')})") for reason, n in reasons.items()))


def _published(experiment: str) -> Iterator[Markup]:
    known = published_of(experiment)
    if known:
        yield element("h3", _sentence(OTHER_HARDWARE))
        singles = list[str]()
        for one in known:
            if one.unit:
                value = one.points[0][1]
                shown = f"{value:,.0f}" if value >= 1000 else f"{value:g}"
                singles.append(f"{one.source.name}, {one.label}: {shown} {one.unit}")
        sources = dict.fromkeys(one.source for one in known)
        yield element("ul", *(element("li", text) for text in singles), *map(_source, sources))


def _source(source: PublishedSource) -> Markup:
    link = element("a", source.url, href=source.url) if source.url else None
    return element("li", "Source: ", source.title, " " if link else None, link)


def _circumstances(sources: Sequence[ReportSource]) -> Markup:
    parts = list[Markup]()
    for source in sources:
        for recorded in source.runs.values():
            parts.append(_run(recorded, source.label if len(sources) > 1 else ""))
        for old in source.older:
            kind = "newer" if old.is_complete else "complete or newer"
            text = f"{old.directory.name} is left out: a {kind} run of {old.run.experiment} is in the same directory."
            parts.append(element("p", text, class_="quiet"))
    made = element("p", f"Made by xenoovs {__version__} from the samples alone.", class_="quiet")
    return element("section", element("h2", "Circumstances"), *parts, made)


def _run(recorded: RecordedRun, label: str) -> Markup:
    run = recorded.run
    suspect = sum(bool(sample.suspect) for sample in recorded.samples)
    facts = {
        "datapath": subtitle_of(recorded),
        "command": " ".join(run.command),
        "started": run.started,
        "repeats": f"{run.repeats} of {counted(len(run.points), 'point')}, seed {run.seed}",
        "suspect": f"{counted(suspect, 'sample')} ({percent(suspect / max(1, len(recorded.samples)))})",
        **{name: str(value) for name, value in sorted(run.options.items())},
        **{name: str(value) for name, value in sorted(run.basis.items()) if isinstance(value, (int, float, str))},
        **dict(sorted(run.versions.items())),
    }
    rows = (element("tr", element("td", name, class_="quiet"), element("td", value)) for name, value in facts.items())
    return join(
        element("h3", f"{label}: " if label else None, recorded.directory.name),
        element("table", *rows),
        element("details", element("summary", "config"), element("pre", run.config)),
    )


# Elements of HTML as values. All text is escaped.

Attribute = str | int | None


class Markup(str):
    """Text that is already HTML. Only `element` and `join` make it."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: Attribute) -> Markup:
    """Return one element. A child that is not Markup is escaped; children and attributes that are None are left out.

    In attribute names a `_` at the end is removed, and any other becomes `-`.
    """
    text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{text}>{join(*children)}</{tag}>")


def join(*children: str | None) -> Markup:
    """Return the concatenation of elements and texts, which it escapes."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))


_COLORS = {"confirmed": "green", "refuted": "red", "undecided": "yellow"}


@click.command("report")
@click.argument("directories", metavar="RESULTS...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory for the report. Default: the first RESULTS.",
)
@output_option
def report_command(directories: tuple[Path, ...], *, out: Path | None) -> None:
    """Write a report about the runs in the directories RESULTS: report.html, and each picture as PNG, SVG and CSV.

    RESULTS is a run, or a directory of runs, of which the newest complete one of each experiment counts. Several
    RESULTS are shown side by side, such as before and after a change; the others are compared with the first.
    Incomplete runs are drawn with their samples so far. The same samples always give the same report. It needs
    matplotlib: `pip install 'xenoovs[measure]'`.

    A claim is confirmed or refuted if a confidence interval of 95 % lies wholly on one side, otherwise undecided.
    """
    require_libraries("numpy", "matplotlib")
    report = make_report(read_sources(directories))
    page, verdicts = write_report(report, out or directories[0]), [*verdicts_of(report.charts)]
    answer(lambda: _document(report, page, verdicts), lambda: _show(report, page, verdicts))


def _show(report: MeasureReport, page: Path, verdicts: Sequence[tuple[str, ClaimVerdict]]) -> None:
    rows = [
        [
            verdict.claim,
            click.style(verdict.outcome.value, fg=_COLORS[verdict.outcome.value]),
            f"{run and f'{run}: '}{verdict.reason}",
        ]
        for run, verdict in verdicts
    ]
    if rows:
        print_table(["CLAIM", "VERDICT", "REASON"], rows)
        echo()
    for subtitle in dict.fromkeys(subtitle for chart in report.charts for subtitle in chart.subtitles):
        print_text(subtitle)
    print_text(f"report: {page}, with {', '.join(f'{chart.name}.png' for chart in report.charts)}")


def _document(report: MeasureReport, page: Path, verdicts: Sequence[tuple[str, ClaimVerdict]]) -> dict[str, object]:
    return {
        "report": str(page),
        "files": sorted(report.files),
        "verdicts": [
            {"claim": verdict.claim, "verdict": verdict.outcome.value, "reason": verdict.reason, "run": run or None}
            for run, verdict in verdicts
        ],
    }
