"""`xenoovs plan`: what would change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import click

from xenoovs.cli.options import (
    Output,
    bridge_command,
    hinting_partial,
    load_resolved,
    partial_option,
    reach,
    rebalance_option,
)
from xenoovs.cli.output import echo, echo_over, print_json, print_table
from xenoovs.compile.drains import Draining
from xenoovs.compile.plan import BackendShare, ChangeKind, Plan, ServiceChange
from xenoovs.display import duration, percent
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import counted, worded
from xenoovs.model.next_hop import mac_and_port
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_actions, render_flow

# Drains for people and for programs, and waiting for their end.


def drain_line(drain: Draining) -> str:
    """One drain, told in one line."""
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
        # Some lose clients and get others: names alone would say that they keep what they get.
        old, new = "their backends", f"others{later} ({', '.join(f'{one} -> {other}' for one, other in ways)})"
        later = ""
    return (
        f"service {drain.service}: open connections of {blocks} stay with {old} for at most {duration(drain.left_s)}; "
        f"new ones go to {new}{later}"
    )


def entries_line(drain: Draining) -> str:
    """What it takes of the NIC."""
    entries = counted(drain.entries, "more hardware entry", "more hardware entries")
    return f"  up to {entries} meanwhile, one for a connection (estimate by counters)"


def drain_document(drain: Draining) -> dict[str, object]:
    """One drain for programs."""
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


class Steps:
    """A change and all that its drains need after it: planned again, and sent, until none is left."""

    def __init__(self, engine: Engine, change: Change, *, plan_again: Callable[[], Change]) -> None:
        self._engine, self._change, self._plan_again = engine, change, plan_again

    @property
    def drains(self) -> tuple[Draining, ...]:
        return self._change.drains

    @property
    def look_s(self) -> float | None:
        """After how long to go on; None: there is nothing left to do."""
        return (self._change.next_s or 1.0) if self.drains else None

    def go_on(self) -> None:
        """Raises what planning and applying do."""
        self._engine.look(now_s=time.monotonic())
        # Others may work on other services meanwhile: what the bridge has is believed, not what was left on it.
        self._engine.forget()
        self._change = self._plan_again()
        if not self._change.difference.is_empty:
            self._engine.apply(self._change)


def wait_for_drains(steps: Steps) -> float:
    """Go on until no drain is left. Returns the seconds that it took."""
    begun_s = time.monotonic()
    try:
        while (look_s := steps.look_s) is not None:
            _tell(steps.drains)
            time.sleep(look_s)
            steps.go_on()
    except KeyboardInterrupt:
        echo("\ninterrupted: open connections are still kept; `xenoovs apply` goes on with it", err=True)
        raise
    echo_over("")
    return time.monotonic() - begun_s


def _tell(drains: Iterable[Draining]) -> None:
    parts = (f"{d.service}: {duration(d.left_s)} left, {d.connections} new connections" for d in drains)
    echo_over(f"waiting for {'; '.join(parts)}")


# A plan for people: flows to add (+), change (~) and remove (-), and what it means for each service.


_COLOUR = {"+": "green", "~": "yellow", "-": "red"}
_SERVICES_SHOWN = 20


def show_plan(change: Change, *, flows_shown: int | None) -> None:
    """Print the plan; at most `flows_shown` flows of each kind, None: all."""
    difference = change.difference
    if difference.is_empty:
        flows = counted(difference.unchanged, "flow")
        echo(f"{change.bridge}: nothing to do, {flows} as {worded(difference.unchanged, 'it', 'they')} should be")
        _show_problems(change)
        _show_drains(change)
        return
    for sign, count, lines in _flow_lines(difference):
        _print_some(sign, count, lines, flows_shown)
    services = (service for service in change.services() if service.kind is not ChangeKind.SAME)
    flow_mods = difference.flow_mods_by_service()
    for service in islice(services, _SERVICES_SHOWN):
        _show_service(service, flow_mods[service.service_id])
    if next(services, None) is not None:
        echo("\n... and more services; -o json has them all")
    _show_problems(change)
    _show_drains(change)
    echo(f"\n{headline(change)}")


def _show_problems(change: Change) -> None:
    for problem in change.problems:
        echo(click.style(f"\nleft out: {problem.text}", fg="red"))


def _show_drains(change: Change) -> None:
    for drain in change.drains:
        echo(f"\n{drain_line(drain)}")
        if drain.entries:
            echo(entries_line(drain))


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
        echo(click.style(f"{sign} {line}", fg=_COLOUR[sign]))
    if most is not None and count > most:
        rest = f"{sign} ... and {count - most} more (--all-flows shows them)"
        echo(click.style(rest, fg=_COLOUR[sign]))


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
        echo(f"  out, so that others have their clients: {', '.join(service.ejected)}")
    print_table(["  BACKEND", "MAC", "PORT", "WANTED", "BEFORE", "AFTER"], map(_row, service.backends), right=(3, 4, 5))


def _row(backend: BackendShare) -> list[str]:
    wanted = "-" if backend.target is None else percent(backend.target)
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
        "fate": service.kind.value,
        "clients_moved": float(service.moved),
        "clients_moved_least": float(service.least_moved),
        "out": list(service.ejected),
        "flow_mods": flow_mods,
        "blocks_before": service.blocks_before,
        "blocks_after": service.blocks_after,
        "hardware_entries_before": service.hardware_entries_before,
        "hardware_entries": service.hardware_entries,
        "backends": [
            {
                "name": backend.name,
                **dict(zip(("mac", "port"), mac_and_port(backend.hop), strict=True)),
                "wanted": None if backend.target is None else float(backend.target),
                "before": float(backend.before),
                "after": float(backend.after),
            }
            for backend in service.backends
        ],
    }


FLOWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path
    db: str | None
    lab: str | None
    rebalance: bool
    partial: bool
    all_flows: bool
    output: Output


@bridge_command("plan")
@rebalance_option
@partial_option
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
@click.pass_context
def plan_command(context: click.Context, /, **given: Any) -> None:
    """Compare the config FILE with its bridge, and change nothing.

    Shows the flows that would be added (+), changed (~) and removed (-); for each service the backends' shares of the
    address space before and after, the share of clients that would get another backend, and the entries that the NIC
    will hold; with `drain: {mode: pin}` what is done first, for which connections and for how long. Exit status 0:
    nothing to do, 2: something differs.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.engine.change import Options as How

    options = Options(**given)
    balancer, switch = load_resolved(options.config), reach(options.db, options.lab)
    with hinting_partial():
        change = Engine(switch).plan(balancer, How(rebalance=options.rebalance, partial=options.partial))
    if options.output is Output.JSON:
        print_json(plan_document(change))
    else:
        show_plan(change, flows_shown=None if options.all_flows else FLOWS_SHOWN)
    context.exit(EXIT_OK if change.difference.is_empty else EXIT_DIFFERS)
