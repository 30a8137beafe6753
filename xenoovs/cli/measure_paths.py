"""`xenoovs measure paths`: rank the paths of a DPU, combine them until it is saturated, write the split as weights."""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import click

from xenoovs.cli.options import OutputFormat, connect, output_option
from xenoovs.cli.output import echo, print_table, print_text
from xenoovs.datapath.host import Device, Unknown
from xenoovs.display import decimal, percent
from xenoovs.errors import MeasureError, first_names
from xenoovs.measure.paths_file import load_paths
from xenoovs.paths.enumerate import BridgePort, paths_file
from xenoovs.paths.plan import Criterion, PathKind, PathPlan, Usage, advice, plan_paths
from xenoovs.switch.host_facts import check_reachable, gather

_DIGITS = 6


def _amount(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Fraction | None:
    if given is None:
        return None
    try:
        number = Decimal(given)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 < number <= 10**9 or number.adjusted() < -9:
        raise click.BadParameter(f"{given!r} is not a load: write a number above 0, such as 12.5.")
    return Fraction(number)


@click.command("paths")
@click.argument("paths", metavar="[PATHS]", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--list",
    "is_listing",
    is_flag=True,
    help="Print a file with the paths through the bridges of this host, to fill in.",
)
@click.option(
    "--uplink",
    "uplinks",
    multiple=True,
    metavar="PORT",
    help="With --list: a port to the wire that is not an uplink of a NIC, as in a lab.",
)
@click.option(
    "--db", metavar="TARGET", help="With --list: database of the Open vSwitch to use. Default: that of the tools."
)
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
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the plan as JSON there."
)
@output_option
def paths_command(
    paths: Path | None,
    *,
    is_listing: bool,
    uplinks: tuple[str, ...],
    db: str | None,
    criterion: Criterion,
    demand: Fraction | None,
    out: Path | None,
    output: OutputFormat,
) -> None:
    """Rank the paths of a DPU in the file PATHS and combine them in turn until the DPU is saturated.

    PATHS names the paths, what each carries alone, and the resources that they share, such as NIC cores or a PCIe
    switch. Of all splits with the greatest sum, the result loads the first path of the ranking as much as possible,
    then the second, and so on. It is exact, whatever the order in the file.

    A service takes its weights from the file of --out with `weights: {from: FILE}`.

    \b
    Example:
      xenoovs measure paths --list > dpu.yaml
      xenoovs measure paths dpu.yaml --by latency --out paths.json
    """
    if is_listing == (paths is not None):
        raise click.UsageError("Name the file PATHS, or print one with --list.")
    if paths is None:
        _list(db, uplinks)
        return
    known, resources, unit = load_paths(paths)
    plan = plan_paths(known, resources, criterion=criterion, demand=demand)
    document = _document(plan, unit)
    if out is not None:
        _write(out, document)
    output.show(lambda: document, lambda: _show(plan, unit, out))


def _list(db: str | None, uplinks: Collection[str]) -> None:
    """Print the file of the paths of this host."""
    endpoint = connect(db, None).endpoint
    check_reachable(endpoint)
    facts = gather(endpoint)
    for fact in (facts.database, facts.devices):
        if isinstance(fact, Unknown):
            raise MeasureError(f"the ports of the bridges cannot be listed: {fact.reason}")
    devices = {} if isinstance(facts.devices, Unknown) else facts.devices
    bridges = {} if isinstance(facts.database, Unknown) else facts.database.bridges
    names = [port.name for bridge in bridges for port in bridge.ports if port.name != bridge.name]
    if unknown := sorted(set(uplinks) - set(names)):
        raise MeasureError(f"no bridge has a port {unknown[0]}; there are {first_names(names)}")
    ports = [_bridge_port(devices[name], uplinks) for name in names if name in devices]
    if not any(port.kind is PathKind.WIRE for port in ports):
        raise MeasureError(f"no port of a bridge is an uplink of a NIC; name one with --uplink: {first_names(names)}")
    echo("\n".join(paths_file(ports)))


