"""One frame of `xenoovs top`, as lines of a given width and number. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xenoovs.agent.rates import nic_share
from xenoovs.agent.snapshot import BackendState, ServiceView, Snapshot
from xenoovs.agent.standing import headline, troubles
from xenoovs.agent.words import ago, percent, quantity
from xenoovs.cli.top_line import Line, cut, fit, printable
from xenoovs.cli.top_rows import Layout, layout_of, row_line, service_line
from xenoovs.cli.top_view import Row, Sort, Task, View, chosen_index, rows


@dataclass(frozen=True, slots=True)
class Size:
    """Of the frame in characters. `height` None: as many lines as there are rows, without the line of keys."""

    width: int
    height: int | None = None


def frame(snapshot: Snapshot, view: View, size: Size) -> tuple[Line, ...]:
    """The lines from top to bottom, none longer than the width; exactly `height` of them where that is given."""
    listed = rows(snapshot, view.sort)
    layout = layout_of(listed, size.width, is_flat=view.sort is not Sort.CONFIG, now_s=snapshot.now_s)
    head = (*_head(snapshot, view, size.width), layout.titles())
    items = [*_items(listed, is_flat=layout.is_flat)]
    if size.height is None:
        return tuple(cut(line, size.width) for line in (*head, *(_line(item, layout, None) for item in items)))
    chosen = listed[chosen_index(view, listed)] if listed else None
    # Of thousands of rows only those are made that are seen.
    shown = _window(items, chosen, room=max(size.height - len(head) - 1, 0))
    above = [*head, *(_line(item, layout, chosen) for item in shown)][: size.height - 1]
    blanks: list[Line] = [()] * (size.height - 1 - len(above))
    return tuple(cut(line, size.width) for line in (*above, *blanks, _foot(view, snapshot, size.width)))


def _head(snapshot: Snapshot, view: View, width: int) -> Iterator[Line]:
    state, look = ("the agent does not answer", "bad") if view.silence else headline(snapshot)
    left = f"xenoovs top  {printable(snapshot.bridge)}  "
    up = f"agent up {ago(snapshot.now_s - snapshot.started_s)}"
    yield (left, "bold"), (state, look), (up.rjust(width - len(left) - len(state)), "quiet")
    yield ((_totals(snapshot), "plain"),)
    for trouble, look in troubles(snapshot):
        yield ((printable(trouble), look),)


def _totals(snapshot: Snapshot) -> str:
    backends = [backend for service in snapshot.services for backend in service.backends]
    rates = [backend.rate for backend in backends if backend.rate is not None]
    pps = sum(rate.pps for rate in rates)
    checked = [b for b in backends if b.state in (BackendState.UP, BackendState.DOWN)]
    up = sum(backend.state is BackendState.UP for backend in checked)
    in_nic = nic_share(rates)
    looked = "-" if snapshot.verified_s is None else f"{ago(snapshot.now_s - snapshot.verified_s)} ago"
    told = (
        f"in the NIC {percent(in_nic)}",
        f"{quantity(pps if rates else None)} pps",
        f"{quantity(sum(rate.bps for rate in rates) if rates else None)} bps",
        f"up {up}/{len(checked)}" if checked else "up -",
        f"flows {snapshot.flows}",
        f"looked {looked}",
    )
    return "   ".join(told)


def _items(listed: tuple[Row, ...], *, is_flat: bool) -> Iterator[Row | ServiceView]:
    """One for each line: backends and, where they are grouped, their services above them."""
    before: ServiceView | None = None
    for row in listed:
        if not is_flat and row.service is not before:
            before = row.service
            yield row.service
        yield row


def _line(item: Row | ServiceView, layout: Layout, chosen: Row | None) -> Line:
    return row_line(item, layout, is_chosen=item is chosen) if isinstance(item, Row) else service_line(item)


def _window(items: list[Row | ServiceView], chosen: Row | None, *, room: int) -> list[Row | ServiceView]:
    """As many as there is room for, the cursor in their middle."""
    cursor = next((number for number, item in enumerate(items) if item is chosen), 0)
    start = max(0, min(cursor - room // 2, len(items) - room))
    return items[start : start + room]


def _foot(view: View, snapshot: Snapshot, width: int) -> Line:
    if view.question is not None:
        name = "/".join(view.question.names)
        share = next(
            (row.backend.share_installed for row in rows(snapshot, view.sort) if row.names == view.question.names), 0.0
        )
        if view.question.task is Task.DRAIN:
            told = f"drain {name} and move its {percent(share)} of the clients?"
        else:
            told = f"give {name} its weight of the config again?"
        return ((fit(printable(told), width - 8), "warn"), ("  y / n", "bold"))
    if view.silence and not view.message:
        return ((fit(printable(f"what is shown is old: {view.silence}"), width), "bad"),)
    if view.message:
        return ((fit(printable(view.message), width), "note"),)
    keys = f"↑ ↓ choose   d drain   u undrain   s sort: {view.sort.value}   q quit"
    return ((keys, "quiet"),)
