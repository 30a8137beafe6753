"""Frames of `xenoovs top` from a snapshot and the choices of its user. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from unicodedata import east_asian_width

from xenoovs.agent.rows import BackendRow, backend_rows, remote_rows, service_facts, totals_of
from xenoovs.display import duration, printable
from xenoovs.errors import counted
from xenoovs.show.agent import BackendState, ServiceView, Snapshot
from xenoovs.show.conditions import addressed, headline, troubles
from xenoovs.show.paths import PathState

# Lines: text with the names of styles.


Span = tuple[str, str]
"""Text and the name of its style: `plain`, `bold`, `quiet`, `good`, `warn`, `bad`, `note`, `head` or `cursor`."""

Line = tuple[Span, ...]


def one_column(text: str) -> str:
    """Return the text as `printable` does, with `?` for each character that is two columns wide."""
    return "".join("?" if east_asian_width(char) in "WF" else char for char in printable(text))


def fit(text: str, width: int) -> str:
    """Return at most `width` characters, with an ellipsis in place of further ones."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def cut(line: Line, width: int) -> Line:
    """Return the line up to the width, without blanks at its end."""
    made, left = list[Span](), width
    for text, style in line:
        made.append((text[:left], style))
        left -= len(text[:left])
    while made and not made[-1][0].strip():
        made.pop()
    return (*made[:-1], (made[-1][0].rstrip(), made[-1][1])) if made else ()


def text_of(line: Line) -> str:
    """Return the line without its styles."""
    return "".join(text for text, _ in line)


# What the user has chosen, and what a key does.


Item = BackendRow | ServiceView
"""What has a line of its own."""

Names = tuple[str, str]
"""A service and one of its backends."""


class Sort(Enum):
    """The order of the rows. `config` groups them by service; the other orders make one list of all backends."""

    CONFIG = "config"
    PPS = "packets/s"
    SOFTWARE = "software packets/s"
    STATE = "state"


class Task(Enum):
    """A change that the agent is asked for; the value is the name of its route."""

    DRAIN = "drain"
    RESET = "reset"


class Quit(Enum):
    """The user quits."""

    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class Order:
    """A task for one backend."""

    task: Task
    names: Names


@dataclass(frozen=True, slots=True)
class View:
    """What the user sees beside the snapshot.

    Attributes:
        chosen: The row under the cursor.
        sort: The order of the rows.
        question: An order that waits for y or n.
        message: Result of the last order.
        silence: Why the agent does not answer, so that the snapshot is old; empty while it answers.
        options: What suggested commands need to reach the agent, after a space.
    """

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


def sorted_rows(snapshot: Snapshot, sort: Sort) -> tuple[BackendRow, ...]:
    """Return all backends in the order asked for; equal ones stay in the order of the config."""
    listed = [*backend_rows(snapshot)]
    if sort is Sort.PPS:
        listed.sort(key=lambda row: -(row.backend.rate.pps if row.backend.rate else -1.0))
    elif sort is Sort.SOFTWARE:
        listed.sort(key=lambda row: -row.software_pps)
    elif sort is Sort.STATE:
        listed.sort(key=lambda row: _WORST_FIRST.index(row.backend.state))
    return tuple(listed)


def chosen_index(view: View, listed: Sequence[BackendRow]) -> int:
    """Return the index of the row under the cursor: the chosen backend, or the first one."""
    return next((index for index, row in enumerate(listed) if row.names == view.chosen), 0)


def pressed(view: View, key: str, snapshot: Snapshot, *, page: int = 10) -> tuple[View, Order | Quit | None]:
    """Return the view after a key, and what to do. `page`: number of rows that a page key moves by."""
    if view.question is not None:
        order = view.question if key in ("y", "Y") else None
        message = "" if order is not None else "nothing was changed"
        return replace(view, question=None, message=message), Quit.QUIT if key == "ctrl-c" else order
    if key in ("q", "Q", "ctrl-c"):
        return view, Quit.QUIT
    listed = sorted_rows(snapshot, view.sort)
    if key in ("s", "S"):
        orders = tuple(Sort)
        return replace(view, sort=orders[(orders.index(view.sort) + 1) % len(orders)], message=""), None
    if not listed:
        return view, None
    index = chosen_index(view, listed)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page}
    if key in steps or key in ("home", "end"):
        to = 0 if key == "home" else len(listed) - 1 if key == "end" else index + steps[key]
        return replace(view, chosen=listed[min(max(to, 0), len(listed) - 1)].names, message=""), None
    return _asked(view, key, listed[index]), None


_AWAY = {BackendState.DRAINED: "drained", BackendState.MAINTENANCE: "in maintenance"}


