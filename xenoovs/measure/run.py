"""A run of an experiment: the options of its command, the bed, the order of the measurements, and its table."""

from __future__ import annotations

import functools
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from xenoovs import __version__
from xenoovs.dataclass import dataclass, field
from xenoovs.display import duration, percent, quantity, span
from xenoovs.errors import MeasureError, counted, worded
from xenoovs.measure.bed import Bed
from xenoovs.measure.machines_bed import open_lab_bed, open_machines_bed
from xenoovs.measure.samples import (
    Measurement,
    Plain,
    Point,
    RecordedRun,
    Run,
    RunWriter,
    Sample,
    Value,
    find_runs,
    new_run,
    point_key,
    read_recorded,
    resumed_run,
    utc_text,
)
from xenoovs.measure.verdict import mean_value, measured_points, offloaded_share
from xenoovs.model.balancer import Balancer
from xenoovs.model.include import MAX_SIZE_BYTES
from xenoovs.model.load import load_config, parse_config
from xenoovs.terminal.completion import complete_service
from xenoovs.terminal.defaults import announce, environment_config, find_lab, usual_config
from xenoovs.terminal.options import FILE, lab_option, output_option
from xenoovs.terminal.output import answer, echo, echo_over, print_table

Basis = Mapping[str, Value]
"""Values that an experiment measures once before its points, which are based on them."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment on a bed: its points, and how it measures one of them.

    Attributes:
        point_s: About how long one sample takes, for the first estimate of the time left.
        measure: Measures a point once. It restores the bed even after an exception such as KeyboardInterrupt. Raises
            MeasureError if the run cannot go on.
        options: Other settings that change the figures, by name; a run with different ones cannot be resumed.
        prepare: Measures the basis, which a resumed run reads from `run.json`.
        warm_up: Runs the load briefly before the first point of a session, so that caches are warm; None to measure
            the first point instead.
    """

    name: str
    points: Sequence[Point]
    repeats: int
    point_s: float
    measure: Callable[[Point, Basis], Measurement]
    options: Mapping[str, Plain] = field(default_factory=dict)
    prepare: Callable[[], Basis] = dict
    warm_up: Callable[[], object] | None = None


def order_of(run: Run) -> tuple[tuple[Point, int], ...]:
    """Return every point with every repeat: all points once in random order, then all of them again.

    So a drift of the machine affects all points alike, and an interrupted run has about as many samples of each point.
    Points with the same `offload` follow each other, as each change of it restarts Open vSwitch. Their order is the
    same for each `offload`, so that a run that ends early has the same points for all of them.
    """
    chance = random.Random(run.seed)  # noqa: S311 - a repeatable order, no secret
    order: list[tuple[Point, int]] = []
    for repeat in range(run.repeats):
        points = list(run.points)
        chance.shuffle(points)
        offloads = dict.fromkeys(point.get("offload") for point in ([order[-1][0]] if order else []) + points)
        others = [*dict.fromkeys(map(_without_offload, points))]
        points.sort(key=lambda point: ([*offloads].index(point.get("offload")), others.index(_without_offload(point))))
        order += ((point, repeat) for point in points)
    return tuple(order)


def _without_offload(point: Point) -> str:
    return point_key({key: value for key, value in point.items() if key != "offload"})


def carry_out(
    experiment: Experiment,
    writer: RunWriter,
    *,
    progress: Callable[[Point, int, int, float], object],
    within_s: float | None = None,
) -> None:
    """Measure the missing samples of a run, and store each at once. Stored samples remain after any error.

    `progress`: Is called with the point that is measured next, the samples so far, those in all, and the time left.
    `within_s`: Time limit, divided between the settings of `offload`. After the first point of each setting, no
    measurement begins that would exceed it; the run then lacks samples.

    Raises MeasureError if the experiment cannot go on, or a sample cannot be stored.
    """
    missing = writer.run.missing(writer.samples)
    left = [(point, repeat) for point, repeat in order_of(writer.run) if (point_key(point), repeat) in missing]
    if not left:
        return
    begun_s, begun = time.monotonic(), time.time()
    total = len(writer.run.points) * writer.run.repeats
    done = total - len(left)

    def left_s(samples_s: float) -> float:
        """Return the time left, at most the rest of the time limit."""
        return samples_s if within_s is None else max(0.0, min(samples_s, begun_s + within_s - time.monotonic()))

    progress(left[0][0], done, total, left_s(experiment.point_s * len(left)))
    if not writer.run.basis and (basis := experiment.prepare()):
        writer.set_basis(basis)
    if experiment.warm_up is not None:
        experiment.warm_up()
    else:
        experiment.measure(experiment.points[0], writer.run.basis)
    measured, measured_s = 0, 0.0
    rounds = [list(each) for _, each in groupby(left, key=lambda each: each[0].get("offload"))]
    for number, one_round in enumerate(rounds, start=1):
        end_s = None if within_s is None else begun_s + within_s * number / len(rounds)
        for index, (point, repeat) in enumerate(one_round):
            each_s = measured_s / measured if measured else experiment.point_s
            start_s = time.monotonic()
            if index and end_s is not None and start_s + each_s > end_s:
                break
            progress(point, done + measured, total, left_s(each_s * (len(left) - measured)))
            measurement = experiment.measure(point, writer.run.basis)
            at = utc_text(begun + start_s - begun_s)
            writer.append(Sample(experiment.name, point, repeat, at, measurement.values, measurement.suspect))
            measured_s += time.monotonic() - start_s
            measured += 1


