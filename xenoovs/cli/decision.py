"""`xenoovs decision`: which backend serves which clients."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click

from xenoovs.compile.clients import Clients, Spread, check_spread, parse_clients
from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import Decision, ServiceDifference, Transition, compare, decision_document
from xenoovs.display import percent
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import DecisionMalformed, counted
from xenoovs.evidence.dump_file import open_lines, read_text
from xenoovs.model.balancer import Balancer, KeyField, service_ids
from xenoovs.model.remote import every_service
from xenoovs.partition.clients import Suggestion
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.terminal.load import check_service, load, load_resolved
from xenoovs.terminal.options import FILE, bridge_command, service_option
from xenoovs.terminal.output import answer, echo, is_text, print_error, print_json, print_table, print_text
from xenoovs.terminal.reach import reach

INSTALLED = "installed"
_SHIFTS_SHOWN = 20
_DEPTH_KEYS = ("depth", "selected", "low", "ideal", "entropy")


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
    installed: bool,
    offline: bool,
    other: str | None,
    clients: Path | None,
    service: str | None,
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
        return analyse(config, clients, service=service)
    if service is not None:
        raise click.UsageError("--service goes with --clients.")
    if offline and (installed or other == INSTALLED):
        raise click.UsageError("--offline reads no bridge: omit it to see what is installed.")
    balancer = load(config) if offline else load_resolved(config, of_dpu=installed)
    configured = every_service(balancer)
    ids = service_ids(service.claim for service in configured)
    names = {ids[service.claim]: service.name for service in configured}
    engine = None if offline else Engine(reach())
    if engine is None:
        decision, transition = compile_config(balancer).decision, Transition()
    elif installed:
        decision, transition = engine.decision(balancer)
    else:
        target = engine.plan(balancer, PlanOptions(partial=True)).target
        decision, transition = target.decision, target.transition
    if other is None:
        answer(lambda: decision_document(decision, names), lambda: _show(balancer, names, decision, transition))
        return EXIT_OK
    before = engine.decision(balancer)[0] if engine is not None and other == INSTALLED else _load(other)
    differences = compare(before, decision)
    answer(
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


# How evenly real clients would spread.


def analyse(config: Path, clients: Path, *, service: str | None) -> int:
    """Print how evenly clients would spread over the backends of a config, and return the exit status."""
    if str(config) == str(clients) == "-":
        raise click.UsageError("standard input can be only one of FILE and --clients.")
    balancer = load(config)
    check_service(balancer, service)
    with open_lines(clients) as lines:
        parsed = parse_clients(lines)
    selected = [one for one in balancer.services if service in (None, one.name)]
    by_address = [one.name for one in selected if one.key.field is KeyField.SOURCE_ADDRESS]
    skipped = [one for one in selected if one.name not in by_address]
    spreads = tuple(_spreads(balancer, parsed, only=by_address))
    if not is_text():
        print_json({**_clients_document(parsed, spreads), "skipped": [one.name for one in skipped]})
    else:
        for spread in spreads:
            _show_spread(spread)
        if parsed.unread:
            echo(f"lines without an address ({parsed.unread_lines}); the first: {parsed.unread[0]}")
        for one in skipped:
            reason = f"it balances by {one.key.field.label}, which a list of addresses does not contain"
            print_text(f"{one.name}: skipped, as {reason}", fg="yellow")
    if not by_address:
        print_error("nothing to analyse: no service balances by the addresses of its clients")
    elif not spreads:
        print_error(f"{clients}: no client of any service; write one address per line, as `203.0.113.9` or `12 ::1`")
    return EXIT_OK if spreads else EXIT_FAILED


def _spreads(balancer: Balancer, clients: Clients, *, only: Collection[str]) -> Iterator[Spread]:
    for compiled in compile_config(balancer).services:
        for family in compiled.service.claim.served_families if compiled.service.name in only else ():
            sent = clients.of(family)
            if sum(sent.values()):
                yield check_spread(compiled, family, sent)


def _show_spread(spread: Spread) -> None:
    version = {32: "IPv4", 128: "IPv6"}[spread.family.bits]
    positions = ", ".join(map(str, spread.positions)) or "none"
    head = f"{spread.service}: {counted(spread.clients, f'{version} client')}, {spread.load} sent; bits {positions}"
    echo(click.style(head, bold=True))
    rows = [[b.name, percent(b.wanted), percent(b.space), percent(b.load)] for b in spread.backends]
    print_table(["BACKEND", "TARGET", "SHARE", "LOAD"], rows, right=(1, 2, 3))
    echo()
    depths = [
        [str(d.depth), str(1 << d.depth), *map(percent, (d.selected, d.low, d.ideal))] for d in spread.bits.depths
    ]
    print_table(["BITS", "BLOCKS", "SPREAD", "LOW BITS", "BY CHANCE"], depths, right=range(5))
    echo()
    bits = spread.bits
    print_text(f"heaviest client {percent(bits.top1)}, ten heaviest {percent(bits.top10)} of the load")
    if bits.clients_decide_from is not None:
        print_text(
            f"with {1 << bits.clients_decide_from} blocks or more, the heaviest client outweighs a mean block: no "
            "choice of bits evens that out"
        )
    conclusion, colour = _conclusion(spread)
    print_text(conclusion, fg=colour, bold=True)
    echo()


def _conclusion(spread: Spread) -> tuple[str, str]:
    found = spread.suggestion
    if spread.is_by_chance:
        return "the bits are well chosen: these clients spread as by chance", "green"
    if found is None:
        return "the clients spread worse than by chance, but no other bits are clearly better", "yellow"
    better = f"suggested bits: match: {{bits: [{', '.join(map(str, found.positions))}]}}"
    gain = f"spread {percent(found.after)} instead of {percent(found.before)}"
    return f"{better}; {gain} for clients that were not used to choose them", "yellow"


def _clients_document(clients: Clients, spreads: tuple[Spread, ...]) -> dict[str, object]:
    return {
        "clients": len(clients.load),
        "unread_lines": clients.unread_lines,
        "services": [
            {
                "service": spread.service,
                "ip_version": 4 if spread.family.bits == 32 else 6,
                "clients": spread.clients,
                "load": spread.load,
                "bits": list(spread.positions),
                "backends": [
                    {"name": b.name, "target_share": float(b.wanted), "share": float(b.space), "load": float(b.load)}
                    for b in spread.backends
                ],
                "depths": [{name: getattr(depth, name) for name in _DEPTH_KEYS} for depth in spread.bits.depths],
                "ones": list(spread.bits.ones),
                "heaviest_client": spread.bits.top1,
                "ten_heaviest_clients": spread.bits.top10,
                "clients_decide_from_depth": spread.bits.clients_decide_from,
                "as_by_chance": spread.is_by_chance,
                "better_bits": None if spread.suggestion is None else _suggestion(spread.suggestion),
            }
            for spread in spreads
        ],
    }


def _suggestion(found: Suggestion) -> dict[str, object]:
    return {"bits": list(found.positions), "spread_before": found.before, "spread_after": found.after}
