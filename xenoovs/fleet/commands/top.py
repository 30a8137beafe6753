"""`xenoovs fleet top`: the DPUs of a fleet, live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import wrap

import click

from xenoovs.dataclass import dataclass, replace
from xenoovs.fleet.commands.client import FleetStore, on_fleet
from xenoovs.fleet.snapshot import DPUS, DpuRow, FleetSnapshot
from xenoovs.fleet.watch import FleetWatch
from xenoovs.show.column import Row
from xenoovs.show.screen import Layout, Size, framed, is_live, line, once_size, one_column, row_after, run_live
from xenoovs.show.terminal import fit
from xenoovs.store.view import DpuState
from xenoovs.terminal.options import live_interval_option, once_option
from xenoovs.terminal.output import echo

_MAX_NOTES = 24
"""Most DPUs whose notes are below the table, if there is room."""
_MAX_PROBLEMS = 4


@dataclass(frozen=True, slots=True)
class FleetScreen:
    """What is shown. `only`: the state whose DPUs the user has chosen; None for all. `first`: index of a row."""

    snapshot: FleetSnapshot
    only: DpuState | None = None
    first: int = 0

    def after(self, key: str, *, page: int) -> FleetScreen:
        """Return the screen after a key. `page`: number of rows that are shown."""
        if key in ("f", "F"):
            counts = self.snapshot.counts()
            filters = [None, *(state for state in DpuState if counts[state] or state is self.only)]
            return FleetScreen(self.snapshot, filters[(filters.index(self.only) + 1) % len(filters)])
        last = max(0, len(_chosen(self.snapshot, self.only)) - page)
        first = min(self.first, last)
        after = row_after(key, first, last, page=page)
        return replace(self, first=first if after is None else after)


def fleet_frame(screen: FleetScreen, size: Size) -> list[str]:
    """Return the lines from top to bottom, like `top.frame`."""
    snapshot = screen.snapshot
    rows = [Row(row, None, snapshot.now_s) for row in _chosen(snapshot, screen.only)]
    head, height = _head(snapshot, size.width), len(rows) if size.height is None else size.height
    room = max(0, height - len(head) - 2) if size.height else len(rows)
    first = min(screen.first, max(0, len(rows) - room))
    visible = rows[first : first + room]
    layout = Layout(DPUS.columns, rows, visible, size.width)
    lines = [*map(layout.line, visible)]
    if size.height:
        lines += _cut_notes(layout, rows, size.width)[: room - len(lines)]
    shown = "all" if screen.only is None else screen.only.value
    foot = f"{first + 1 if rows else 0}-{first + len(visible)} of {len(rows)}   ↑ ↓ scroll   f filter: {shown}   q quit"
    return framed([*head, layout.titles()], lines, line(size.width, (foot, "quiet")), size)


def _cut_notes(layout: Layout, rows: Sequence[Row[DpuRow]], width: int) -> list[str]:
    """Return the notes that the column cuts off, as paragraphs below the table."""
    lines = list[str]()
    for row in rows[:_MAX_NOTES]:
        if note := layout.cut(row):
            lines += ["", *wrap(f"{one_column(row.value.name)}: {note}", width)]
    return lines


def head_height(snapshot: FleetSnapshot) -> int:
    """Return the number of lines without a DPU: those above the rows, and the line of keys."""
    return len(_head(snapshot, 80)) + 2


def _chosen(snapshot: FleetSnapshot, only: DpuState | None) -> list[DpuRow]:
    return [row for row in snapshot.worst_first() if only in (None, row.state)]


def _head(snapshot: FleetSnapshot, width: int) -> list[str]:
    view, counts = snapshot.view, snapshot.counts()
    name, generation = ("-", "-") if view is None else (fit(one_column(view.name), 24), str(view.generation))
    leads = ", ".join(f"{each.database.value} {each.role.value}" for each in snapshot.servers)
    states = "   ".join(f"{counts[each]} {each.value}" for each in DpuState if counts[each])
    more = len(snapshot.problems) - _MAX_PROBLEMS
    return [
        line(width, (f"xenoovs fleet top  {name}  ", "bold"), snapshot.headline),
        line(
            width,
            (f"generation {generation}   server {'leads' if snapshot.is_active else 'follows'}   {leads}", "plain"),
        ),
        line(width, (states or "no reports of DPUs", "plain")),
        *(line(width, (fit(one_column(text), width), "warn")) for text in snapshot.roll_out),
        *(line(width, (fit(one_column(text), width), "bad")) for text in snapshot.problems[:_MAX_PROBLEMS]),
        *([line(width, (f"{more} more: see `xenoovs fleet status`", "quiet"))] if more > 0 else []),
    ]


@click.command("top")
@live_interval_option
@once_option
@on_fleet
def top_command(*, interval_s: float, once: bool, store: FleetStore) -> None:
    """Show the DPUs live, those in trouble first, with the servers of this host and their problems.

    Columns are those of `fleet status`; GROUPS needs a terminal of 100 columns. Notes that the column cuts off are
    below the table, if there is room.

    Keys: arrows and page keys scroll, f shows the DPUs of one state after the other, q quits.
    """
    # Both databases must answer first, or be known as unreachable.
    store.view()
    store.statuses()
    watch = FleetWatch(store.fleet, store.states, store.directory)
    if once or not is_live():
        for text in fleet_frame(FleetScreen(watch.snapshot()), once_size()):
            echo(text)
        return
    shown = FleetScreen(watch.snapshot())
    run_live(interval_s, shown, draw=fleet_frame, refresh=partial(_refreshed, watch), press=_press)


def _refreshed(watch: FleetWatch) -> Callable[[FleetScreen], FleetScreen]:
    # What a controller would write takes long to compute.
    found = watch.snapshot()
    return lambda screen: replace(screen, snapshot=found)


def _press(screen: FleetScreen, key: str, size: Size) -> tuple[FleetScreen, None] | None:
    page = max((size.height or 0) - head_height(screen.snapshot), 1)
    return None if key in ("q", "Q", "ctrl-c") else (screen.after(key, page=page), None)
