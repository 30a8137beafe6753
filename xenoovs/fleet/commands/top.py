"""`xenoovs fleet top`: the DPUs of a fleet, live."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

import click

from xenoovs.agent.fleet_watch import FleetWatch
from xenoovs.cli.options import duration as duration_type
from xenoovs.cli.output import echo
from xenoovs.cli.top import raw_terminal
from xenoovs.cli.top_screen import Line, Size, cut, fit, one_column, text_of
from xenoovs.display import duration, percent
from xenoovs.fleet.commands.client import FleetStore, on_fleet
from xenoovs.fleet.dpus import WORST_FIRST, DpuRow, DpuState
from xenoovs.fleet.snapshot import FleetSnapshot

_WIDTH_OF_PIPES = 120
_LONGEST_S = 60.0
_GENERATION, _HW, _SEEN, _CLOCK = 10, 8, 9, 9
_MAX_NAME, _MAX_GROUPS = 32, 24
_WIDTH_FOR_GROUPS = 100
_MAX_NOTES = 24
"""So many DPUs have their notes below the table, where there is room."""
_MAX_PROBLEMS = 4
_STYLES = {DpuState.APPLIED: "good", DpuState.BEHIND: "warn"}


@dataclass(frozen=True, slots=True)
class FleetScreen:
    """What the user chose.

    Attributes:
        only: The state whose DPUs are shown; None: all.
        first: Index of the first row that is shown.
    """

    only: DpuState | None = None
    first: int = 0

    def after(self, key: str, snapshot: FleetSnapshot, *, page: int) -> FleetScreen:
        """Return the choices after a key. `page`: number of rows that are shown."""
        if key in ("f", "F"):
            counts = snapshot.counts()
            filters = [None, *(state for state in WORST_FIRST if counts[state] or state is self.only)]
            return FleetScreen(filters[(filters.index(self.only) + 1) % len(filters)])
        last = max(0, len(_chosen(snapshot, self.only)) - page)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page, "home": -last, "end": last}
        return replace(self, first=min(max(0, min(self.first, last) + steps.get(key, 0)), last))


def fleet_frame(snapshot: FleetSnapshot, screen: FleetScreen, size: Size) -> tuple[Line, ...]:
    """Return the lines from top to bottom, as `top_screen.frame`."""
    rows = _chosen(snapshot, screen.only)
    columns = _Columns.of(snapshot, rows, size.width)
    head = [*_head(snapshot, size.width), columns.titles()]
    if size.height is None:
        return tuple(cut(line, size.width) for line in (*head, *map(columns.line, rows)))
    room = max(0, size.height - len(head) - 1)
    first = min(screen.first, max(0, len(rows) - room))
    above = [*head, *map(columns.line, rows[first : first + room])][: size.height - 1]
    left = size.height - 1 - len(above)
    notes = columns.cut_notes(rows, size.width)[:left]
    blanks: list[Line] = [*notes, *[()] * (left - len(notes))]
    shown = "all" if screen.only is None else screen.only.value
    last = min(first + room, len(rows))
    foot = f"{first + 1 if rows else 0}-{last} of {len(rows)}   ↑ ↓ scroll   f filter: {shown}   q quit"
    return tuple(cut(line, size.width) for line in (*above, *blanks, ((foot, "quiet"),)))


def head_height(snapshot: FleetSnapshot) -> int:
    """Return the number of lines that are no DPU: those above the rows, and the line of keys."""
    return len(_head(snapshot, 80)) + 2


def _chosen(snapshot: FleetSnapshot, only: DpuState | None) -> list[DpuRow]:
    return [row for row in snapshot.worst_first() if only in (None, row.state)]


def _head(snapshot: FleetSnapshot, width: int) -> list[Line]:
    view, (state, style), counts = snapshot.view, snapshot.headline, snapshot.counts()
    name = "-" if view is None else one_column(view.name)
    left = f"xenoovs fleet top  {fit(name, 24)}  "
    generation = "-" if view is None else str(view.generation)
    leads = ", ".join(f"{each.database.value} {each.role.value}" for each in snapshot.servers)
    lines: list[Line] = [
        ((left, "bold"), (state, style)),
        ((f"generation {generation}   server {'leads' if snapshot.is_active else 'follows'}   {leads}", "plain"),),
        (
            (
                "   ".join(f"{counts[each]} {each.value}" for each in WORST_FIRST if counts[each])
                or "no reports of DPUs",
                "plain",
            ),
        ),
    ]
    lines += [((fit(one_column(text), width), "warn"),) for text in snapshot.roll_out]
    lines += [((fit(one_column(text), width), "bad"),) for text in snapshot.problems[:_MAX_PROBLEMS]]
    if len(snapshot.problems) > _MAX_PROBLEMS:
        lines.append(((f"{len(snapshot.problems) - _MAX_PROBLEMS} more: see `xenoovs fleet status`", "quiet"),))
    return lines


@dataclass(frozen=True, slots=True)
class _Columns:
    """The widths of the columns; `groups` is 0 without groups, and where the terminal has no room for them."""

    name: int
    groups: int
    state: int
    generation: int
    note: int

    @classmethod
    def of(cls, snapshot: FleetSnapshot, rows: Sequence[DpuRow], width: int) -> _Columns:
        name = max(5, min(_MAX_NAME, max((len(row.name) for row in rows), default=0) + 2))
        state = max((len(row.state.value) for row in rows), default=0) + 2
        is_wide = snapshot.has_groups and width >= _WIDTH_FOR_GROUPS
        groups = min(_MAX_GROUPS, max(8, *(len(_groups(row)) + 2 for row in rows))) if is_wide and rows else 0
        generation = max(_GENERATION, *(len(str(row.status.applied)) for row in rows), 0)
        numbers = generation + _HW + _SEEN + _CLOCK
        return cls(name, groups, state, generation, max(0, width - name - groups - state - numbers - 2))

    def titles(self) -> Line:
        left = "DPU".ljust(self.name) + ("GROUPS".ljust(self.groups) if self.groups else "") + "STATE".ljust(self.state)
        numbers = "GENERATION".rjust(self.generation) + "HW".rjust(_HW) + "SEEN".rjust(_SEEN) + "CLOCK".rjust(_CLOCK)
        return ((f"{left}{numbers}  NOTE", "head"),)

    def cut_notes(self, rows: Sequence[DpuRow], width: int) -> list[Line]:
        """Return the notes that the column cuts off, as paragraphs for below the table."""
        lines = list[Line]()
        for row in rows[:_MAX_NOTES]:
            note = one_column(row.note)
            if len(note) > self.note:
                lines += [(), *(((text, "plain"),) for text in wrap(f"{one_column(row.name)}: {note}", width))]
        return lines

    def line(self, row: DpuRow) -> Line:
        groups = fit(_groups(row), self.groups - 1).ljust(self.groups) if self.groups else ""
        numbers = str(row.status.applied or "-").rjust(self.generation) + percent(row.hw_share).rjust(_HW)
        return (
            (fit(one_column(row.name), self.name - 1).ljust(self.name) + groups, "plain"),
            (row.state.value.ljust(self.state), _STYLES.get(row.state, "bad")),
            (numbers + duration(row.seen_s).rjust(_SEEN), "plain"),
            (row.clock.rjust(_CLOCK), "plain" if row.is_clock_good else "warn"),
            (f"  {fit(one_column(row.note), self.note)}", "quiet"),
        )


def _groups(row: DpuRow) -> str:
    return one_column(",".join(sorted(row.groups))) or "-"


@click.command("top")
@click.option(
    "--interval",
    "interval_s",
    type=duration_type,
    metavar="TIME",
    default="2s",
    show_default=True,
    help="Time between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")
@on_fleet
def top_command(*, interval_s: float, once: bool, store: FleetStore) -> None:
    """Show the DPUs live, those in trouble first, with the servers of this host and their problems.

    Columns are those of `fleet status`; GROUPS needs a terminal of 100 columns. Notes that the column cuts off are
    below the table, if there is room.

    Keys: arrows and page keys scroll, f goes through the states that there are, q quits.
    """
    if interval_s <= 0:
        raise click.UsageError("--interval has to be above 0, such as 2s.")
    # Both databases have to answer first, or be known as unreachable.
    store.view()
    store.statuses()
    watch = FleetWatch(store.fleet, store.states, store.directory)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        for line in fleet_frame(watch.snapshot(), FleetScreen(), Size(_WIDTH_OF_PIPES)):
            echo(text_of(line))
        return
    _run(watch, interval_s)


def _run(watch: FleetWatch, interval_s: float) -> None:
    newest, screen, is_over = watch.snapshot(), FleetScreen(), threading.Event()

    def refresh() -> None:
        # What a controller would write takes long to compute, and keys must not wait for it.
        nonlocal newest
        while not is_over.wait(interval_s):
            newest = watch.snapshot()
            terminal.wake()

    with raw_terminal() as terminal:
        threading.Thread(target=refresh, daemon=True).start()
        try:
            while True:
                terminal.show(fleet_frame(newest, screen, terminal.size))
                key = terminal.key(_LONGEST_S)
                if key in ("q", "Q", "ctrl-c"):
                    return
                if key == "ctrl-z":
                    terminal.suspend()
                elif key is not None:
                    page = max((terminal.size.height or 0) - head_height(newest), 1)
                    screen = screen.after(key, newest, page=page)
        finally:
            is_over.set()
