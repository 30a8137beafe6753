"""Frames of `xenoovs top` from a snapshot and the choices of its user. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from unicodedata import east_asian_width

from xenoovs.agent.conditions import headline, keeping, troubles
from xenoovs.agent.snapshot import BackendState, BackendView, Rate, ServiceView, Snapshot, nic_share
from xenoovs.display import decimal, duration, percent, printable, quantity

# Lines of `xenoovs top`: text with the names of looks.


Span = tuple[str, str]
"""Text and the name of its look: `plain`, `bold`, `quiet`, `good`, `warn`, `bad`, `note`, `head` or `cursor`."""

Line = tuple[Span, ...]


def one_column(text: str) -> str:
    """Return the text as `printable` does, with `?` for each character that is two columns wide."""
    return "".join("?" if east_asian_width(char) in "WF" else char for char in printable(text))


def fit(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where some are left out."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def cut(line: Line, width: int) -> Line:
    """The line without what is right of the width, and without blanks at its end."""
    made, left = list[Span](), width
    for text, look in line:
        made.append((text[:left], look))
        left -= len(text[:left])
    while made and not made[-1][0].strip():
        made.pop()
    return (*made[:-1], (made[-1][0].rstrip(), made[-1][1])) if made else ()


def text_of(line: Line) -> str:
    """The line without its looks."""
    return "".join(text for text, _ in line)


# What the person at `xenoovs top` has chosen, and what a key makes of it. Pure.


Names = tuple[str, str]
"""Of a service, and of one of its backends."""


class Sort(Enum):
    """The order of the rows. `config` groups them by service; the others put all backends into one list."""

    CONFIG = "config"
    PPS = "packets/s"
    SOFTWARE = "software packets/s"
    STATE = "state"


class Task(Enum):
    """What can be asked of the agent; the value is the name of its route."""

    DRAIN = "drain"
    UNDRAIN = "undrain"


class Quit(Enum):
    """The end was asked for."""

    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class Order:
    """A task for one backend."""

    task: Task
    names: Names


@dataclass(frozen=True, slots=True)
class View:
    """`chosen`: the row under the cursor; `question`: what waits for y or n; `message`: of the last order.

    silence: why the agent does not answer now, so that what is shown is old; empty while it does.
    """

    chosen: Names | None = None
    sort: Sort = Sort.CONFIG
    question: Order | None = None
    message: str = ""
    silence: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One backend with its service."""

    service: ServiceView
    backend: BackendView

    @property
    def names(self) -> Names:
        return self.service.name, self.backend.name

    @property
    def share_seen(self) -> float | None:
        """Of the packets of its service between the last two looks, 0..1."""
        packets = sum(other.rate.pps for other in self.service.backends if other.rate is not None)
        return None if self.backend.rate is None or not packets else self.backend.rate.pps / packets

    @property
    def in_nic(self) -> float | None:
        """Of its packets, 0..1, those that the NIC forwarded."""
        return None if self.backend.rate is None else nic_share((self.backend.rate,))


_WORST_FIRST = (BackendState.DOWN, BackendState.DRAINED, BackendState.UP, BackendState.UNCHECKED)


def rows(snapshot: Snapshot, sort: Sort) -> tuple[Row, ...]:
    """All backends in the order asked for; what is equal stays in the order of the config."""
    listed = [Row(service, backend) for service in snapshot.services for backend in service.backends]
    if sort is Sort.PPS:
        listed.sort(key=lambda row: -(row.backend.rate.pps if row.backend.rate else -1.0))
    elif sort is Sort.SOFTWARE:
        listed.sort(key=lambda row: -_software_pps(row.backend.rate))
    elif sort is Sort.STATE:
        listed.sort(key=lambda row: _WORST_FIRST.index(row.backend.state))
    return tuple(listed)


def _software_pps(rate: Rate | None) -> float:
    """What the NIC has not forwarded, or may not have."""
    return -1.0 if rate is None else rate.pps - (rate.hw_pps or 0.0)


def chosen_index(view: View, listed: Sequence[Row]) -> int:
    """Where the cursor is: at the chosen backend, or at the first."""
    return next((index for index, row in enumerate(listed) if row.names == view.chosen), 0)


