"""`xenoovs measure paths`: measure the paths of a DPU, rank them, combine them until it is saturated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import click

from xenoovs.display import quantity, span
from xenoovs.errors import MeasureError
from xenoovs.measure.bed_paths import PathDirection
from xenoovs.measure.commands.path_list import list_paths
from xenoovs.measure.commands.path_plan import plan_document, show_plan, write_weights, write_whole
from xenoovs.measure.commands.run import (
    MeasureSettings,
    bed_of,
    document_of,
    measure_options,
    repeats_option,
    run_on_bed,
    show_result,
)
from xenoovs.measure.path_figures import (
    MeasuredPaths,
    PairFigures,
    PathFigures,
    lacking_samples,
    measured_file,
    measured_paths,
)
from xenoovs.measure.paths import paths_experiment
from xenoovs.measure.paths_file import load_paths
from xenoovs.measure.samples import RecordedRun, read_recorded
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, require_libraries
from xenoovs.paths.plan import Criterion, PairVerdict, PathPlan, plan_paths
from xenoovs.terminal.defaults import announce, find_lab
from xenoovs.terminal.output import echo, print_table, print_text

PATHS_FILE = "paths.yaml"
"""Name of the file of paths in the directory of a run."""

_DIRECTIONS = {"both": tuple(PathDirection), "in": (PathDirection.IN,)}
_COLORS = {"apart": "green", "shared": "red", "undecided": "yellow"}


def _amount(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Fraction | None:
    if given is None:
        return None
    try:
        found = Decimal(given)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 < found <= 10**9 or found.adjusted() < -9:
        raise click.BadParameter(f"{given!r} is not a load: write a number above 0, such as 12.5.")
    return Fraction(found)


def _named_lab(context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """Return the lab that the user named; that of the environment counts only where there is no FILE."""
    if given is None or context.resilient_parsing:
        return given
    lab, origin = find_lab(given)
    announce(f"lab {lab}", origin)
    return lab


@click.command("paths")
@functools.partial(measure_options, choose_lab=_named_lab)
@click.option(
    "--directions",
    type=click.Choice([*_DIRECTIONS]),
    default="both",
    show_default=True,
    help="Measure ways to the backends alone, or also those from them, which need tcpreplay on the backends.",
)
@repeats_option("[default: 5, quick: as many as fit, 5 at most]")
@click.option(
    "--by",
    "criterion",
    type=click.Choice([each.value for each in Criterion]),
    default=Criterion.THROUGHPUT.value,
    show_default=True,
    callback=lambda _context, _parameter, value: Criterion(value),
    help="Rank the paths by what each carries alone, by its latency, or by the CPU that a unit of load costs.",
)
@click.option(
    "--demand", metavar="LOAD", callback=_amount, help="Carry only this load, on the first paths of the ranking."
)
@click.option(
    "--weights",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="JSON",
    help="Write the plan there, from which a service takes its weights.",
)
@click.option(
    "--list",
    "is_listing",
    is_flag=True,
    help="Print a file with the paths through the bridges of this host, to fill in by hand.",
)
@click.option(
    "--uplink",
    "uplinks",
    multiple=True,
    metavar="PORT",
    help="With --list: a port to the wire that is not an uplink of a NIC.",
)
@click.option(
    "--db", metavar="TARGET", help="With --list: database of the Open vSwitch to use. Default: that of the tools."
)
def paths_command(
    settings: MeasureSettings,
    *,
    directions: str,
    repeats: int | None,
    criterion: Criterion,
    demand: Fraction | None,
    weights: Path | None,
    is_listing: bool,
    uplinks: tuple[str, ...],
    db: str | None,
) -> None:
    """Measure the paths of a DPU, rank them, and combine them in turn until the DPU is saturated.

    With --lab or --bed, FILE is the config. A path leads through the bridge to a backend of the service. The rate and
    the round trip of each path are measured alone, then rates of pairs at the same time, in the same and in opposite
    directions: pairs that carry less together share a bottleneck. The run gets a file with what was found, paths.yaml.

    Else FILE is such a file, measured or written by hand, or a run, and nothing is measured. It names the paths, what
    each carries alone, and what they share. Of all splits with the greatest sum, the result loads the first path of the
    ranking as much as possible, then the second. It is exact, whatever the order in the file.

    A service takes its weights from the file of --weights with `weights: {from: JSON}`. A run that lacks samples gives
    no weights: backends without a sample would get nothing.

    \b
    Examples:
      xenoovs measure paths --lab --quick
      xenoovs measure paths my.yaml --bed bed.yaml --weights paths.json
      xenoovs measure paths results/paths-20260101T120000Z/paths.yaml --by latency
      xenoovs measure paths --list > dpu.yaml
    """
    if is_listing:
        if settings.config is not None or settings.lab is not None or settings.bed is not None:
            raise click.UsageError("--list needs no FILE and no bed: it prints the paths of this host, or of --db.")
        list_paths(db, uplinks, settings.output)
        return
    if uplinks or db:
        raise click.UsageError("--uplink and --db belong to --list.")
    planner = _Planner(criterion, demand, weights)
    settings = _with_usual_lab(settings)
    if settings.lab is None and settings.bed is None:
        planner.show_file(settings)
        return
    require_libraries("numpy")
    chosen = _DIRECTIONS[directions]
    with (
        bed_of(settings) as bed,
        paths_experiment(bed, directions=chosen, quick=settings.quick, seed=settings.seed, repeats=repeats) as made,
    ):
        recorded = run_on_bed(settings, bed, made)
    planner.show_run(settings, recorded)


def _with_usual_lab(settings: MeasureSettings) -> MeasureSettings:
    """Return the settings with the lab of the environment where neither a file nor a bed is named."""
    if settings.config is not None or settings.lab is not None or settings.bed is not None:
        return settings
    lab, origin = find_lab(None)
    if lab is None:
        raise click.UsageError("Name a bed with --lab or --bed to measure, a FILE of paths to plan, or use --list.")
    announce(f"lab {lab}", origin)
    return replace(settings, lab=lab)


class _Planner:
    """Plans what a file has, and shows it."""

    def __init__(self, criterion: Criterion, demand: Fraction | None, weights: Path | None) -> None:
        self._criterion, self._demand, self._weights = criterion, demand, weights

    def _plan(self, file: Path) -> tuple[PathPlan, str, dict[str, object]]:
        known, resources, unit = load_paths(file)
        plan = plan_paths(known, resources, criterion=self._criterion, demand=self._demand)
        return plan, unit, plan_document(plan, unit)

    def show_file(self, settings: MeasureSettings) -> None:
        """Show the plan of a file that is there, or of a run."""
        if settings.config is None:
            raise RuntimeError("neither a file nor a bed")
        if settings.config.is_dir():
            self.show_run(settings, _read_run(settings.config))
            return
        plan, unit, document = self._plan(settings.config)
        if self._weights is not None:
            write_weights(self._weights, document)
        settings.output.show(lambda: document, lambda: show_plan(plan, unit, self._weights))

    def show_run(self, settings: MeasureSettings, recorded: RecordedRun) -> None:
        """Write the file of a run, and show what was measured and its plan."""
        require_libraries("numpy")
        file = recorded.directory / PATHS_FILE
        again = f"free space there, then `xenoovs measure paths {recorded.directory}`"
        write_whole(file, measured_file(recorded), instead=again)
        plan, unit, document = self._plan(file)
        found, lacking = measured_paths(recorded), lacking_samples(recorded)
        weights = None if lacking else self._weights
        if weights is not None:
            write_weights(weights, document)
        measured = {"file": str(file), "pairs": [_pair_document(pair) for pair in found.pairs], "plan": document}

        def show(_recorded: RecordedRun) -> None:
            _show_measured(found)
            _say_few_repeats(found)
            echo()
            show_plan(plan, unit, weights)
            if lacking:
                print_text(f"the plan is incomplete: {lacking}", fg="yellow")
            echo()
            echo(f"paths in {file}")

        if settings.output.value == "json":
            settings.output.show(lambda: {**document_of(recorded), "paths": measured}, lambda: None)
        else:
            show_result(settings, recorded, show)
        if lacking and self._weights is not None:
            raise MeasureError(
                f"{self._weights} is not written: in {recorded.directory} {lacking}; the command that measured it goes "
                "on with --resume"
            )


def _read_run(directory: Path) -> RecordedRun:
    """Return a run of this experiment. Raises MeasureError, FileUnusable."""
    recorded = read_recorded(directory)
    if recorded.run.experiment != "paths":
        raise MeasureError(f"{directory} is a run of `measure {recorded.run.experiment}`: name one of `measure paths`")
    return recorded


def _pair_document(pair: PairFigures) -> dict[str, object]:
    return {
        "paths": [str(pair.one), str(pair.other)],
        "direction": "same" if pair.is_same_direction else "opposite",
        "reached": pair.reached.estimate,
        "interval": [pair.reached.low, pair.reached.high],
        "verdict": pair.verdict.value,
        "reason": pair.reason or None,
    }


def _show_measured(found: MeasuredPaths) -> None:
    headers = ["PATH", "DIRECTION", "PACKETS/S", "95% INTERVAL", "ROUND TRIP", "CPU/PACKET"]
    print_table(headers, [_path_row(path) for path in found.paths], right=(2, 3, 4, 5), spare=(5,))
    for path in found.paths:
        if not path.is_full:
            print_text(f"{path.end} lost nothing: it may carry more than was sent", fg="yellow")
    if not found.pairs:
        return
    echo()
    headers = ["TOGETHER", "DIRECTION", "REACHED", "95% INTERVAL", "VERDICT"]
    print_table(headers, [_pair_row(pair) for pair in found.pairs], right=(2, 3))
    print_text(
        "REACHED: what arrived of both, each as a share of its rate alone: 200% if they share nothing, 100% if all"
    )
    if any(pair.verdict is PairVerdict.UNDECIDED and pair.is_same_direction for pair in found.pairs):
        print_text("the plan counts an undecided pair as what it reached: more repeats would decide", fg="yellow")


def _say_few_repeats(found: MeasuredPaths) -> None:
    intervals = [*(path.rate_pps for path in found.paths), *(pair.reached for pair in found.pairs)]
    counts = sorted({each.count for each in intervals if each.count > 1 and not each.is_confidence})
    if counts:
        print_text(
            f"of {' or '.join(map(str, counts))}: from the least to the greatest of so many repeats; an interval needs "
            f"{FEWEST_REPEATS}"
        )


def _path_row(path: PathFigures) -> list[str]:
    rate = path.rate_pps
    return [
        path.end.path,
        path.end.direction,
        quantity(rate.estimate),
        _range(rate, quantity),
        _microseconds(path.rtt_us),
        _microseconds(path.cpu_us),
    ]


def _range(found: Interval, show: Callable[[float], str]) -> str:
    low, high = found.bounds
    if low is None or high is None:
        return "-"
    return f"{show(low)} to {show(high)}{'' if found.is_confidence else f' of {found.count}'}"


def _microseconds(value: Interval | None) -> str:
    return "-" if value is None else span(max(0.0, value.estimate) / 1e6)


def _pair_row(pair: PairFigures) -> Sequence[str]:
    reached = pair.reached
    verdict = click.style(pair.verdict.value, fg=_COLORS[pair.verdict.value])
    return [
        f"{pair.one.path}, {pair.other.path}" if pair.one.path != pair.other.path else pair.one.path,
        "same" if pair.is_same_direction else "opposite",
        f"{reached.estimate:.0%}",
        _range(reached, "{:.0%}".format),
        f"{verdict}: {pair.reason}" if pair.reason else verdict,
    ]
