"""`xenoovs decision`: which backend serves which clients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import Decision, ServiceDifference, Transition, compare
from xenoovs.display import percent
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import DecisionMalformed, counted
from xenoovs.evidence.dump_file import read_text
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.model.remote import every_service
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.load import load, load_resolved
from xenoovs.terminal.options import FILE, OutputFormat, bridge_command, service_option
from xenoovs.terminal.output import echo, print_table
from xenoovs.terminal.reach import reach

INSTALLED = "installed"
_SHIFTS_SHOWN = 20


@bridge_command("decision")
@click.option("--installed", is_flag=True, help="Read the decision from the flows of the bridge.")
@click.option("--offline", is_flag=True, help="Read no switch: show the decision for a bridge without flows.")
@click.option(
    "--diff",
    "other",
    metavar="OTHER",
    help="Compare with OTHER: `installed`, or a file written with -o json; `-` reads standard input.",
)
@click.option("--clients", type=FILE, metavar="CLIENTS", help="Show how evenly the clients in this file would spread.")
@service_option
def decision_command(
    config: Path,
    *,
    db: str | None,
    lab: str | None,
    installed: bool,
    offline: bool,
    other: str | None,
    clients: Path | None,
    service: str | None,
    output: OutputFormat,
) -> int:
    """Show which backend serves which clients of the config FILE.

    HOME is the share of the clients that the weights give a backend, ACTIVE the share that it serves now: others serve
    the clients of an ejected backend, and backups serve all clients while no other backend does. Two bridges with the
    same decision send every client to the same backend.

    With --clients no switch is read. CLIENTS has one client per line: ADDRESS, ADDRESS COUNT or COUNT ADDRESS (as from
    `sort | uniq -c`), or is a log whose lines begin with the address; - reads standard input. Each service is judged as
    if all were its clients.
    SHARE is the share of the address space, which is exact; LOAD is the share of the listed clients. SPREAD is the
    standard deviation of the load of a block, relative to the mean; BY CHANCE is that of a perfect hash, which cannot
    split a client either. Other bits are suggested if they also suit clients that were not used to choose them.
    Services that balance by source port are skipped: addresses do not contain ports.

    Exit status with --diff 0: every client has the same backend, 2: some have another one; with --clients 1: there was
    no client.
    """
    if clients is not None:
        if installed or other is not None:
            raise click.UsageError("--clients reads no bridge: leave --installed and --diff out.")
        from xenoovs.cli.clients import analyse

        return analyse(config, clients, service=service, output=output)
    if service is not None:
        raise click.UsageError("--service goes with --clients.")
    from xenoovs.decision.document import decision_document

    if offline and (installed or other == INSTALLED):
        raise click.UsageError("--offline reads no bridge: omit it to see what is installed.")
    balancer = load(config) if offline else load_resolved(config, of_dpu=installed)
    configured = every_service(balancer)
    ids = service_ids(service.claim for service in configured)
    names = {ids[service.claim]: service.name for service in configured}
    engine = None if offline else Engine(reach(db, lab))
    if engine is None:
        decision, transition = compile_config(balancer).decision, Transition()
    elif installed:
        decision, transition = engine.decision(balancer)
    else:
        target = engine.plan(balancer, PlanOptions(partial=True)).target
        decision, transition = target.decision, target.transition
    if other is None:
        output.show(lambda: decision_document(decision, names), lambda: _show(balancer, names, decision, transition))
        return EXIT_OK
    before = engine.decision(balancer)[0] if engine is not None and other == INSTALLED else _load(other)
    differences = compare(before, decision)
    output.show(
        lambda: {"services": [_document(each, names) for each in differences]},
        lambda: _show_differences(differences, names),
    )
    return EXIT_DIFFERS if any(each.share for each in differences) else EXIT_OK


def _load(path: str) -> Decision:
    """Return the decision in a file. Raises DecisionMalformed, OSError."""
    from xenoovs.decision.document import parse_decision

    try:
        return parse_decision(json.loads(read_text(Path(path))))
    except (ValueError, RecursionError) as error:
        raise DecisionMalformed(path=path, reason=f"no JSON: {error}") from None


def _show(balancer: Balancer, names: dict[int, str], decision: Decision, transition: Transition) -> None:
    moving = dict(transition.services)
    rows = []
    for service_id, service in decision.services:
        home, active = service.home.shares(), service.active.shares()
        configured = {b.name: b for s in every_service(balancer) if s.name == names.get(service_id) for b in s.backends}
        others = sorted((home.keys() | active.keys()) - configured.keys())
        for owner in (*configured, *others):
            blocks = sum(name == owner for _, name in service.active.rows)
            leaving = sum(move.old == owner for move in moving.get(service_id, ()))
            row = [percent(home.get(owner, 0.0)), percent(active.get(owner, 0.0)), str(blocks), str(leaving)]
            backup = " (backup)" if owner in configured and configured[owner].is_backup else ""
            rows.append([names.get(service_id, f"id {service_id:#x}"), owner + backup, *row])
    print_table(["SERVICE", "BACKEND", "HOME", "ACTIVE", "BLOCKS", "DRAINING"], rows, right=range(2, 6))


def _show_differences(differences: Iterable[ServiceDifference], names: dict[int, str]) -> None:
    found = [each for each in differences if each.share]
    if not found:
        echo("both decisions send every client to the same backend")
        return
    for each in found:
        echo(f"service {_name(each, names)}: {percent(each.share)} of its clients have another backend")
        rows = [[f"  {s.old or 'none'}", s.new or "none", percent(s.share)] for s in each.shifts[:_SHIFTS_SHOWN]]
        print_table(["  FROM", "TO", "CLIENTS"], rows, right=(2,))
        if (left := len(each.shifts) - _SHIFTS_SHOWN) > 0:
            echo(f"  ... and {counted(left, 'more pair')}; -o json has them all")


def _document(difference: ServiceDifference, names: dict[int, str]) -> dict[str, object]:
    return {
        "id": f"{difference.service_id:#010x}",
        "name": names.get(difference.service_id),
        "clients": float(difference.share),
        "shifts": [{"from": s.old, "to": s.new, "clients": float(s.share)} for s in difference.shifts],
    }


def _name(difference: ServiceDifference, names: dict[int, str]) -> str:
    return names.get(difference.service_id, f"id {difference.service_id:#x}")
