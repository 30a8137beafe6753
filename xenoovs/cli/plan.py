"""`xenoovs plan`: what would change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import ceil
from pathlib import Path

import click

from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
from xenoovs.cli.options import (
    OutputFormat,
    bridge_command,
    hinting_partial,
    load_resolved,
    partial_option,
    reach,
    rebalance_option,
)
from xenoovs.cli.output import echo, print_json, print_table
from xenoovs.compile.drains import Draining
from xenoovs.compile.plan import ChangeKind, Plan, ServiceChange
from xenoovs.display import duration, percent
from xenoovs.engine.change import Change, PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import counted, worded
from xenoovs.model.next_hop import mac_and_port
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_actions, render_flow

_COLOURS = {"+": "green", "~": "yellow", "-": "red"}
_FLOWS_SHOWN = 20
_SERVICES_SHOWN = 20

all_flows_option = click.option("--all-flows", is_flag=True, help=f"Show all flows, not {_FLOWS_SHOWN} of each kind.")


@bridge_command("plan")
@rebalance_option
@partial_option
@all_flows_option
@click.pass_context
def plan_command(
    context: click.Context,
    /,
    config: Path,
    *,
    db: str | None,
    lab: str | None,
    rebalance: bool,
    partial: bool,
    all_flows: bool,
    output: OutputFormat,
) -> None:
    """Show what `apply` would change on the bridge of the config FILE; change nothing.

    Shows the flows that would be added (+), changed (~) and removed (-). For each service: the backends' shares of the
    clients before and after, the share of clients that would get another backend, and the entries that the NIC will
    hold. With `drain: {mode: pin}`: which open connections stay with their backend, and for how long.

    Exit status 0: nothing to do, 2: something differs.
    """
    balancer, switch = load_resolved(config), reach(db, lab)
    with hinting_partial():
        change = Engine(switch).plan(balancer, PlanOptions(rebalance=rebalance, partial=partial))
    if output is OutputFormat.JSON:
        print_json(plan_document(change))
    else:
        show_plan(change, all_flows=all_flows)
    context.exit(EXIT_OK if change.difference.is_empty else EXIT_DIFFERS)


def show_plan(change: Change, *, all_flows: bool) -> None:
    """Print the flows to add (+), change (~) and remove (-), and what the change means for each service."""
    difference = change.difference
    if difference.is_empty:
        flows = counted(difference.unchanged, "flow")
        echo(f"{change.bridge}: nothing to do, {flows} as {worded(difference.unchanged, 'it', 'they')} should be")
        _show_problems_and_drains(change)
        return
    for sign, count, lines in _flow_lines(difference):
        for line in islice(lines, None if all_flows else _FLOWS_SHOWN):
            echo(click.style(f"{sign} {line}", fg=_COLOURS[sign]))
        if not all_flows and count > _FLOWS_SHOWN:
            more = f"{sign} ... and {count - _FLOWS_SHOWN} more (--all-flows shows them)"
            echo(click.style(more, fg=_COLOURS[sign]))
    services = (service for service in change.services() if service.kind is not ChangeKind.SAME)
    flow_mods = difference.flow_mods_by_service()
    for service in islice(services, _SERVICES_SHOWN):
        _show_service(service, flow_mods[service.service_id])
    if next(services, None) is not None:
        echo("\n... and more services; -o json has them all")
    _show_problems_and_drains(change)
    echo(
        f"\n{change.bridge}: {len(difference.added)} to add, {len(difference.changed)} to change, "
        f"{len(difference.removed)} to remove, {difference.unchanged} unchanged"
    )


def _flow_lines(difference: Plan) -> Iterator[tuple[str, int, Iterator[str]]]:
    """Yield sign, number, and lazily the lines of each kind of change: of a large plan few are shown."""
    changed = (f"{_line(c.after)}  (was: {render_actions(c.before.actions)})" for c in difference.changed)
    yield "+", len(difference.added), map(_line, difference.added)
    yield "~", len(difference.changed), changed
    yield "-", len(difference.removed), map(_line, difference.removed)


def _line(flow: Flow) -> str:
    """Return a flow without its cookie, which would make the line wrap."""
    return render_flow(replace(flow, cookie=0))


def _show_service(service: ServiceChange, flow_mods: int) -> None:
    blocks = f"{service.blocks_before} -> {counted(service.blocks_after, 'block')}"
    after = counted(service.hardware_entries, "hardware entry", "hardware entries")
    entries = f"{service.hardware_entries_before} -> {after} predicted"
    mods = counted(flow_mods, "flow-mod")
    least = f" (least possible: {percent(service.least_moved)})" if service.moved else ""
    echo(
        f"\nservice {click.style(service.name, bold=True)} ({service.kind.value}): "
        f"{percent(service.moved)} of its clients move{least}, {mods}, {blocks}, {entries}"
    )
    if service.ejected:
        echo(f"  ejected, others serve their clients: {', '.join(service.ejected)}")
    rows = [
        [
            f"  {backend.name}",
            *mac_and_port(backend.hop),
            *map(percent, (backend.target, backend.before, backend.after)),
        ]
        for backend in service.backends
    ]
    print_table(["  BACKEND", "MAC", "PORT", "TARGET", "BEFORE", "AFTER"], rows, right=(3, 4, 5))


def _show_problems_and_drains(change: Change) -> None:
    for problem in change.problems:
        echo(click.style(f"\nleft out: {problem.text}", fg="red"))
    for drain in change.drains:
        echo(f"\n{drain_line(drain)}")
        if drain.entries:
            entries = counted(drain.entries, "more hardware entry", "more hardware entries")
            echo(f"  up to {entries} meanwhile, one per connection (estimated from counters)")


def drain_line(drain: Draining) -> str:
    """Return a drain as one line of text."""
    blocks = counted(drain.blocks, "block")
    ways = [(old, new) for old, new in drain.ways if old != new]
    if not ways:
        return (
            f"service {drain.service}: {blocks} back with {', '.join(drain.new)}; connections opened elsewhere "
            f"meanwhile stay there for at most {duration(drain.left_s)}"
        )
    later = ""
    if drain.is_settling:
        at = f" in {duration(ceil(drain.settles_s))}"
        later = at if drain.settles_s else " when `xenoovs apply` or an agent goes on"
    old, new = (", ".join(sorted(set(names))) for names in zip(*ways, strict=True))
    if {name for name, _ in ways} & {name for _, name in ways}:
        # Some lose clients and get others, so that lists of names would not say which.
        old, new = "their backends", f"others{later} ({', '.join(f'{one} -> {other}' for one, other in ways)})"
        later = ""
    return (
        f"service {drain.service}: open connections of {blocks} stay with {old} for at most {duration(drain.left_s)}; "
        f"new ones go to {new}{later}"
    )


def drain_document(drain: Draining) -> dict[str, object]:
    """Return a drain for JSON."""
    return {
        "service": drain.service,
        "ways": [list(way) for way in drain.ways],
        "old": list(drain.old),
        "new": list(drain.new),
        "blocks": drain.blocks,
        "left_s": round(drain.left_s, 3),
        "is_settling": drain.is_settling,
        "settles_s": round(drain.settles_s, 3),
        "new_connections": drain.connections,
        "extra_hardware_entries_estimate": drain.entries,
    }


def plan_document(change: Change) -> dict[str, object]:
    """Return the plan for JSON."""
    difference = change.difference
    flow_mods = difference.flow_mods_by_service()
    return {
        "bridge": change.bridge,
        "empty": difference.is_empty,
        "added": [render_flow(flow) for flow in difference.added],
        "changed": [{"before": render_flow(c.before), "after": render_flow(c.after)} for c in difference.changed],
        "removed": [render_flow(flow) for flow in difference.removed],
        "unchanged": difference.unchanged,
        "services": [_service_document(service, flow_mods[service.service_id]) for service in change.services()],
        "problems": [problem.text for problem in change.problems],
        "drains": [drain_document(drain) for drain in change.drains],
    }


def _service_document(service: ServiceChange, flow_mods: int) -> dict[str, object]:
    return {
        "name": service.name,
        "id": service.service_id,
        "change": service.kind.value,
        "clients_moved": float(service.moved),
        "clients_moved_least": float(service.least_moved),
        "ejected": list(service.ejected),
        "flow_mods": flow_mods,
        "blocks_before": service.blocks_before,
        "blocks_after": service.blocks_after,
        "hardware_entries_before": service.hardware_entries_before,
        "hardware_entries": service.hardware_entries,
        "backends": [
            {
                "name": backend.name,
                **dict(zip(("mac", "port"), mac_and_port(backend.hop), strict=True)),
                "target_share": None if backend.target is None else float(backend.target),
                "before": float(backend.before),
                "after": float(backend.after),
            }
            for backend in service.backends
        ],
    }
