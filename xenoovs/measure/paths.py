"""`xenoovs measure paths`: measures or lists the paths of a DPU, ranks and combines them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import click
import yaml

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Device
from xenoovs.display import decimal, percent, quantity, span
from xenoovs.errors import MeasureError, first_names
from xenoovs.lab.lab import write_whole
from xenoovs.measure.bed_paths import kind_of, path_bench, paths_experiment
from xenoovs.measure.path_figures import (
    MeasuredPaths,
    PairFigures,
    PathFigures,
    lacking_samples,
    measured_file,
    measured_paths,
)
from xenoovs.measure.path_plan import (
    BridgePort,
    Criterion,
    Direction,
    PairVerdict,
    PathKind,
    PathPlan,
    Usage,
    advice,
    load_paths,
    paths_file,
    plan_paths,
)
from xenoovs.measure.run import (
    MeasureSettings,
    measure_options,
    repeats_option,
)
from xenoovs.measure.samples import RecordedRun, read_recorded
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, require_libraries
from xenoovs.switch.host_facts import check_reachable, gather
from xenoovs.terminal.defaults import announce, find_lab
from xenoovs.terminal.options import enum_option
from xenoovs.terminal.output import answer, echo, print_table, print_text
from xenoovs.terminal.reach import endpoint

PATHS_FILE = "paths.yaml"
"""The file of paths in the directory of a run."""

_DIRECTIONS = {"both": (Direction.IN, Direction.OUT), "in": (Direction.IN,)}
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
    """Return the lab that the user named; the lab of the environment counts only without a FILE."""
    if given is None or context.resilient_parsing:
        return given
    lab, origin = find_lab(given)
    announce(f"lab {lab}", origin)
    return lab


@click.command("paths")
@measure_options(choose_lab=_named_lab)
@click.option(
    "--directions",
    type=click.Choice([*_DIRECTIONS]),
    default="both",
    show_default=True,
    help="Measure the paths to the backends, or both directions, which needs tcpreplay on the backends.",
)
@repeats_option("[default: 5, quick: as many as fit, 5 at most]")
@enum_option(
    "--by",
    "criterion",
    default=Criterion.THROUGHPUT,
    help="Rank the paths by what each carries alone, by its latency, or by the CPU that a unit of load costs.",
)
@click.option(
    "--demand", metavar="LOAD", callback=_amount, help="Carry only this load, on the first paths of the ranking."
)
@click.option(
    "--weights",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="JSON",
    help="Write the plan to this file, from which a service takes its weights.",
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

    With --lab or --bed, FILE is the config. A path leads through the bridge to a backend of the service. Rate and round
    trip of each path are measured alone, then the rates of pairs at the same time, in the same and in opposite
    directions: pairs that carry less together share a bottleneck. The figures are written to paths.yaml in the run.

    Otherwise FILE is such a file, measured or written by hand, or a run, and nothing is measured. It has the paths, the
    rate of each alone, and their shared resources. Of all splits with the greatest sum, the result loads the first path
    of the ranking as much as possible, then the second. It is exact, and does not depend on the order in the file.

    A service takes its weights from the file of --weights with `weights: {from: JSON}`. A run with missing samples
    gives no weights: backends without a sample would get no clients.

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
        list_paths(uplinks)
        return
    if uplinks or db:
        raise click.UsageError("--uplink and --db belong to --list.")
    usual = settings if settings.config is not None else _with_usual_lab(settings)
    source: Path | RecordedRun
    if settings.config is None or usual.lab is not None or usual.bed is not None:
        require_libraries("numpy")
        chosen = _DIRECTIONS[directions]
        with usual.open_bed() as bed, path_bench(bed, chosen, seed=usual.seed) as bench:
            source = usual.measure(bed, paths_experiment(bench, chosen, quick=usual.quick, repeats=repeats))
    else:
        source = _read_run(settings.config) if settings.config.is_dir() else settings.config
    if isinstance(source, Path):
        plan, unit, document = _planned(source, criterion, demand)
        if weights is not None:
            write_weights(weights, document)
        answer(lambda: document, lambda: show_plan(plan, unit, weights))
    else:
        _show_run(settings, source, weights, lambda file: _planned(file, criterion, demand))


def _with_usual_lab(settings: MeasureSettings) -> MeasureSettings:
    """Return the settings; without a bed, with the lab of the environment."""
    if settings.lab is not None or settings.bed is not None:
        return settings
    lab, origin = find_lab(None)
    if lab is None:
        raise click.UsageError("Name a bed with --lab or --bed to measure, a FILE of paths to plan, or use --list.")
    announce(f"lab {lab}", origin)
    return replace(settings, lab=lab)


Planned = tuple[PathPlan, str, dict[str, object]]
"""A plan, the unit of its loads, and its document."""


def _planned(file: Path, criterion: Criterion, demand: Fraction | None) -> Planned:
    known, resources, unit = load_paths(file)
    plan = plan_paths(known, resources, criterion=criterion, demand=demand)
    return plan, unit, plan_document(plan, unit)


def _show_run(
    settings: MeasureSettings, recorded: RecordedRun, weights: Path | None, planned: Callable[[Path], Planned]
) -> None:
    """Write the file of paths of a run, and show its figures and its plan."""
    require_libraries("numpy")
    file, lacking = recorded.directory / PATHS_FILE, lacking_samples(recorded)
    again = f"free space there, then `xenoovs measure paths {recorded.directory}`"
    write_file(file, measured_file(recorded), instead=again)
    plan, unit, document = planned(file)
    found, out = measured_paths(recorded), None if lacking else weights
    if out is not None:
        write_weights(out, document)
    measured = {"file": str(file), "pairs": [_pair_document(pair) for pair in found.pairs], "plan": document}

    def show(_recorded: RecordedRun) -> None:
        _show_measured(found)
        _say_few_repeats(found)
        echo()
        show_plan(plan, unit, out, has_weights=not lacking)
        if lacking:
            print_text(f"no weights: {lacking}; --resume measures them", fg="yellow")
        echo()
        echo(f"paths in {file}")

    settings.show(recorded, show, paths=measured)
    if lacking and weights is not None:
        raise MeasureError(
            f"{weights} is not written: in {recorded.directory} {lacking}; the command that measured it goes on with "
            "--resume"
        )


def _read_run(directory: Path) -> RecordedRun:
    """Return a run of this experiment. Raises MeasureError, FileUnusable."""
    recorded = read_recorded(directory)
    if recorded.run.experiment != "paths":
        raise MeasureError(f"{directory} is a run of experiment {recorded.run.experiment}: name one of `measure paths`")
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


_DIGITS = 6


def write_weights(out: Path, document: Mapping[str, object]) -> None:
    """Write a plan as JSON, from which a service takes its weights. Raises MeasureError."""
    write_file(out, json.dumps(document, indent=2) + "\n", instead="name another file with --weights")


def write_file(out: Path, text: str, *, instead: str) -> None:
    """Write a file atomically.

    Raises MeasureError with `instead`: what to do if it cannot be written.
    """
    try:
        write_whole(out, text)
    except OSError as error:
        raise MeasureError(f"{out} cannot be written: {error.strerror}; {instead}") from None


def show_plan(plan: PathPlan, unit: str, weights_file: Path | None, *, has_weights: bool = True) -> None:
    """Print ranking, split, limits and, unless samples are missing, weights."""
    total = plan.split.total
    ranking = zip(plan.split.paths, plan.alone, plan.steps, plan.split.loads, strict=True)
    rows = [
        [
            str(position),
            path.name,
            short(alone),
            short(path.latency_us),
            short(path.cpu),
            short(step.total),
            short(load),
            percent(load / total if total else None),
        ]
        for position, (path, alone, step, load) in enumerate(ranking, start=1)
    ]
    headers = ["RANK", "PATH", "ALONE", "LATENCY US", "CPU", "SUM SO FAR", "LOAD", "SHARE"]
    print_table(headers, rows, right=(0, 2, 3, 4, 5, 6, 7), spare=(4, 3))
    echo()
    _show_limits(plan.split.usages)
    echo()
    more = f", {percent(plan.gain)} more than the best path alone" if plan.gain > 0 else ""
    echo(f"{short(total)} {unit} in all{more}")
    if plan.demand is not None and total < plan.demand:
        print_text(f"the demand of {short(plan.demand)} {unit} is more than these paths carry", fg="yellow")
    bottlenecks = [usage.name for usage in plan.split.bottlenecks]
    echo(f"limited by {', '.join(bottlenecks)}" if bottlenecks else "no path or resource limits this load")
    for sentence in advice(plan):
        print_text(sentence, fg="yellow")
    if has_weights:
        echo("weights: " + ", ".join(f"{name} {weight}" for name, weight in plan.weights().items()))
    if weights_file is not None:
        echo(f"written to {weights_file}; in a service: weights: {{from: {weights_file}}}")


def _show_limits(usages: tuple[Usage, ...]) -> None:
    rows = []
    for usage in usages:
        share = percent(usage.used / usage.capacity) if usage.capacity else "-"
        rows.append([usage.name, short(usage.capacity), short(usage.used), short(usage.headroom), share])
    print_table(["LIMIT", "CAPACITY", "USED", "HEADROOM", ""], rows, right=(1, 2, 3, 4))


def short(value: Fraction | None) -> str:
    """Return a number for display: exact if that is short, otherwise rounded."""
    if value is None:
        return "-"
    exact = decimal(value)
    return exact if len(exact) <= _DIGITS + 1 and "/" not in exact else f"{float(value):.{_DIGITS}g}"


def plan_document(plan: PathPlan, unit: str) -> dict[str, object]:
    """Return the plan for `-o json` and for the file of weights. Amounts are text, so that they are exact."""
    return {
        "version": 1,
        "by": plan.criterion.value,
        "unit": unit,
        "demand": None if plan.demand is None else str(plan.demand),
        "total": str(plan.split.total),
        "gain": float(plan.gain),
        "paths": [
            {"name": path.name, "alone": str(alone), "sum": str(step.total), "load": str(load)}
            for path, alone, step, load in zip(plan.split.paths, plan.alone, plan.steps, plan.split.loads, strict=True)
        ],
        "limits": [
            {
                "name": usage.name,
                "capacity": str(usage.capacity),
                "used": str(usage.used),
                "headroom": str(usage.headroom),
                "bottleneck": usage.price > 0,
            }
            for usage in plan.split.usages
        ],
        "advice": list(advice(plan)),
        "weights": plan.weights(),
    }


def list_paths(uplinks: Collection[str]) -> None:
    """Print a file with the paths of a host. Raises MeasureError, SwitchError."""
    text = "\n".join(paths_file(_bridges(uplinks)))
    # Keys without a value, for the user to fill in, are `null`.
    answer(lambda: yaml.safe_load(text), lambda: echo(text))


def _bridges(uplinks: Collection[str]) -> list[list[BridgePort]]:
    place = endpoint()
    check_reachable(place)
    facts = gather(place)
    if isinstance(facts.database, Unknown):
        raise MeasureError(f"the ports of the bridges cannot be listed: {facts.database.reason}")
    if isinstance(facts.devices, Unknown):
        raise MeasureError(f"the ports of the bridges cannot be listed: {facts.devices.reason}")
    # The port with the bridge's name leads to this host.
    names = [[port.name for port in bridge.ports if port.name != bridge.name] for bridge in facts.database.bridges]
    every = [name for ports in names for name in ports]
    if unknown := sorted(set(uplinks) - set(every)):
        raise MeasureError(f"no bridge has a port {unknown[0]}; there are {first_names(every)}")
    devices = facts.devices
    bridges = [[_bridge_port(devices[name], uplinks) for name in ports if name in devices] for ports in names]
    if not any(port.kind is PathKind.WIRE for ports in bridges for port in ports):
        raise MeasureError(f"no port of a bridge is an uplink of a NIC; name one with --uplink: {first_names(every)}")
    return bridges


def _bridge_port(device: Device, uplinks: Collection[str]) -> BridgePort:
    """Return the kind of path behind a port: software if no eSwitch has the port."""
    if device.is_uplink or device.name in uplinks:
        return BridgePort(device.name, PathKind.WIRE, is_offloadable=device.is_uplink)
    kind = kind_of(device)
    return BridgePort(device.name, kind or PathKind.SOFTWARE, is_offloadable=kind is not None)
