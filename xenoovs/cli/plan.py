"""`xenoovs plan`: shows what `apply` would change."""

from __future__ import annotations

from itertools import islice
from math import ceil
from pathlib import Path
from shlex import join

import click

from xenoovs.cli.history import history_of
from xenoovs.compile.drain_progress import Draining
from xenoovs.compile.plan import BackendShare, ChangeKind, Plan, ServiceChange
from xenoovs.compile.program import broken_returns
from xenoovs.compile.read import is_block
from xenoovs.dataclass import replace
from xenoovs.display import duration, percent
from xenoovs.engine.change import Change, PlanOptions, summary_of
from xenoovs.engine.engine import Engine
from xenoovs.engine.history import History
from xenoovs.errors import counted, worded
from xenoovs.model.next_hop import mac_and_port, written_and_port
from xenoovs.openflow.flow import Flow, service_of
from xenoovs.openflow.text import render_actions, render_flow
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK, file_behind, user_name
from xenoovs.terminal.load import load, resolved
from xenoovs.terminal.options import bridge_command, hinting_partial, no_drain_option, partial_option, rebalance_option
from xenoovs.terminal.output import answer, echo, is_text, print_table, print_text
from xenoovs.terminal.reach import reach, where_of

_ROWS_SHOWN = 20
_SIGN_COLOURS = {"+": "green", "~": "yellow", "-": "red"}

flows_option = click.option("--flows", "flows", is_flag=True, help="Show the flows to add (+), change (~), remove (-).")


@bridge_command("plan")
@rebalance_option
@partial_option
@no_drain_option
@flows_option
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Save the plan; `xenoovs apply PATH` makes exactly this change, or refuses if the bridge has changed.",
)
def plan_command(
    config: Path,
    *,
    rebalance: bool,
    partial: bool,
    no_drain: bool,
    flows: bool,
    out: Path | None,
) -> int:
    """Show what `apply` would change on the bridge of the config FILE; change nothing.

    First come the services that are added, changed and removed, the share of their clients that gets another backend,
    and the number of flows before and after. Then a table of services: clients that move, and the least that any change
    to these weights would move; blocks, and the entries that the NIC will hold, before and after. Then the backends
    whose share of the clients changes. With `drain: {mode: pin}`: which open connections stay with their backend, and
    for how long.

    Exit status 0: nothing to do, 2: something differs.
    """
    balancer, switch = load(config), reach()
    options = PlanOptions(rebalance=rebalance, drain=not no_drain, partial=partial)
    with hinting_partial():
        change = Engine(switch).plan(resolved(balancer), options)
    change = with_names(change, history_of(change.bridge))
    answer(lambda: plan_document(change), lambda: show_plan(change, flows=flows))
    if out is not None:
        _save(out, change, config=config, options=options)
        if is_text():
            command = where_of(switch.endpoint).text(join(["xenoovs", "apply", str(out)]))
            echo(f"saved: `{command}` makes exactly this change")
    return EXIT_OK if change.difference.is_empty else EXIT_DIFFERS


def with_names(change: Change, history: History | None) -> Change:
    """Return the change with the names of the services that it removes, as far as the history has them."""
    present = {made.service_id for made in change.program.services}
    if history is None or all(i in present for i, _ in change.before.services):
        return change
    return replace(change, names=history.names())


def _save(path: Path, change: Change, *, config: Path, options: PlanOptions) -> None:
    """Write the file of a plan. Raises click.UsageError, OSError."""
    from xenoovs.engine.document import save
    from xenoovs.engine.saved import plan_of

    path = file_behind(path, option="--out")
    try:
        plan = plan_of(change, file=str(config), options=options, user=user_name())
        save(path, plan.model_dump(mode="json"))
    except OSError as error:
        # Without the name of the temporary file.
        raise OSError(error.errno, f"the plan was not saved: {error.strerror}", str(path)) from None


def show_plan(change: Change, *, flows: bool) -> None:
    """Print what a change does: in words, then for each service and backend, then flow by flow if `flows`."""
    difference = change.difference
    if difference.is_empty:
        count = counted(difference.unchanged, "flow")
        echo(f"{change.bridge}: nothing to do, {count} as {worded(difference.unchanged, 'it', 'they')} should be")
        _show_problems_and_drains(change)
        return
    summary = summary_of(change)
    echo(f"{change.bridge}: {summary.headline(lambda text, sign: click.style(text, fg=_SIGN_COLOURS[sign]))}")
    echo(f"Clients that move to another backend: {summary.moved_text}")
    echo(
        f"Flows: {summary.flows_before} before, {summary.flows_after} after ({len(difference.added)} to add, "
        f"{len(difference.changed)} to change, {len(difference.removed)} to remove)"
    )
    if summary.groups["before"] or summary.groups["after"]:
        text = "Groups: {before} before, {after} after ({add} to add, {remove} to remove)"
        echo(text.format(**summary.groups))
    _show_services(change, len(summary.added) + len(summary.changed) + len(summary.removed))
    _show_problems_and_drains(change)
    if flows:
        _show_flows(difference)


