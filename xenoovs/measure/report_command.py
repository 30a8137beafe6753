"""`xenoovs measure report`: the figures of runs of `measure`, as a page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.measure.statistics import require_libraries
from xenoovs.terminal.options import OutputFormat, output_option
from xenoovs.terminal.output import echo, print_table, print_text

if TYPE_CHECKING:
    from xenoovs.measure.report import MeasureReport
    from xenoovs.measure.verdict import ClaimVerdict

    Verdicts = Sequence[tuple[str, ClaimVerdict]]

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
def report_command(directories: tuple[Path, ...], *, out: Path | None, output: OutputFormat) -> None:
    """Write a report about the runs in the directories RESULTS: report.html, and each picture as PNG, SVG and CSV.

    RESULTS is a run, or a directory of runs, of which the newest complete one of each experiment counts. Several
    RESULTS are shown side by side, such as before and after a change; the others are compared with the first.
    Incomplete runs are drawn with their samples so far. The same samples always give the same report. It needs
    matplotlib: `pip install 'xenoovs[measure]'`.

    A claim is confirmed or refuted if a confidence interval of 95 % lies wholly on one side, otherwise undecided.
    """
    require_libraries("numpy", "matplotlib")
    from xenoovs.measure.report import make_report, read_sources, verdicts_of, write_report

    report = make_report(read_sources(directories))
    page, verdicts = write_report(report, out or directories[0]), [*verdicts_of(report.charts)]
    output.show(lambda: _document(report, page, verdicts), lambda: _show(report, page, verdicts))


def _show(report: MeasureReport, page: Path, verdicts: Verdicts) -> None:
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


def _document(report: MeasureReport, page: Path, verdicts: Verdicts) -> dict[str, object]:
    return {
        "report": str(page),
        "files": sorted(report.files),
        "verdicts": [
            {"claim": verdict.claim, "verdict": verdict.outcome.value, "reason": verdict.reason, "run": run or None}
            for run, verdict in verdicts
        ],
    }
