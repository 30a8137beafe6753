"""`xenoovs decision --clients`: how evenly real clients would spread over backends."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import click

from xenoovs.compile.clients import Clients, Spread, check_spread, parse_clients
from xenoovs.compile.program import compile_config
from xenoovs.display import percent
from xenoovs.errors import counted
from xenoovs.evidence.dump_file import open_lines
from xenoovs.model.balancer import Balancer, KeyField
from xenoovs.partition.clients import Suggestion
from xenoovs.terminal.command import EXIT_FAILED, EXIT_OK
from xenoovs.terminal.load import check_service, load
from xenoovs.terminal.options import OutputFormat
from xenoovs.terminal.output import echo, print_error, print_json, print_table, print_text

_DEPTH_KEYS = ("depth", "selected", "low", "ideal", "entropy")


def analyse(config: Path, clients: Path, *, service: str | None, output: OutputFormat) -> int:
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
    if output is OutputFormat.JSON:
        print_json({**_document(parsed, spreads), "skipped": [one.name for one in skipped]})
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


def _document(clients: Clients, spreads: tuple[Spread, ...]) -> dict[str, object]:
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
