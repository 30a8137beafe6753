"""Shared by the commands of experiments: the bed, the directory of a run, its table; `xenoovs measure check`."""

from __future__ import annotations

import functools
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from xenoovs import __version__
from xenoovs.dataclass import asdict, dataclass
from xenoovs.display import duration, percent, quantity, span
from xenoovs.errors import MeasureError, counted, worded
from xenoovs.measure.bed import AnyBed, Bed
from xenoovs.measure.check import EXPERIMENTS, BedFinding, check_bed
from xenoovs.measure.machines_bed import load_bed_file, open_lab_bed, open_machines_bed
from xenoovs.measure.samples import (
    Plain,
    Point,
    RecordedRun,
    Run,
    RunWriter,
    Sample,
    find_runs,
    new_run,
    point_key,
    read_recorded,
    resumed_run,
    utc_text,
)
from xenoovs.measure.schedule import Experiment, RunProgress, carry_out
from xenoovs.measure.verdict import mean_value, measured_points, offloaded_share
from xenoovs.model.balancer import Balancer
from xenoovs.model.include import MAX_SIZE_BYTES
from xenoovs.model.load import load_config, parse_config
from xenoovs.terminal.command import EXIT_DIFFERS
from xenoovs.terminal.completion import complete_service
from xenoovs.terminal.defaults import announce, find_config, find_lab
from xenoovs.terminal.options import FILE, OutputFormat, lab_option, output_option
from xenoovs.terminal.output import echo, echo_over, print_table

Command = TypeVar("Command", bound=Callable[..., object])

_BAR_COLUMNS = 20
_QUICK_S = 52.0
"""A minute, less the time to start and end the command."""
_SHOWN_REASONS = 5


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """The options of every experiment. `config`: File of the services under test; None for the bed's.

    `service`: None for the first that serves UDP. `quick`: Whether the run must end within a minute.
    """

    config: Path | None
    lab: str | None
    bed: Path | None
    service: str | None
    out: Path
    quick: bool
    resume: bool
    seed: int
    output: OutputFormat


