"""`xenoovs fleet status`, `diff`, `history` and `show`: what DPUs have, and the configs of the fleet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from xenoovs.dataclass import replace
from xenoovs.display import duration, printable
from xenoovs.errors import StoreUnreachable, counted, first_names
from xenoovs.fleet.commands.client import FleetStore, known_dpu, on_fleet
from xenoovs.fleet.plan import DrainWatch, known_intent
from xenoovs.fleet.snapshot import (
    DPUS,
    DRIFTS,
    HISTORY,
    OVERRIDES,
    SERVER_LIST,
    SERVERS,
    TARGETS,
    FleetSnapshot,
    dpu_rows,
    notices,
)
from xenoovs.fleet.watch import FleetWatch
from xenoovs.show.column import Row
from xenoovs.show.terminal import STYLES
from xenoovs.store.view import DpuState, FleetView, lacks, sync_state
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.options import output_option
from xenoovs.terminal.output import answer, echo, print_columns, text_lines

_DPUS_SHOWN = 6
"""Larger fleets are shown on a screen of 24 lines: sums, and what needs an operator."""
_SCREEN, _LEAST_DPUS, _LINES_BELOW = 18, 2, 8
"""Lines of that screen, without headers, blank lines and what is left out."""
_ENTRIES_SHOWN = 40


@click.command("status")
@click.option("--group", metavar="NAME", help="Only DPUs of this group.")
@click.option("--rack", metavar="NAME", help="Only DPUs of this rack.")
@click.option("--state", type=click.Choice([state.name.lower() for state in DpuState]), help="Only DPUs in this state.")
@click.option("--all", "shows_all", is_flag=True, help="List DPUs that are well too, however many there are.")
@output_option
@on_fleet
def status_command(
    *, group: str | None, rack: str | None, state: str | None, shows_all: bool, store: FleetStore
) -> int:
    """Show the generation of the fleet, its overrides, and which DPUs have applied it.

    Of more than six DPUs it lists what needs an operator, the worst first: as many DPUs, servers that lack entries and
    messages as fit on a screen. With --all, or with a filter, it lists all of them; the exit status and the problems
    are of the whole fleet.

    A DPU is `behind` with an older generation, `ahead of the store` with a newer one (the store was rolled back), `of
    another store` with one of a store that this one replaced, `failed` with an error, `drifted` if its flows differ
    from the store, and `silent` three minutes after its last report, by the clock of the
    controller. HW is the share of its megaflows in hardware, as of its last report.

    Below are the servers of the store: those of this host, and for databases that it leads also the other ones. LAG
    counts log entries that a server lacks.

    Problems are in red at the end: no controller is active, or none has written the newest change; a backend is down by
    the votes of its witnesses, they have no quorum, or no controller writes what most of them vote; the clock of this
    host and that of a DPU differ by more than three minutes. JSON has all votes in `targets`.

    Exit status 0: every DPU has the newest generation, no roll-out runs, and there is no problem, 2: otherwise.
    """
    view, _ = store.view(), store.statuses()
    snapshot = FleetWatch(store.fleet, store.states, store.directory).settled()
    view, connection = snapshot.view or view, store.fleet.connection
    chosen = [
        row
        for row in snapshot.rows
        if (group is None or group in row.groups)
        and rack in (None, row.rack)
        and state in (None, row.state.name.lower())
    ]
    listed, is_short = replace(snapshot, rows=tuple(chosen)), not (shows_all or group or rack or state)
    drains = DrainWatch().left(view, clocks_ms=(snapshot.clock_ms,), now_s=0)
    answer(
        lambda: {
            "fleet": view.name,
            "generation": view.generation,
            "intent": view.intent,
            "services": len(view.service_names),
            "server": {"remote": connection.remote, "leads": connection.is_leader},
            "dpus": DPUS.documents(listed),
            "overrides": OVERRIDES.documents(view),
            "servers": SERVERS.documents(snapshot),
            "problems": [*snapshot.problems, *snapshot.roll_out],
            "targets": TARGETS.documents(snapshot),
            "frozen": snapshot.frozen,
            "drains": [{"service": name, "left_s": round(left_s, 3)} for name, left_s in sorted(drains.items())],
        },
        lambda: _show(
            view,
            snapshot,
            None if is_short and len(listed.rows) > _DPUS_SHOWN else listed,
            drains,
            source="" if store.directory is not None else f"read from {store.remote}",
        ),
    )
    return EXIT_OK if snapshot.is_well else EXIT_DIFFERS


@click.command("history")
@click.argument("number", type=click.IntRange(min=1), required=False)
@output_option
@on_fleet
def history_command(*, number: int | None, store: FleetStore) -> None:
    """Show each change of the fleet, the newest first: when, who made it and where, what it changed, and why.

    It has configs with what became of them, drains, weights, and changes of DPUs, also those that were undone since:
    the newest 40 of the 1,000 that stay, and with JSON all of them. WHO is the user by the account of his host.

    With NUMBER: print the config of that number as it was given, without overrides; `fleet status` shows these.

    \b
    Example:
      xenoovs fleet history 7 > services.yaml
    """
    view = store.view()
    if number is not None:
        lines = known_intent(view, number).text.removesuffix("\n").split("\n")
        text = "\n".join(map(printable, lines))
        answer(lambda: {"number": number, "config": text}, lambda: echo(text))
        return
    answer(
        lambda: {"history": HISTORY.documents(view)},
        lambda: print_columns(HISTORY.columns, HISTORY.shown(view)[:_ENTRIES_SHOWN]),
    )


@click.command("diff")
@click.argument("dpu", required=False)
@output_option
@on_fleet
def diff_command(*, dpu: str | None, store: FleetStore) -> int:
    """Show which services have other blocks on a bridge than in the store, of all DPUs or of DPU alone.

    It is what agents reported last, REPORTED ago. GENERATION is the newest that the bridge had.

    Exit status 0: nothing differs, 2: something differs, or a DPU has not reported that it has what the store has now.
    """
    view, statuses = store.view(), store.statuses()
    if statuses is None:
        reason = "the database of states does not answer, so what DPUs have is not known"
        raise StoreUnreachable(remotes=store.remote, reason=reason)
    rows = dpu_rows(view, statuses, now_s=time.time())
    if dpu is not None:
        known = {row.name: row for row in rows}
        rows = [known_dpu(known, dpu)]
    drifts = DRIFTS.shown(rows)
    unknown = [row.name for row in rows if row.state is DpuState.UNKNOWN]
    older = [row for row in rows if sync_state(view, row.status) is not DpuState.APPLIED and row.name not in unknown]
    answer(
        lambda: {"drifts": DRIFTS.documents(rows), "unknown": unknown, "not_newest": [row.name for row in older]},
        lambda: _show_drifts(drifts, unknown, [f"{row.name} {lacks(view, row.status)}" for row in older]),
    )
    return EXIT_DIFFERS if drifts or unknown or older else EXIT_OK


def _show_drifts(drifts: list[Row[Any]], unknown: list[str], older: list[str]) -> None:
    if drifts:
        print_columns(DRIFTS.columns, drifts)
    elif not unknown and not older:
        echo("no service differs from the store")
    if older:
        echo(click.style(f"not compared with the newest generation: {printable(first_names(older))}", fg="red"))
    if unknown:
        echo(click.style(f"not reported yet: {printable(first_names(unknown))}", fg="red"))


def _show(
    view: FleetView,
    snapshot: FleetSnapshot,
    listed: FleetSnapshot | None,
    drains: Mapping[str, float],
    *,
    source: str,
) -> None:
    """Print a fleet, with all that is said of the DPUs of `listed`; None: what fits a screen."""
    role = source or f"the server of this host {'leads' if snapshot.is_active else 'follows'}"
    counts = snapshot.counts()
    head = text_lines(
        f"{printable(view.name)}: generation {view.generation}, config {view.intent or 'none'}, "
        f"{counted(len(view.service_names), 'service')}; {role}"
    )
    if counts:
        states = ", ".join(f"{counts[state]} {state.value}" for state in reversed(DpuState) if counts[state])
        head += text_lines(f"{counted(len(snapshot.rows), 'DPU')}: {states}")
    if ends := [(row.certificate_left_s, row.name) for row in snapshot.rows if row.certificate_left_s is not None]:
        head += text_lines(f"the first certificate ends in {duration(min(ends)[0])}: that of {printable(min(ends)[1])}")
    servers = [row for row in SERVER_LIST.shown(snapshot) if listed is not None or row.value.is_behind]
    below = list[str]()
    for text, style in notices(snapshot, drains):
        lines = text_lines(printable(text), **STYLES[style])
        if listed is None and len(below) + len(lines) > _LINES_BELOW:
            below.append("... and more: see `xenoovs fleet status --all`")
            break
        below += lines
    if listed is None:
        rows = DPUS.shown(replace(snapshot, rows=tuple(row for row in snapshot.worst_first() if not row.is_well)))
        rows = rows[: max(_LEAST_DPUS, _SCREEN - len(head) - len(below) - len(servers) - 2 * bool(servers))]
    else:
        rows = DPUS.shown(listed)
    for line in head:
        echo(line)
    if rows:
        echo()
        print_columns(DPUS.columns, rows, wraps=listed is not None)
    elif listed is not None and snapshot.rows:
        echo("no DPU is of that group, rack and state")
    if left := len(snapshot.rows) - len(rows):
        echo(f"... and {left} more: `xenoovs fleet status --all` lists every DPU")
    if servers:
        echo()
        print_columns(SERVER_LIST.columns, servers)
    for line in ["", *below] if below else ():
        echo(line)
