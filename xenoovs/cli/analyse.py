"""`xenoovs analyse`: how evenly would real clients spread?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, config_argument, load, output_option
from xenoovs.cli.output import echo, print_error, print_json, print_table, print_text
from xenoovs.display import percent
from xenoovs.errors import counted
from xenoovs.model.balancer import KeyField

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xenoovs.compile.spread import Spread
    from xenoovs.model.balancer import Balancer
    from xenoovs.model.clients import Clients
    from xenoovs.partition.analyse import DepthReport, Suggestion

_CLIENTS = click.Path(allow_dash=True, path_type=Path)


@click.command("analyse")
@config_argument
@click.argument("clients", metavar="CLIENTS", type=_CLIENTS)
@click.option("--service", metavar="NAME", help="Only this service.")
@output_option
@click.pass_context
def analyse_command(
    context: click.Context, config: Path, clients: Path, *, service: str | None, output: Output
) -> None:
    """Say how evenly the clients in the file CLIENTS would spread over the backends of the config FILE.

    CLIENTS has one client a line: ADDRESS, ADDRESS COUNT or COUNT ADDRESS (as from `sort | uniq -c`), or is a log whose
    lines begin with the address; - reads standard input. Every service is judged as if all of them were its clients.

    Blocks count addresses, not packets: shares of the address space are exact, shares of the load are what the clients
    make of it. SPREAD is the standard deviation of a block's load, of the mean; BY CHANCE what a perfect hash would
    leave, which cannot split a client either. Other bits are told where they are clearly better for a half of the
    clients that they were not chosen for.

    Services by source port are passed over: addresses say nothing of ports.

    Exit status 0: told, 1: there was no client.
    """
    from xenoovs.cli.main import EXIT_FAILED, EXIT_OK

    if str(config) == str(clients) == "-":
        raise click.UsageError("standard input can be only one of FILE and CLIENTS.")
    balancer = load(config)
    names = [one.name for one in balancer.services]
    if service is not None and service not in names:
        raise click.UsageError(f"--service {service}: the config has {', '.join(names)}")
    read = _read(clients)
    asked = [one for one in balancer.services if service in (None, one.name)]
    by_address = [one.name for one in asked if one.key.field is KeyField.SOURCE_ADDRESS]
    passed_over = [one for one in asked if one.name not in by_address]
    spreads = tuple(_spreads(balancer, read, only=by_address))
    if output is Output.JSON:
        print_json({**_document(read, spreads), "passed_over": [one.name for one in passed_over]})
    else:
        _show(read, spreads)
        for one in passed_over:
            label = one.key.field.label
            print_text(
                f"{one.name}: passed over, as it balances by {label}, of which addresses say nothing", fg="yellow"
            )
    if not by_address:
        print_error("nothing to analyse: no service here balances by the addresses of its clients")
    elif not spreads:
        print_error(
            f"{clients}: no client of any service; it takes one address a line, such as `203.0.113.9` or `12 ::1`"
        )
    context.exit(EXIT_OK if spreads else EXIT_FAILED)


def _read(path: Path) -> Clients:
    from xenoovs.cli.recorded import open_lines
    from xenoovs.model.clients import parse_clients

    with open_lines(path) as lines:
        return parse_clients(lines)


def _spreads(balancer: Balancer, clients: Clients, *, only: Collection[str]) -> Iterator[Spread]:
    from xenoovs.compile.program import compile_config
    from xenoovs.compile.spread import check_spread

    for compiled in compile_config(balancer).services:
        for family in compiled.service.claim.served_families if compiled.service.name in only else ():
            sent = clients.of(family)
            if sum(sent.values()):
                yield check_spread(compiled, family, sent)


def _show(clients: Clients, spreads: tuple[Spread, ...]) -> None:
    for spread in spreads:
        _show_spread(spread)
    if clients.unread:
        echo(f"lines without an address ({clients.unread_lines}); the first: {clients.unread[0]}")


def _show_spread(spread: Spread) -> None:
    version = {32: "IPv4", 128: "IPv6"}[spread.family.bits]
    bits = ", ".join(map(str, spread.positions)) or "none"
    head = f"{spread.service}: {counted(spread.clients, f'{version} client')}, {spread.load} sent; bits {bits}"
    echo(click.style(head, bold=True))
    rows = [[b.name, percent(b.wanted), percent(b.space), percent(b.load)] for b in spread.backends]
    print_table(["BACKEND", "WANTED", "SPACE", "LOAD"], rows, right=(1, 2, 3))
    echo()
    depths = [
        [str(d.depth), str(1 << d.depth), *map(percent, (d.selected, d.low, d.ideal))] for d in spread.bits.depths
    ]
    print_table(["BITS", "BLOCKS", "SPREAD", "LOW BITS", "BY CHANCE"], depths, right=range(5))
    echo()
    for told in _facts(spread):
        print_text(told)
    told, colour = _conclusion(spread)
    print_text(told, fg=colour, bold=True)
    echo()


def _facts(spread: Spread) -> Iterator[str]:
    bits = spread.bits
    yield f"heaviest client {percent(bits.top1)}, ten heaviest {percent(bits.top10)} of the load"
    if bits.clients_decide_from is not None:
        blocks = 1 << bits.clients_decide_from
        yield f"of {blocks} blocks on, the heaviest client outweighs a mean block: no choice of bits evens that out"


def _conclusion(spread: Spread) -> tuple[str, str]:
    """What follows, and its colour."""
    found = spread.suggestion
    if spread.is_by_chance:
        return "the bits are well chosen: these clients spread as by chance", "green"
    if found is None:
        return "the clients spread worse than by chance, but no other bits are clearly better", "yellow"
    better = f"better bits: match: {{bits: [{', '.join(map(str, found.positions))}]}}"
    gain = f"spread {percent(found.after)} instead of {percent(found.before)}"
    return f"{better}; {gain} for clients that they were not chosen for", "yellow"


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
                    {"name": b.name, "wanted": float(b.wanted), "space": float(b.space), "load": float(b.load)}
                    for b in spread.backends
                ],
                "depths": [_depth(depth) for depth in spread.bits.depths],
                "ones": list(spread.bits.ones),
                "heaviest_client": spread.bits.top1,
                "ten_heaviest_clients": spread.bits.top10,
                "clients_decide_from_depth": spread.bits.clients_decide_from,
                "as_by_chance": spread.is_by_chance,
                "better_bits": _suggestion(spread.suggestion),
            }
            for spread in spreads
        ],
    }


def _depth(depth: DepthReport) -> dict[str, float]:
    names = ("depth", "selected", "low", "ideal", "entropy")
    return {name: getattr(depth, name) for name in names}


def _suggestion(found: Suggestion | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {"bits": list(found.positions), "spread_before": found.before, "spread_after": found.after}