if TYPE_CHECKING:
    from xenoovs.measure.fabric_bed import FabricBed

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

    def open_bed(self) -> AbstractContextManager[Bed]:
        """Open the bed that the options name. Raises click.UsageError, ConfigError, LabError, MeasureError."""
        if (self.lab is None) == (self.bed is None):
            raise click.UsageError("Name one bed: a lab with --lab, or a file with --bed.")
        config = self.config or environment_config() or usual_config(self.lab)
        balancer = _load(config, for_lab=self.lab is not None)
        if self.bed is not None:
            return open_machines_bed(self.bed, balancer, self.service)
        return open_lab_bed(str(self.lab), balancer, self.service)

    def measure(self, bed: Bed | FabricBed, experiment: Experiment) -> RecordedRun:
        """Measure the missing samples on an open bed."""
        run = Run(
            experiment=experiment.name,
            config=bed.config,
            bed=bed.document,
            kind=bed.kind,
            datapath=bed.datapath,
            versions={"xenoovs": __version__, **bed.versions},
            command=("xenoovs", *click.get_current_context().find_root().obj),
            seed=self.seed,
            quick=self.quick,
            repeats=experiment.repeats,
            points=tuple(experiment.points),
            started=utc_text(time.time()),
            options=experiment.options,
        )
        with resumed_run(_unfinished(self.out, run)) if self.resume else new_run(self.out, run) as writer:
            try:
                within_s = _QUICK_S if self.quick else None
                carry_out(experiment, writer, progress=_show_progress, within_s=within_s)
            except BaseException:
                echo_over("")
                _say_what_is_stored(writer)
                raise
            finally:
                if not writer.samples and not self.resume:
                    shutil.rmtree(writer.directory, ignore_errors=True)
            echo_over("")
            return RecordedRun(writer.directory, writer.run, tuple(writer.samples))

    def show(self, recorded: RecordedRun, show: Callable[[RecordedRun], None], **more: object) -> None:
        """Print a run. `show`: Prints its table. `more`: Further keys of the document of `-o json`."""
        answer(lambda: {**_document_of(recorded), **more}, lambda: _show_run(recorded, show))


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


def measure_options(*, choose_lab: LabCallback = _chosen_lab, has_config: bool = True) -> Callable[[Command], Command]:
    """Return the decorator with the options of every experiment; the command gets a MeasureSettings as `settings`.

    `choose_lab`: The callback of `--lab`. `has_config`: False for an experiment that needs a special lab, without a
    config and a bed file.
    """
    options = {
        "config": click.argument("config", metavar="[FILE]", required=False, type=FILE),
        "lab": lab_option(
            help="Measure in this lab (see `xenoovs lab`); without NAME, in the only one.  [env var: XENOOVS_LAB]",
            is_eager=True,
            callback=choose_lab,
        ),
        "bed": click.option(
            "--bed",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="BED",
            help="Measure on the machines of this file; see `xenoovs measure check --help`.",
        ),
        "service": click.option(
            "--service",
            metavar="NAME",
            shell_complete=complete_service,
            help="Service of the config to send to.  [default: the first that serves UDP]",
        ),
        "out": click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            default="results",
            show_default=True,
            help="Directory for the run, which becomes a directory in it.",
        ),
        "quick": click.option(
            "--quick",
            is_flag=True,
            help="Measure fewer repeats, for shorter times; --resume adds what does not fit into a minute.",
        ),
        "resume": click.option("--resume", is_flag=True, help="Continue the newest incomplete run in --out."),
        "seed": click.option(
            "--seed",
            type=int,
            default=0,
            show_default=True,
            help="Seed of the order of the points and of the clients' addresses.",
        ),
    }

    def decorate(command: Command) -> Command:
        @output_option
        @functools.wraps(command)
        def run(**given: Any) -> object:
            settings = MeasureSettings(**{name: given.pop(name, None) for name in options})
            return command(settings=settings, **given)

        for name, option in reversed(options.items()):
            if has_config or name not in ("config", "bed", "service"):
                run = option(run)
        return cast(Command, run)

    return decorate


def _load(config: Path, *, for_lab: bool) -> Balancer:
    if str(config) == "-":
        data = sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
        return parse_config(data, file="<stdin>", for_lab=for_lab)
    return load_config(config, for_lab=for_lab)


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


def _document_of(recorded: RecordedRun) -> dict[str, object]:
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


def _show_progress(point: Point, done: int, total: int, left_s: float) -> None:
    filled = _BAR_COLUMNS * done // max(1, total)
    bar = "#" * filled + "-" * (_BAR_COLUMNS - filled)
    echo_over(f"[{bar}] {done}/{total}  {' '.join(map(str, point.values()))}  {duration(left_s)} left")


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
            # A config or bed is not shown in full.
            is_long = what in ("config", "bed")
            difference = f"another {what}" if is_long else f"{_said(what, before)}, now it is {_said(what, now)}"
            raise MeasureError(
                f"{newest.directory} was begun with {difference}: use the same again "
                f"({' '.join(newest.run.command)}), or leave out --resume to begin a new run"
            )
    return newest.directory


def _comparable(value: object) -> object:
    if isinstance(value, (tuple, list)):
        return [point_key(cast(Point, point)) for point in value]
    return value


def _said(what: str, value: object) -> str:
    if what in ("quick", "seed", "repeats", "datapath"):
        return f"{what} {value}"
    if what == "options":
        options = cast("dict[str, Plain]", value)
        return "options " + (", ".join(f"{key} {option}" for key, option in options.items()) or "of none")
    return f"{len(cast('tuple[Point, ...]', value))} points"