def pressed(view: View, key: str, snapshot: Snapshot, *, page: int = 10) -> tuple[View, Order | Quit | None]:
    """The view after a key, and what is to be done. `page`: rows that a page key moves by."""
    if view.question is not None:
        order = view.question if key in ("y", "Y") else None
        told = "" if order is not None else "nothing was changed"
        return replace(view, question=None, message=told), Quit.QUIT if key == "ctrl-c" else order
    if key in ("q", "Q", "ctrl-c"):
        return view, Quit.QUIT
    listed = rows(snapshot, view.sort)
    if key in ("s", "S"):
        order_of = tuple(Sort)
        return replace(view, sort=order_of[(order_of.index(view.sort) + 1) % len(order_of)], message=""), None
    if not listed:
        return view, None
    index = chosen_index(view, listed)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page}
    if key in steps or key in ("home", "end"):
        to = 0 if key == "home" else len(listed) - 1 if key == "end" else index + steps[key]
        return replace(view, chosen=listed[min(max(to, 0), len(listed) - 1)].names, message=""), None
    return _asked(view, key, listed[index]), None


def _asked(view: View, key: str, row: Row) -> View:
    is_drained = row.backend.state is BackendState.DRAINED
    name = "/".join(row.names)
    if key in ("d", "D"):
        if is_drained:
            return replace(view, message=f"{name} is drained already")
        return replace(view, chosen=row.names, question=Order(Task.DRAIN, row.names), message="")
    if key in ("u", "U"):
        if not is_drained and row.backend.weight == row.backend.weight_in_use:
            return replace(view, message=f"{name} has its weight of the config already")
        return replace(view, chosen=row.names, question=Order(Task.UNDRAIN, row.names), message="")
    return view


# The rows of `xenoovs top`: columns for 80 characters, and what more room is used for.


LEAST_WIDTH = 80
_BAR_WIDTH = 20
_BAR_FROM = 112
_LEAST_REASON = 12
_MOST_NAME = 40
_MARK = 2