def _bridge_port(device: Device, uplinks: Collection[str]) -> BridgePort:
    """Return what is behind a port; without an eSwitch only software serves it."""
    if device.is_uplink or device.name in uplinks:
        return BridgePort(device.name, PathKind.WIRE, is_offloadable=device.is_uplink)
    if not device.is_representor:
        return BridgePort(device.name, PathKind.SOFTWARE, is_offloadable=False)
    return BridgePort(device.name, PathKind.SOC if "sf" in str(device.port_name) else PathKind.HOST)


def _write(out: Path, document: dict[str, object]) -> None:
    draft = out.with_name(f".{out.name}.new")
    try:
        try:
            draft.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise MeasureError(f"{out} cannot be written: {error.strerror}; name another file with --out") from None


def _show(plan: PathPlan, unit: str, out: Path | None) -> None:
    loads = dict(zip((path.name for path in plan.split.paths), plan.split.loads, strict=True))
    weights, total = plan.weights(), plan.split.total
    rows = [
        [
            str(number),
            ranked.path.name,
            _short(ranked.alone),
            _short(ranked.path.latency_us),
            _short(ranked.path.cpu),
            _short(step.total),
            _short(loads[ranked.path.name]),
            percent(loads[ranked.path.name] / total if total else None),
        ]
        for number, (ranked, step) in enumerate(zip(plan.ranking, plan.steps, strict=True), start=1)
    ]
    headers = ["RANK", "PATH", "ALONE", "LATENCY US", "CPU", "SUM SO FAR", "LOAD", "SHARE"]
    print_table(headers, rows, right=(0, 2, 3, 4, 5, 6, 7), spare=(4, 3))
    echo()
    _show_limits(plan.split.usages)
    echo()
    more = f", {percent(plan.gain)} more than the best path alone" if plan.gain > 0 else ""
    echo(f"{_short(total)} {unit} in all{more}")
    if plan.demand is not None and total < plan.demand:
        print_text(f"the demand of {_short(plan.demand)} {unit} is more than these paths carry", fg="yellow")
    bottlenecks = [usage.name for usage in plan.split.bottlenecks]
    echo(f"limited by {', '.join(bottlenecks)}" if bottlenecks else "no path or resource limits this load")
    for sentence in advice(plan):
        print_text(sentence, fg="yellow")
    echo("weights: " + ", ".join(f"{name} {weight}" for name, weight in weights.items()))
    if out is not None:
        echo(f"written to {out}; in a service: weights: {{from: {out}}}")


def _show_limits(usages: tuple[Usage, ...]) -> None:
    rows = [
        [usage.name, _short(usage.capacity), _short(usage.used), _short(usage.headroom), _used_share(usage)]
        for usage in usages
    ]
    print_table(["LIMIT", "CAPACITY", "USED", "HEADROOM", ""], rows, right=(1, 2, 3, 4))


def _used_share(usage: Usage) -> str:
    return percent(usage.used / usage.capacity) if usage.capacity else "-"


def _short(value: Fraction | None) -> str:
    """Return a number for people: exact where that is short, else in some digits."""
    if value is None:
        return "-"
    exact = decimal(value)
    return exact if len(exact) <= _DIGITS + 1 and "/" not in exact else f"{float(value):.{_DIGITS}g}"


def _document(plan: PathPlan, unit: str) -> dict[str, object]:
    loads = dict(zip((path.name for path in plan.split.paths), plan.split.loads, strict=True))
    return {
        "version": 1,
        "by": plan.criterion.value,
        "unit": unit,
        "demand": None if plan.demand is None else str(plan.demand),
        "total": str(plan.split.total),
        "gain": float(plan.gain),
        "paths": [
            {
                "name": ranked.path.name,
                "alone": str(ranked.alone),
                "sum": str(step.total),
                "load": str(loads[ranked.path.name]),
            }
            for ranked, step in zip(plan.ranking, plan.steps, strict=True)
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