def _show_services(change: Change, count: int) -> None:
    """Print the table of services, of which there are `count`, and that of backends whose share changes."""
    flow_mods = change.difference.flow_mods_by_service()
    every = (each for each in change.services() if each.kind is not ChangeKind.SAME or flow_mods[each.service_id])
    services = list(islice(every, _ROWS_SHOWN))
    if not services:
        return
    echo()
    print_table(
        ["SERVICE", "CHANGE", "MOVED", "LEAST POSSIBLE", "BLOCKS", "HARDWARE ENTRIES", "FLOW-MODS"],
        [_coloured(each, _service_row(each, flow_mods[each.service_id])) for each in services],
        right=range(2, 7),
        spare=(6, 3),
    )
    if count > len(services):
        echo(f"... and {counted(count - len(services), 'more service')}; -o json has them all")
    for service in services:
        if service.most_entries > service.hardware_entries:
            most = counted(service.most_entries, "hardware entry", "hardware entries")
            echo(f"{service.name}: up to {most} if packets use ECN, behind tunnels")
        if service.lone_port is not None:
            echo(f"{service.name}: no failover in the switch, all backends are behind {service.lone_port}")
        if service.ejected:
            echo(f"{service.name}: ejected, others serve their clients: {', '.join(service.ejected)}")
    rows = [
        _coloured(service, [service.name, _label(backend), *written_and_port(backend.hop), *map(percent, shares)])
        for service in services
        for backend in service.backends
        if backend.before != backend.after
        for shares in [(backend.target, backend.before, backend.after)]
    ]
    if rows:
        echo()
        headers = ["SERVICE", "BACKEND", "MAC", "PORT", "TARGET", "BEFORE", "AFTER"]
        print_table(headers, rows[:_ROWS_SHOWN], right=(4, 5, 6), spare=(3, 2))
    if len(rows) > _ROWS_SHOWN:
        echo(f"... and {counted(len(rows) - _ROWS_SHOWN, 'more backend')}; -o json has them all")


def _service_row(service: ServiceChange, flow_mods: int) -> list[str]:
    is_kept = service.kind in (ChangeKind.CHANGED, ChangeKind.SAME)
    return [
        service.name,
        # Also if only flows other than those of the blocks change.
        (ChangeKind.CHANGED if service.kind is ChangeKind.SAME else service.kind).value,
        percent(service.moved) if is_kept else "-",
        percent(service.least_moved) if is_kept else "-",
        f"{service.blocks_before} -> {service.blocks_after}",
        f"{service.hardware_entries_before} -> {service.hardware_entries}",
        str(flow_mods),
    ]


def _label(backend: BackendShare) -> str:
    return f"{backend.name}{' (backup)' if backend.is_backup else ''}"


def _coloured(service: ServiceChange, cells: list[str]) -> list[str]:
    return [click.style(cell, fg="red") for cell in cells] if service.kind is ChangeKind.REMOVED else cells


def _show_flows(difference: Plan) -> None:
    """Print the flows to add, change and remove; of each kind the blocks first, then the rest, ARP last."""
    changes = [
        *(("+", flow, "") for flow in difference.added),
        *(("~", each.after, f"  (was: {render_actions(each.before.actions)})") for each in difference.changed),
        *(("-", flow, "") for flow in difference.removed),
    ]
    echo()
    for sign, flow, was in sorted(changes, key=lambda change: ("+~-".index(change[0]), _order(change[1]))):
        # Without its cookie, which would make the line wrap.
        echo(click.style(f"{sign} {render_flow(replace(flow, cookie=0))}{was}", fg=_SIGN_COLOURS[sign]))


def _order(flow: Flow) -> int:
    if is_block(flow):
        return 0
    return 1 if service_of(flow.cookie) else 2


def _show_problems_and_drains(change: Change) -> None:
    if change.ovn is not None:
        echo()
        text = f"OVN uses {change.bridge} too ({change.ovn.evidence}): do not give a service an address of its networks"
        print_text(text, indent="  ", fg="yellow")
    if change.unread_policies:
        echo()
        text = f"whether a policy of IPsec covers the tunnels is not known: {change.unread_policies}"
        print_text(text, indent="  ", fg="yellow")
    for old, backend, new in broken_returns(change.program):
        echo()
        text = (
            f"{backend} of {old} answers for {new} from now on, so that open connections of {old} to it break. To keep "
            f"them, take it out of {old} first, and add it to {new} when that drain has ended"
        )
        print_text(text, indent="  ", fg="yellow")
    for problem in change.problems:
        echo(click.style(f"\nleft out: {problem.text}", fg="red"))
    for drain in change.drains:
        echo(f"\n{drain_line(drain)}")
        if drain.entries:
            entries = counted(drain.entries, "more hardware entry", "more hardware entries")
            echo(f"  up to {entries} meanwhile, one per connection (estimated from counters)")


def drain_line(drain: Draining) -> str:
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
    difference = change.difference
    flow_mods = difference.flow_mods_by_service()
    return {
        "bridge": change.bridge,
        "empty": difference.is_empty,
        "summary": summary_of(change).document,
        "added": [render_flow(flow) for flow in difference.added],
        "changed": [{"before": render_flow(c.before), "after": render_flow(c.after)} for c in difference.changed],
        "removed": [render_flow(flow) for flow in difference.removed],
        "unchanged": difference.unchanged,
        "services": [_service_document(service, flow_mods[service.service_id]) for service in change.services()],
        "problems": [problem.text for problem in change.problems],
        "broken_returns": [
            {"service": old, "backend": backend, "answers_for": new}
            for old, backend, new in broken_returns(change.program)
        ],
        "shared_with_ovn": None if change.ovn is None else change.ovn.evidence,
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
        "hardware_entries_with_ecn": service.most_entries,
        "backends": [
            {
                "name": backend.name,
                **dict(zip(("mac", "port"), mac_and_port(backend.hop), strict=True)),
                "target_share": None if backend.target is None else float(backend.target),
                "before": float(backend.before),
                "after": float(backend.after),
                "backup": backend.is_backup,
            }
            for backend in service.backends
        ],
    }