def _asked(view: View, key: str, row: BackendRow) -> View:
    is_away = row.backend.state in _AWAY
    name = "/".join(row.names)
    if key in ("d", "D"):
        if is_away:
            return replace(view, message=f"{name} is already {_AWAY[row.backend.state]}")
        return replace(view, chosen=row.names, question=Order(Task.DRAIN, row.names), message="")
    if key in ("u", "U"):
        if not is_away and row.backend.weight == row.backend.weight_in_use:
            return replace(view, message=f"{name} already has its weight of the config")
        return replace(view, chosen=row.names, question=Order(Task.RESET, row.names), message="")
    return view


# Rows: columns for 80 characters, and more in more room.


MIN_WIDTH = 80
_MAX_REMOTES = 6
"""Remotes of tunnels that are shown; a line says how many more there are."""
_BAR_WIDTH = 20
_BAR_FROM = 112
_MIN_REASON = 12
_MAX_NAME = 40
_MARK = 2

_STYLES = {
    BackendState.UP: "good",
    BackendState.DOWN: "bad",
    BackendState.UNCHECKED: "quiet",
    BackendState.DRAINED: "note",
    BackendState.MAINTENANCE: "note",
}
_STATE_WIDTH = 12
_WEIGHT, _MIN_WEIGHT, _MAX_WEIGHT = "WEIGHT", 7, 17
_NUMBERS = (("TARGET", 7), ("TRAFFIC", 8), ("PPS", 6), ("BPS", 6), ("IN HW", 7), ("SINCE", 9))
_FIXED = _MARK + _STATE_WIDTH + sum(width for _, width in _NUMBERS)
_MIN_NAME = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of the columns that vary; 0: not shown. `is_flat`: names include the service."""

    name: int
    weight: int
    bar: int
    reason: int
    is_flat: bool

    def titles(self) -> Line:
        """Return the line above the rows."""
        text = " " * _MARK + "BACKEND".ljust(self.name) + "STATE".ljust(_STATE_WIDTH)
        text += _WEIGHT.rjust(self.weight) + "".join(title.rjust(width) for title, width in _NUMBERS)
        text += "  " + "TRAFFIC | TARGET".ljust(self.bar) if self.bar else ""
        return ((text + ("  LAST PROBE" if self.reason else ""), "head"),)


def layout_of(listed: tuple[BackendRow, ...], width: int, *, is_flat: bool) -> Layout:
    """Return the widths: room goes to weights first, then to names, bars and reasons."""
    free = max(width, MIN_WIDTH) - _FIXED
    longest_weight = max((len(row.weight) for row in listed), default=0) + 1
    weight = min(max(longest_weight, _MIN_WEIGHT), _MAX_WEIGHT, free - _MIN_NAME)
    free -= weight
    bar = _BAR_WIDTH if width >= _BAR_FROM else 0
    longest = max((len(_name(row, is_flat=is_flat)) for row in listed), default=0) + 1
    name = min(max(longest, MIN_WIDTH - _FIXED - weight), _MAX_NAME, free - (bar + 2 if bar else 0))
    reason = free - name - (bar + 2 if bar else 0) - 2
    return Layout(name, weight, bar, reason if reason >= _MIN_REASON else 0, is_flat)


def service_line(service: ServiceView) -> Line:
    """Return the line above the backends of a service."""
    facts = "  ".join((*service.vips, *service_facts(service)))
    return (one_column(service.name), "bold"), (f"  {one_column(facts)}", "quiet")


def row_line(row: BackendRow, layout: Layout, *, is_chosen: bool) -> Line:
    """Return the line of a backend."""
    cells = (row.target, row.traffic, row.pps, row.bps, row.in_hw, row.since)
    name = fit(_name(row, is_flat=layout.is_flat), layout.name - 1).ljust(layout.name)
    numbers = fit(row.weight, layout.weight - 1).rjust(layout.weight) + "".join(
        fit(cell, width - 1).rjust(width) for cell, (_, width) in zip(cells, _NUMBERS, strict=True)
    )
    bar = f"  {_bar(row.backend.target_share, row.traffic_share, layout.bar)}" if layout.bar else ""
    probe = row.probe if row.backend.reason else ""
    reason = f"  {fit(one_column(probe), layout.reason)}" if layout.reason else ""
    return (
        (("▸ " if is_chosen else "  ") + name, "cursor" if is_chosen else "plain"),
        (fit(row.state, _STATE_WIDTH - 1).ljust(_STATE_WIDTH), _STYLES[row.backend.state]),
        (numbers, "plain"),
        (bar, "note"),
        (reason, "quiet"),
    )


def _name(row: BackendRow, *, is_flat: bool) -> str:
    return one_column("/".join(row.names) if is_flat else row.backend.name)


def _bar(target: float, traffic: float | None, width: int) -> str:
    """Return a bar that is filled to the share of the traffic and has a mark at the target."""
    filled = 0 if traffic is None else round(traffic * width)
    cells = ["█" if place < filled else "░" for place in range(width)]
    cells[min(round(target * width), width - 1)] = "┃"
    return "".join(cells)


# One frame, as lines of a given width and number.


@dataclass(frozen=True, slots=True)
class Size:
    """Of a frame, in characters. `height` None: as many lines as there are rows, without the line of keys."""

    width: int
    height: int | None = None


def frame(snapshot: Snapshot, view: View, size: Size) -> tuple[Line, ...]:
    """Return the lines from top to bottom, none longer than the width, and exactly `height` lines if that is set."""
    listed = sorted_rows(snapshot, view.sort)
    layout = layout_of(listed, size.width, is_flat=view.sort is not Sort.CONFIG)
    head = (*_head(snapshot, view, size.width), layout.titles())
    items = [*_items(listed, is_flat=layout.is_flat)]
    if size.height is None:
        return tuple(cut(line, size.width) for line in (*head, *(_line(item, layout, None) for item in items)))
    chosen = listed[chosen_index(view, listed)] if listed else None
    # With thousands of rows only the visible lines are made.
    shown = _window(items, chosen, room=max(size.height - len(head) - 1, 0))
    above = [*head, *(_line(item, layout, chosen) for item in shown)][: size.height - 1]
    blanks: list[Line] = [()] * (size.height - 1 - len(above))
    return tuple(cut(line, size.width) for line in (*above, *blanks, _foot(view, snapshot, size.width)))


def _head(snapshot: Snapshot, view: View, width: int) -> Iterator[Line]:
    state, style = ("the agent does not answer", "bad") if view.silence else headline(snapshot)
    left = f"xenoovs top  {one_column(snapshot.bridge)}  "
    up = f"agent up {duration(snapshot.now_s - snapshot.started_s)}"
    yield (left, "bold"), (state, style), (up.rjust(width - len(left) - len(state)), "quiet")
    yield ((_totals(snapshot), "plain"),)
    remotes = [*remote_rows(snapshot)]
    for row in remotes[:_MAX_REMOTES]:
        text = (
            f"{row.name}  {row.state}, {row.paths} paths good, blocks {row.blocks}, {row.moves} moves  {row.last_move}"
        )
        yield ((one_column(text), "plain" if row.state == PathState.GOOD.value else "warn"),)
    if len(remotes) > _MAX_REMOTES:
        more = f"{counted(len(remotes) - _MAX_REMOTES, 'more remote')}: see `xenoovs paths list`"
        yield ((one_column(addressed(more, view.options)), "quiet"),)
    for text, how in troubles(snapshot):
        yield ((one_column(addressed(text, view.options)), how),)


def _totals(snapshot: Snapshot) -> str:
    totals = totals_of(snapshot)
    facts = (
        f"{totals.in_hw} in hardware",
        f"{totals.pps} pps",
        f"{totals.bps} bps",
        f"{totals.up} up",
        f"{snapshot.flows} flows",
        "no sample yet" if snapshot.sampled_s is None else f"sampled {totals.sampled} ago",
    )
    return "   ".join(facts)


def _items(listed: tuple[BackendRow, ...], *, is_flat: bool) -> Iterator[Item]:
    """Yield an item for each line: backends and, where they are grouped, their services above them."""
    before: ServiceView | None = None
    for row in listed:
        if not is_flat and row.service is not before:
            before = row.service
            yield row.service
        yield row


def _line(item: Item, layout: Layout, chosen: BackendRow | None) -> Line:
    return row_line(item, layout, is_chosen=item is chosen) if isinstance(item, BackendRow) else service_line(item)


def _window(items: list[Item], chosen: BackendRow | None, *, room: int) -> list[Item]:
    """Return as many items as there is room for, with the cursor in their middle."""
    cursor = next((number for number, item in enumerate(items) if item is chosen), 0)
    start = max(0, min(cursor - room // 2, len(items) - room))
    return items[start : start + room]


def _foot(view: View, snapshot: Snapshot, width: int) -> Line:
    if view.question is not None:
        name = "/".join(view.question.names)
        share = next((row.share for row in backend_rows(snapshot) if row.names == view.question.names), "0%")
        if view.question.task is Task.DRAIN:
            question = f"drain {name} and move its {share} of the clients?"
        else:
            question = f"return {name} to its weight of the config?"
        return ((fit(one_column(question), width - 8), "warn"), ("  y / n", "bold"))
    if view.silence and not view.message:
        return ((fit(one_column(f"old data: {view.silence}"), width), "bad"),)
    if view.message:
        return ((fit(one_column(view.message), width), "note"),)
    keys = f"↑ ↓ choose   d drain   u undrain   s sort: {view.sort.value}   q quit"
    return ((keys, "quiet"),)
