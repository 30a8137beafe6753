"""A plan for people: flows to add (+), change (~) and remove (-), and what it means for each service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import click

from xenoovs.cli.output import percent, print_table
from xenoovs.cli.show_drains import drain_document, drain_line, entries_line
from xenoovs.compile.plan import Plan
from xenoovs.compile.summary import BackendShare, Fate, ServiceChange
from xenoovs.engine.change import Change
from xenoovs.errors.words import counted, worded
from xenoovs.model.next_hop import mac_and_port
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_actions, render_flow

_COLOUR = {"+": "green", "~": "yellow", "-": "red"}
_SERVICES_SHOWN = 20


def show_plan(change: Change, *, flows_shown: int | None) -> None:
    """Print the plan; at most `flows_shown` flows of each kind, None: all."""
    difference = change.difference
    if difference.is_empty:
        flows = counted(difference.unchanged, "flow")
        click.echo(f"{change.bridge}: nothing to do, {flows} as {worded(difference.unchanged, 'it', 'they')} should be")
        _show_problems(change)
        _show_drains(change)
        return
    for sign, count, lines in _flow_lines(difference):
        _print_some(sign, count, lines, flows_shown)
    services = (service for service in change.services() if service.fate is not Fate.SAME)
    flow_mods = difference.flow_mods_by_service()
    for service in islice(services, _SERVICES_SHOWN):
        _show_service(service, flow_mods[service.service_id])
    if next(services, None) is not None:
        click.echo("\n... and more services; -o json has them all")
    _show_problems(change)
    _show_drains(change)
    click.echo(f"\n{headline(change)}")


def _show_problems(change: Change) -> None:
    for problem in change.problems:
        click.echo(click.style(f"\nleft out: {problem.text}", fg="red"))


def _show_drains(change: Change) -> None:
    for drain in change.drains:
        click.echo(f"\n{drain_line(drain)}")
        if drain.entries:
            click.echo(entries_line(drain))


def headline(change: Change) -> str:
    """The plan in one line."""
    difference = change.difference
    return (
        f"{change.bridge}: {len(difference.added)} to add, {len(difference.changed)} to change, "
        f"{len(difference.removed)} to remove, {difference.unchanged} unchanged"
    )


def plan_document(change: Change) -> dict[str, object]:
    """The plan for programs. Shares are fractions of 1."""
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


def _flow_lines(difference: Plan) -> Iterator[tuple[str, int, Iterator[str]]]:
    """Sign, number, and lazily the lines: of a large plan few are shown."""
    changed = (f"{_line(c.after)}  (was: {render_actions(c.before.actions)})" for c in difference.changed)
    yield "+", len(difference.added), map(_line, difference.added)
    yield "~", len(difference.changed), changed
    yield "-", len(difference.removed), map(_line, difference.removed)


def _line(flow: Flow) -> str:
    """Without the cookie, which tells a reader nothing and makes the line wrap."""
    return render_flow(replace(flow, cookie=0))


def _print_some(sign: str, count: int, lines: Iterator[str], most: int | None) -> None:
    for line in islice(lines, most):
        click.echo(click.style(f"{sign} {line}", fg=_COLOUR[sign]))
    if most is not None and count > most:
        rest = f"{sign} ... and {count - most} more (--all-flows shows them)"
        click.echo(click.style(rest, fg=_COLOUR[sign]))


def _show_service(service: ServiceChange, flow_mods: int) -> None:
    blocks = f"{service.blocks_before} -> {counted(service.blocks_after, 'block')}"
    after = counted(service.hardware_entries, "hardware entry", "hardware entries")
    entries = f"{service.hardware_entries_before} -> {after} predicted"
    mods = counted(flow_mods, "flow-mod")
    least = f" (least possible: {percent(service.least_moved)})" if service.moved else ""
    click.echo(
        f"\nservice {click.style(service.name, bold=True)} ({service.fate.value}): "
        f"{percent(service.moved)} of its clients move{least}, {mods}, {blocks}, {entries}"
    )
    if service.out:
        click.echo(f"  out, so that others have their clients: {', '.join(service.out)}")
    print_table(["  BACKEND", "MAC", "PORT", "WANTED", "BEFORE", "AFTER"], map(_row, service.backends), right=(3, 4, 5))


def _row(backend: BackendShare) -> list[str]:
    wanted = "-" if backend.wanted is None else percent(backend.wanted)
    return [
        f"  {backend.name}",
        *mac_and_port(backend.hop),
        wanted,
        percent(backend.before),
        percent(backend.after),
    ]


def _service_document(service: ServiceChange, flow_mods: int) -> dict[str, object]:
    return {
        "name": service.name,
        "id": service.service_id,
        "fate": service.fate.value,
        "clients_moved": float(service.moved),
        "clients_moved_least": float(service.least_moved),
        "out": list(service.out),
        "flow_mods": flow_mods,
        "blocks_before": service.blocks_before,
        "blocks_after": service.blocks_after,
        "hardware_entries_before": service.hardware_entries_before,
        "hardware_entries": service.hardware_entries,
        "backends": [
            {
                "name": backend.name,
                **dict(zip(("mac", "port"), mac_and_port(backend.hop), strict=True)),
                "wanted": None if backend.wanted is None else float(backend.wanted),
                "before": float(backend.before),
                "after": float(backend.after),
            }
            for backend in service.backends
        ],
    }