_STATES = {
    BackendState.UP: ("up", "good"),
    BackendState.DOWN: ("down", "bad"),
    BackendState.UNCHECKED: ("not asked", "quiet"),
    BackendState.DRAINED: ("drained", "note"),
}
_STATE_WIDTH = 10
_WEIGHT, _LEAST_WEIGHT, _MOST_WEIGHT = "WEIGHT", 7, 17
_NUMBERS = (("WANTED", 7), ("SEEN", 7), ("PPS", 7), ("BPS", 7), ("NIC", 7), ("SINCE", 9))
_FIXED = _MARK + _STATE_WIDTH + sum(width for _, width in _NUMBERS)
_LEAST_NAME = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of the columns that vary; 0: not shown. `is_flat`: names with their service. `now_s`: UTC."""

    name: int
    weight: int
    bar: int
    reason: int
    is_flat: bool
    now_s: float

    def titles(self) -> Line:
        """The line above the rows."""
        text = " " * _MARK + "BACKEND".ljust(self.name) + "STATE".ljust(_STATE_WIDTH)
        text += _WEIGHT.rjust(self.weight) + "".join(title.rjust(width) for title, width in _NUMBERS)
        text += "  " + "SHARE".ljust(self.bar) if self.bar else ""
        return ((text + ("  LAST PROBE" if self.reason else ""), "head"),)


def layout_of(listed: tuple[Row, ...], width: int, *, is_flat: bool, now_s: float) -> Layout:
    """First room for weights, then for names, then for bars, then for reasons."""
    free = max(width, LEAST_WIDTH) - _FIXED
    longest_weight = max((len(_weight(row.backend)) for row in listed), default=0) + 1
    weight = min(max(longest_weight, _LEAST_WEIGHT), _MOST_WEIGHT, free - _LEAST_NAME)
    free -= weight
    bar = _BAR_WIDTH if width >= _BAR_FROM else 0
    longest = max((len(_name(row, is_flat=is_flat)) for row in listed), default=0) + 1
    name = min(max(longest, LEAST_WIDTH - _FIXED - weight), _MOST_NAME, free - (bar + 2 if bar else 0))
    reason = free - name - (bar + 2 if bar else 0) - 2
    return Layout(name, weight, bar, reason if reason >= _LEAST_REASON else 0, is_flat, now_s)


def service_line(service: ServiceView) -> Line:
    """The line above the backends of a service."""
    told = [*service.vips]
    if service.megaflows_predicted is not None:
        seen = "-" if service.megaflows_seen is None else service.megaflows_seen
        told.append(f"megaflows {seen}/{service.megaflows_predicted}")
    if service.draining:
        told.append(keeping(service.draining))
    return (one_column(service.name), "bold"), (f"  {one_column('  '.join(told))}", "quiet")


def row_line(row: Row, layout: Layout, *, is_chosen: bool) -> Line:
    """One backend."""
    backend, rate = row.backend, row.backend.rate
    state, look = _STATES[backend.state]
    cells = (
        percent(backend.share_wanted),
        percent(row.share_seen),
        quantity(None if rate is None else rate.pps),
        quantity(None if rate is None else rate.bps),
        percent(row.in_nic),
        "-" if backend.since_s is None else duration(layout.now_s - backend.since_s),
    )
    name = fit(_name(row, is_flat=layout.is_flat), layout.name - 1).ljust(layout.name)
    weight = fit(_weight(backend), layout.weight - 1).rjust(layout.weight)
    numbers = weight + "".join(
        fit(cell, width - 1).rjust(width) for cell, (_, width) in zip(cells, _NUMBERS, strict=True)
    )
    bar = f"  {_bar(backend.share_wanted, row.share_seen, layout.bar)}" if layout.bar else ""
    reason = f"  {fit(one_column(backend.reason), layout.reason)}" if layout.reason else ""
    return (
        (("▸ " if is_chosen else "  ") + name, "cursor" if is_chosen else "plain"),
        (state.ljust(_STATE_WIDTH), look),
        (numbers, "plain"),
        (bar, "note"),
        (reason, "quiet"),
    )


def _weight(backend: BackendView) -> str:
    used = decimal(backend.weight_in_use)
    return used if backend.weight == backend.weight_in_use else f"{used}/{decimal(backend.weight)}"


def _name(row: Row, *, is_flat: bool) -> str:
    return one_column("/".join(row.names) if is_flat else row.backend.name)


def _bar(wanted: float, seen: float | None, width: int) -> str:
    """Filled as far as seen, with a mark where it should end; the whole width is all packets of the service."""
    filled = 0 if seen is None else round(seen * width)
    cells = ["█" if place < filled else "░" for place in range(width)]
    cells[min(round(wanted * width), width - 1)] = "┃"
    return "".join(cells)


# One frame of `xenoovs top`, as lines of a given width and number. Pure.


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
    left = f"xenoovs top  {one_column(snapshot.bridge)}  "
    up = f"agent up {duration(snapshot.now_s - snapshot.started_s)}"
    yield (left, "bold"), (state, look), (up.rjust(width - len(left) - len(state)), "quiet")
    yield ((_totals(snapshot), "plain"),)
    for trouble, look in troubles(snapshot):
        yield ((one_column(trouble), look),)


def _totals(snapshot: Snapshot) -> str:
    backends = [backend for service in snapshot.services for backend in service.backends]
    rates = [backend.rate for backend in backends if backend.rate is not None]
    pps = sum(rate.pps for rate in rates)
    checked = [b for b in backends if b.state in (BackendState.UP, BackendState.DOWN)]
    up = sum(backend.state is BackendState.UP for backend in checked)
    in_nic = nic_share(rates)
    looked = "-" if snapshot.verified_s is None else f"{duration(snapshot.now_s - snapshot.verified_s)} ago"
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
        return ((fit(one_column(told), width - 8), "warn"), ("  y / n", "bold"))
    if view.silence and not view.message:
        return ((fit(one_column(f"what is shown is old: {view.silence}"), width), "bad"),)
    if view.message:
        return ((fit(one_column(view.message), width), "note"),)
    keys = f"↑ ↓ choose   d drain   u undrain   s sort: {view.sort.value}   q quit"
    return ((keys, "quiet"),)
