"""`xenoovs top`: backends with their shares, live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import click

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.display import duration, percent
from xenoovs.errors import XenoovsError, counted
from xenoovs.show.column import Column, Row, columns_of, text
from xenoovs.show.conditions import addressed, headline, troubles
from xenoovs.show.paths import PathState, RemoteView
from xenoovs.show.screen import Ask, Layout, Size, framed, is_live, line, once_size, one_column, row_after, run_live
from xenoovs.show.snapshot import BackendState, BackendView, ServiceView, Snapshot, backend_rows, parse_snapshot, totals
from xenoovs.show.terminal import fit
from xenoovs.terminal.agent_client import agent_options, find_client, options_of
from xenoovs.terminal.options import live_interval_option, once_option, output_option
from xenoovs.terminal.output import answer, echo, is_text

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client

BackendRow = Row[BackendView]
Item = BackendRow | ServiceView
"""A value with its own line."""
Names = tuple[str, str]
"""A service and one of its backends."""


class Sort(Enum):
    """The order of the rows. `config` groups them by service; the other orders make one list of all backends."""

    CONFIG = "config"
    PPS = "packets/s"
    SOFTWARE = "software packets/s"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Order:
    """A change of one backend that is requested from the agent. `route`: `drain` or `reset`."""

    route: str
    names: Names


@dataclass(frozen=True, slots=True)
class View:
    """What the user sees. `question`: an order that waits for y or n. `silence`: why the agent does not answer, so that
    the snapshot is old; empty while it answers. `options`: the options that suggested commands need to reach the agent,
    after a space."""

    snapshot: Snapshot = field(repr=False)
    chosen: Names | None = None
    sort: Sort = Sort.CONFIG
    question: Order | None = None
    message: str = ""
    silence: str = ""
    options: str = ""


_WORST_FIRST = (
    BackendState.DOWN,
    BackendState.MAINTENANCE,
    BackendState.DRAINED,
    BackendState.UP,
    BackendState.UNCHECKED,
)


def names_of(row: BackendRow) -> Names:
    return row.parent.name, row.value.name


def sorted_rows(snapshot: Snapshot, sort: Sort) -> tuple[BackendRow, ...]:
    """Return all backends in this order; equal ones stay in the order of the config."""
    ranks: dict[Sort, Callable[[BackendView], float]] = {
        Sort.CONFIG: lambda _: 0,
        Sort.PPS: lambda backend: -(backend.rate.pps if backend.rate else -1.0),
        Sort.SOFTWARE: lambda backend: -backend.software_pps,
        Sort.STATE: lambda backend: _WORST_FIRST.index(backend.state),
    }
    return tuple(sorted(backend_rows(snapshot), key=lambda row: ranks[sort](row.value)))


def chosen_index(view: View, listed: Sequence[BackendRow]) -> int:
    """Return the index of the row under the cursor: the chosen backend, or the first one."""
    return next((index for index, row in enumerate(listed) if names_of(row) == view.chosen), 0)


def pressed(view: View, key: str, *, page: int = 10) -> tuple[View, Order | None] | None:
    """Return the view after a key, and the order that the user has confirmed; None if he quits. `page`: rows that a
    page key moves by."""
    if key == "ctrl-c" or (key in ("q", "Q") and view.question is None):
        return None
    if view.question is not None:
        order = view.question if key in ("y", "Y") else None
        return replace(view, question=None, message="" if order is not None else "nothing was changed"), order
    listed = sorted_rows(view.snapshot, view.sort)
    if key in ("s", "S"):
        orders = tuple(Sort)
        return replace(view, sort=orders[(orders.index(view.sort) + 1) % len(orders)], message=""), None
    if not listed:
        return view, None
    index = chosen_index(view, listed)
    if (to := row_after(key, index, len(listed) - 1, page=page)) is not None:
        return replace(view, chosen=names_of(listed[to]), message=""), None
    backend, names = listed[index].value, names_of(listed[index])
    away, refusal = _AWAY.get(backend.state), ""
    if key in ("d", "D"):
        route, refusal = "drain", f"is already {away}" if away else ""
    elif key in ("u", "U"):
        is_configured = away is None and backend.weight == backend.weight_in_use
        route, refusal = "reset", "already has its configured weight" if is_configured else ""
    else:
        return view, None
    if refusal:
        return replace(view, message=f"{'/'.join(names)} {refusal}"), None
    return replace(view, chosen=names, question=Order(route, names), message=""), None


_AWAY = {BackendState.DRAINED: "drained", BackendState.MAINTENANCE: "in maintenance"}


# One frame.


_MAX_REMOTES = 6
"""Remotes of tunnels that are shown; a line says how many more there are."""
_FLAT = Column(of=lambda row: "/".join(names_of(row)), shown=text("BACKEND", live=12))
"""Replaces the name if rows are not below the names of their services."""


def frame(view: View, size: Size) -> list[str]:
    """Return the lines from top to bottom, none longer than the width, and exactly `height` lines if that is set."""
    listed, is_flat = sorted_rows(view.snapshot, view.sort), view.sort is not Sort.CONFIG
    head = [*_head(view, size.width)]
    chosen = listed[chosen_index(view, listed)] if listed and size.height is not None else None
    items = [*_items(listed, is_flat=is_flat)]
    if size.height is not None:
        # With thousands of rows only the visible lines are made.
        items = _window(items, chosen, room=max(size.height - len(head) - 2, 0))
    columns = [_FLAT if is_flat and each.name == "name" else each for each in columns_of(BackendView)]
    layout = Layout(columns, listed, [each for each in items if isinstance(each, Row)], size.width, has_cursor=True)
    rows = [
        layout.line(each, is_chosen=each is chosen) if isinstance(each, Row) else _service(each, size.width)
        for each in items
    ]
    return framed([*head, layout.titles()], rows, _foot(view, size.width), size)


def _service(service: ServiceView, width: int) -> str:
    facts = "  ".join((*service.vips, *service.facts))
    return line(width, (one_column(service.name), "bold"), (f"  {one_column(facts)}", "quiet"))


def _head(view: View, width: int) -> Iterator[str]:
    snapshot = view.snapshot
    state, style = ("the agent does not answer", "bad") if view.silence else headline(snapshot)
    left = f"xenoovs top  {one_column(snapshot.bridge)}  "
    up = f"agent up {duration(snapshot.now_s - snapshot.started_s)}"
    yield line(width, (left, "bold"), (state, style), (up.rjust(width - len(left) - len(state)), "quiet"))
    yield line(width, (_totals(snapshot), "plain"))
    for remote in snapshot.remotes[:_MAX_REMOTES]:
        row = Row(remote, None, snapshot.now_s)
        cells = {each.shown.header: each.text(row) for each in columns_of(RemoteView)}
        state = f"{remote.name}  {cells['STATE']}, {cells['GOOD']} paths good, blocks {cells['BLOCKS']}"
        style = "plain" if cells["STATE"] == PathState.GOOD.value else "warn"
        yield line(width, (one_column(f"{state}, {cells['MOVES']} moves  {cells['LAST MOVE']}"), style))
    if len(snapshot.remotes) > _MAX_REMOTES:
        more = f"{counted(len(snapshot.remotes) - _MAX_REMOTES, 'more remote')}: see `xenoovs paths list`"
        yield line(width, (one_column(addressed(more, view.options)), "quiet"))
    for trouble, how in troubles(snapshot):
        yield line(width, (one_column(addressed(trouble, view.options)), how))


def _totals(snapshot: Snapshot) -> str:
    sums = totals(snapshot)
    sampled = "no sample yet" if snapshot.sampled_s is None else f"sampled {sums['sampled']} ago"
    rates = f"{sums['in_hw']} in hardware   {sums['pps']} pps   {sums['bps']} bps"
    return f"{rates}   {sums['up']} up   {snapshot.flows} flows   {sampled}"


def _items(listed: tuple[BackendRow, ...], *, is_flat: bool) -> Iterator[Item]:
    """Yield an item for each line: backends and, where they are grouped, their services above them."""
    for service, rows in groupby(listed, key=lambda row: None if is_flat else row.parent):
        if service is not None:
            yield service
        yield from rows


def _window(items: list[Item], chosen: BackendRow | None, *, room: int) -> list[Item]:
    """Return as many items as there is room for, with the cursor in their middle."""
    cursor = next((number for number, item in enumerate(items) if item is chosen), 0)
    start = max(0, min(cursor - room // 2, len(items) - room))
    return items[start : start + room]


def _foot(view: View, width: int) -> str:
    if view.question is not None:
        name = "/".join(view.question.names)
        rows = backend_rows(view.snapshot)
        share = next((row.value.share for row in rows if names_of(row) == view.question.names), 0.0)
        if view.question.route == "drain":
            question = f"drain {name} and move its {percent(share)} of the clients?"
        else:
            question = f"return {name} to its configured weight?"
        return line(width, (fit(one_column(question), width - 8), "warn"), ("  y / n", "bold"))
    if view.message or view.silence:
        text, style = (view.message, "note") if view.message else (f"old data: {view.silence}", "bad")
        return line(width, (fit(one_column(text), width), style))
    return line(width, (f"↑ ↓ choose   d drain   u undrain   s sort: {view.sort.value}   q quit", "quiet"))


# The command.


_RATES_PATIENCE_S = 6.0
"""How long `--once` waits for rates: an agent samples on request, and rates need two samples."""
_RETRY_S = 0.5
_LINES_AROUND = 6
"""Lines of a frame that are not rows."""


@click.command("top")
@agent_options
@live_interval_option
@once_option
@output_option
def top_command(*, interval_s: float, once: bool) -> None:
    """Show the backends of a running agent live: states, shares, packets, and how many are in hardware.

    TARGET: share of the clients by weight. TRAFFIC: share of the packets between the last two samples of the datapath.
    IN HW: share of its packets in hardware. SINCE: how long its state has lasted.

    Keys: arrows choose, d drains the chosen backend and u undrains it (both ask first), s sorts, q quits. With
    thousands of backends the view refreshes less often, so that it takes no more than a tenth of the time.

    -o json prints one document, that of `xenoovs status -o json`, as soon as there are rates, after 6 s at most.
    """
    client = find_client()
    if once or not is_live() or not is_text():
        _print_once(client, options=options_of(client))
        return

    run_live(
        interval_s,
        View(_ask(client), options=options_of(client)),
        draw=frame,
        refresh=partial(_refreshed, client),
        press=partial(_press, client),
    )


def _refreshed(client: Client) -> Callable[[View], View]:
    """Request the status. While the agent does not answer, as during a restart, the old data stays."""
    try:
        found = _ask(client)
    except XenoovsError as error:
        silence = str(error)
        return lambda view: replace(view, silence=silence)
    return lambda view: replace(view, snapshot=found, silence="")


def _sent(client: Client, order: Order) -> Callable[[View], View]:
    service, backend = order.names
    try:
        message = str(client.ask(order.route, {"service": service, "backend": backend})["message"])
    except XenoovsError as error:
        message = str(error)
    return lambda view: replace(view, message=message)


def _press(client: Client, view: View, key: str, size: Size) -> tuple[View, Ask[View] | None] | None:
    after = pressed(view, key, page=max((size.height or 0) - _LINES_AROUND, 1))
    if after is None:
        return None
    view, order = after
    if order is None:
        return view, None
    return replace(view, message=f"{order.route} {'/'.join(order.names)} …"), partial(_sent, client, order)


def _ask(client: Client) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def _print_once(client: Client, *, options: str) -> None:
    """Print the status with rates; without them if there are none in time."""
    deadline_s = time.monotonic() + _RATES_PATIENCE_S
    while True:
        status = client.ask("status")
        snapshot = parse_snapshot(status["snapshot"])
        if any(backend.rate is not None for backend in snapshot.backends) or time.monotonic() >= deadline_s:
            break
        time.sleep(_RETRY_S)
    lines = frame(View(snapshot, options=options), once_size())
    answer(lambda: {"from": "agent", **status}, lambda: echo("\n".join(lines)))