def _chosen_lab(context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    # `measure` runs on the host even for a lab in a virtual machine, as the results must be on the host.
    if context.resilient_parsing:
        return given
    lab, origin = find_lab(given)
    announce(f"lab {lab}", origin)
    return lab


LabCallback = Callable[[click.Context, click.Parameter, str | None], str | None]


def repeats_option(default: str) -> Callable[[Command], Command]:
    """Return the option for the number of samples. `default`: Text for the help."""
    samples = click.IntRange(1, 1000)
    return click.option("--repeats", type=samples, metavar="N", help=f"Samples of each point.  {default}")


def sizes_option(default: str, *, least: int, most: int, noun: str) -> Callable[[Command], Command]:
    """Return the option for sizes in bytes. `default`: Text for the help. `noun`: What has the size."""

    def sizes(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[int, ...] | None:
        try:
            found = None if given is None else tuple(dict.fromkeys(int(word) for word in given.split(",")))
        except ValueError:
            raise click.BadParameter(f"{given!r} is not a list of sizes such as 64,512,1518.") from None
        for size in found or ():
            if not least <= size <= most:
                raise click.BadParameter(f"{size} is no size of {noun}: write {least} to {most}.")
        return found

    help_text = f"Sizes of {noun}.  [default: {default}]"
    return click.option("--sizes", callback=sizes, metavar="BYTES,...", help=help_text)


def measure_options(command: Command, *, choose_lab: LabCallback = _chosen_lab) -> Command:
    """Add the options of every experiment; the command gets them as `settings`, a MeasureSettings.

    `choose_lab`: The callback of `--lab`.
    """
    services = [
        click.argument("config", metavar="[FILE]", required=False, type=FILE),
        _lab_option(choose_lab),
        click.option(
            "--bed",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="BED",
            help="Measure on the machines of this file; see `xenoovs measure check --help`.",
        ),
        click.option(
            "--service",
            metavar="NAME",
            shell_complete=complete_service,
            help="Service of the config to send to.  [default: the first that serves UDP]",
        ),
    ]
    return _with_settings(command, [*services, *_run_options(), output_option])


def lab_measure_options(command: Command) -> Command:
    """Add the options of an experiment that needs a special lab: the settings have no config and no bed file."""
    return _with_settings(command, [_lab_option(_chosen_lab), *_run_options(), output_option])


def _lab_option(choose: LabCallback) -> Callable[..., Any]:
    return lab_option(
        help="Measure in this lab (see `xenoovs lab`); without NAME, in the only one.  [env var: XENOOVS_LAB]",
        is_eager=True,
        callback=choose,
    )


def _with_settings(command: Command, declare: list[Callable[..., Any]]) -> Command:
    @functools.wraps(command)
    def run(**options: Any) -> object:
        names = MeasureSettings.__dataclass_fields__
        settings = MeasureSettings(**{name: options.pop(name, None) for name in names})
        return command(settings=settings, **options)

    for option in reversed(declare):
        run = option(run)
    return cast(Command, run)


def _run_options() -> list[Callable[..., Any]]:
    return [
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            default="results",
            show_default=True,
            help="Directory for the run, which becomes a directory in it.",
        ),
        click.option(
            "--quick",
            is_flag=True,
            help="Measure fewer repeats, for shorter times; --resume adds what does not fit into a minute.",
        ),
        click.option("--resume", is_flag=True, help="Continue the newest incomplete run in --out."),
        click.option(
            "--seed",
            type=int,
            default=0,
            show_default=True,
            help="Seed of the order of the points and of the clients' addresses.",
        ),
    ]


@contextmanager
def bed_of(settings: MeasureSettings) -> Iterator[Bed]:
    """Open the bed that the options name. Raises click.UsageError, ConfigError, LabError, MeasureError."""
    if (settings.lab is None) == (settings.bed is None):
        raise click.UsageError("Name one bed: a lab with --lab, or a file with --bed.")
    config = settings.config if settings.config is not None else find_config(settings.lab)
    balancer = _load(config, for_lab=settings.lab is not None)
    if settings.bed is not None:
        opened = open_machines_bed(settings.bed, balancer, settings.service)
    else:
        opened = open_lab_bed(str(settings.lab), balancer, settings.service)
    with opened as bed:
        yield bed


def _load(config: Path, *, for_lab: bool) -> Balancer:
    if str(config) == "-":
        data = sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
        return parse_config(data, file="<stdin>", for_lab=for_lab)
    return load_config(config, for_lab=for_lab)


def run_on_bed(settings: MeasureSettings, bed: AnyBed, experiment: Experiment) -> RecordedRun:
    """Measure the missing samples on an open bed."""
    with _writer(settings, bed, experiment) as writer:
        try:
            within_s = _QUICK_S if settings.quick else None
            carry_out(experiment, writer, progress=_show_progress, within_s=within_s)
        except BaseException:
            echo_over("")
            _say_what_is_stored(writer)
            raise
        echo_over("")
        return RecordedRun(writer.directory, writer.run, tuple(writer.samples))


def show_result(settings: MeasureSettings, recorded: RecordedRun, show: Callable[[RecordedRun], None]) -> None:
    """Print a run. `show`: Prints its table."""
    settings.output.show(lambda: document_of(recorded), lambda: _show_run(recorded, show))


PointColumn = Callable[[RecordedRun, Sequence[Sample]], str]
"""Returns the cell of a point."""


def mean_of(key: str, form: Callable[[float], str] = quantity) -> PointColumn:
    """Return the column with the means of a value over the repeats that count."""

    def cell(_recorded: RecordedRun, samples: Sequence[Sample]) -> str:
        mean = mean_value(samples, key)
        return "-" if mean is None else form(mean)

    return cell


def microseconds(value: float) -> str:
    return span(value / 1e6)


def in_nic(recorded: RecordedRun, samples: Sequence[Sample]) -> str:
    return percent(offloaded_share(recorded, samples))


@dataclass(frozen=True, slots=True)
class PointTable:
    """The table of a run's points in a terminal. `names`: Keys of points by header, each with a format of its values.

    `columns`: Measured values by header. `title`: Returns the heading of a point; points with the same heading share a
    table. `note`: Returns the text below all tables.
    """

    names: Mapping[str, tuple[str, Callable[[Any], str]]]
    columns: Mapping[str, PointColumn]
    title: Callable[[Point], str] = lambda _point: ""
    note: Callable[[RecordedRun], str] = lambda _recorded: "rates in packets/s; means of the samples"

    def show(self, recorded: RecordedRun) -> None:
        tables, points = dict[str, list[list[str]]](), measured_points(recorded)
        for point, samples in points:
            name = [form(point[key]) for key, form in self.names.values()]
            cells = [column(recorded, samples) for column in self.columns.values()]
            tables.setdefault(self.title(point), []).append([*name, *cells])
        header = [*self.names, *self.columns]
        texts = sum(isinstance(point[key], str) for point, _ in points[:1] for key, _ in self.names.values())
        for title, rows in tables.items():
            if title:
                echo(f"\n{title}")
            print_table(header, rows, right=range(texts, len(header)))
        if note := self.note(recorded):
            echo(note)


def document_of(recorded: RecordedRun) -> dict[str, object]:
    suspect = sum(bool(sample.suspect) for sample in recorded.samples)
    return {
        "run": str(recorded.directory),
        "experiment": recorded.run.experiment,
        "kind": recorded.run.kind.value,
        "datapath": recorded.run.datapath,
        "quick": recorded.run.quick,
        "basis": recorded.run.basis,
        "suspect": suspect,
        "samples": [
            {"point": sample.point, "repeat": sample.repeat, "values": sample.values, "suspect": sample.suspect}
            for sample in recorded.samples
        ],
    }


def _show_run(recorded: RecordedRun, show: Callable[[RecordedRun], None]) -> None:
    show(recorded)
    echo()
    suspect = [sample for sample in recorded.samples if sample.suspect]
    reasons = list(dict.fromkeys(reason for sample in suspect for reason in sample.suspect))
    for reason in reasons[:_SHOWN_REASONS]:
        echo(click.style(f"suspect: {reason}", fg="yellow"))
    if suspect:
        more = f", {len(reasons) - _SHOWN_REASONS} more reasons" if len(reasons) > _SHOWN_REASONS else ""
        echo(click.style(f"{counted(len(suspect), 'suspect sample')}{more}", fg="yellow"))
    quick = ", a quick run" if recorded.run.quick else ""
    echo(f"{recorded.run.datapath}{quick}")
    left = len(recorded.run.missing(recorded.samples))
    why = "did not fit into a minute" if recorded.run.quick else worded(left, "is missing", "are missing")
    lacking = f"; {left} more {why}: --resume measures them" if left else ""
    echo(f"{counted(len(recorded.samples), 'sample')} in {recorded.directory}{lacking}")
    echo(f"next: xenoovs measure report {recorded.directory}")


def _say_what_is_stored(writer: RunWriter) -> None:
    total = len(writer.run.points) * writer.run.repeats
    if not writer.samples:
        return
    echo(
        f"{len(writer.samples)} of {counted(total, 'sample')} are stored in {writer.directory}; the same command with "
        "--resume goes on",
        err=True,
    )


def _show_progress(progress: RunProgress) -> None:
    filled = _BAR_COLUMNS * progress.done // max(1, progress.total)
    bar = "#" * filled + "-" * (_BAR_COLUMNS - filled)
    point = " ".join(map(str, progress.point.values()))
    echo_over(f"[{bar}] {progress.done}/{progress.total}  {point}  {duration(progress.left_s)} left")


@contextmanager
def _writer(settings: MeasureSettings, bed: AnyBed, experiment: Experiment) -> Iterator[RunWriter]:
    run = Run(
        experiment=experiment.name,
        config=bed.config,
        bed=bed.document,
        kind=bed.kind,
        datapath=bed.datapath,
        versions={"xenoovs": __version__, **bed.versions},
        command=("xenoovs", *click.get_current_context().find_root().obj),
        seed=settings.seed,
        quick=settings.quick,
        repeats=experiment.repeats,
        points=tuple(experiment.points),
        started=utc_text(time.time()),
        options=experiment.options,
    )
    if settings.resume:
        with resumed_run(_unfinished(settings.out, run)) as writer:
            yield writer
    else:
        with new_run(settings.out, run) as writer:
            try:
                yield writer
            finally:
                if not writer.samples:
                    shutil.rmtree(writer.directory, ignore_errors=True)


def _unfinished(out: Path, run: Run) -> Path:
    """Return the newest run of the same experiment that is not complete. Raises MeasureError, FileUnusable."""
    recorded = [read_recorded(path) for path in (find_runs(out) if out.exists() else ())]
    left = [one for one in recorded if one.run.experiment == run.experiment and not one.is_complete]
    if not left:
        holds = "holds no run" if out.exists() else "does not exist, so it holds no run"
        raise MeasureError(
            f"{out} {holds} of experiment {run.experiment} that lacks samples; leave out --resume to begin one"
        )
    newest = max(left, key=lambda one: one.run.started)
    for what in ("config", "bed", "options", "points", "repeats", "quick", "seed", "datapath"):
        before, now = getattr(newest.run, what), getattr(run, what)
        if _comparable(before) != _comparable(now):
            raise MeasureError(
                f"{newest.directory} was begun with {_difference(what, before, now)}: use the same again "
                f"({' '.join(newest.run.command)}), or leave out --resume to begin a new run"
            )
    return newest.directory


def _comparable(value: object) -> object:
    if isinstance(value, (tuple, list)):
        return [point_key(cast(Point, point)) for point in value]
    return value


def _difference(what: str, before: object, now: object) -> str:
    """Return a setting of the run and its value now, as text; a config or bed is not shown in full."""
    if what in ("config", "bed"):
        return f"another {what}"
    return f"{_described(what, before)}, now it is {_described(what, now)}"


def _described(what: str, value: object) -> str:
    if what in ("quick", "seed", "repeats", "datapath"):
        return f"{what} {value}"
    if what == "options":
        options = cast("dict[str, Plain]", value)
        return "options " + (", ".join(f"{key} {option}" for key, option in options.items()) or "of none")
    return f"{len(cast('tuple[Point, ...]', value))} points"


@click.command("check")
@click.argument("bed", metavar="BED", type=click.Path(path_type=Path))
@click.option(
    "--for", "experiment", type=click.Choice(EXPERIMENTS), help="Check for one experiment.  [default: for all]"
)
@output_option
@click.pass_context
def check_command(context: click.Context, /, bed: Path, *, experiment: str | None, output: OutputFormat) -> None:
    """Check what the machines of a bed lack, and print the command that fixes it.

    It changes nothing. Exit status is 2 if an experiment would fail. Warnings are about worse figures, and about parts
    that an experiment leaves out.

    \b
    A bed file, with the names of the backends as in the config:
      version: 1
      generator: {host: ssh://root@fips4, interface: ens1f0}
      client:    {host: ssh://root@fips1, interface: ens1f0, address: 10.3.10.42}
      dpu:       {host: ssh://ubuntu@fips5, uplinks: [p0, p1]}
      backends:
        fips2: {host: ssh://root@fips2, interface: ens1f0}
        fips3: {host: ssh://root@fips3, interface: ens1f0}

    `host` is ssh://USER@HOST[:PORT], netns:NAME or lab:NAME. Keys and settings of ssh are those of `ssh HOST`, which
    must not prompt. A user other than root needs sudo without a password. `mac` of the dpu is the destination of
    packets to VIPs without a MAC in the config; the default is the MAC of the first uplink.

    \b
    Examples:
      xenoovs measure check bed.yaml
      xenoovs measure check bed.yaml --for paths
    """
    file = load_bed_file(bed)
    findings = check_bed(file, experiments=EXPERIMENTS if experiment is None else (experiment,))
    is_usable = not any(finding.is_error for finding in findings)
    output.show(
        lambda: {"usable": is_usable, "findings": [asdict(finding) for finding in findings]},
        lambda: _show(findings, machines=len(file.roles)),
    )
    if not is_usable:
        context.exit(EXIT_DIFFERS)


def _show(findings: list[BedFinding], *, machines: int) -> None:
    if not findings:
        echo(f"{counted(machines, 'role')} checked, nothing is missing")
        return
    rows = [
        [finding.role, "error" if finding.is_error else "warning", finding.fix or "-", finding.problem]
        for finding in findings
    ]
    print_table(["ROLE", "KIND", "COMMAND THERE", "PROBLEM"], rows)
