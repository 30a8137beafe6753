"""The rows of `xenoovs top`: columns for 80 characters, and what more room is used for."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.agent.snapshot import BackendState, BackendView, ServiceView
from xenoovs.agent.words import ago, keeping, number, percent, quantity
from xenoovs.cli.top_line import Line, fit, printable
from xenoovs.cli.top_view import Row

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
_NUMBERS = (("WANTED", 7), ("SEEN", 7), ("PPS", 7), ("BPS", 7), ("NIC", 7), ("SINCE", 8))
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
    return (printable(service.name), "bold"), (f"  {printable('  '.join(told))}", "quiet")


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
        "-" if backend.since_s is None else ago(layout.now_s - backend.since_s),
    )
    name = fit(_name(row, is_flat=layout.is_flat), layout.name - 1).ljust(layout.name)
    weight = fit(_weight(backend), layout.weight - 1).rjust(layout.weight)
    numbers = weight + "".join(
        fit(cell, width - 1).rjust(width) for cell, (_, width) in zip(cells, _NUMBERS, strict=True)
    )
    bar = f"  {_bar(backend.share_wanted, row.share_seen, layout.bar)}" if layout.bar else ""
    reason = f"  {fit(printable(backend.reason), layout.reason)}" if layout.reason else ""
    return (
        (("▸ " if is_chosen else "  ") + name, "cursor" if is_chosen else "plain"),
        (state.ljust(_STATE_WIDTH), look),
        (numbers, "plain"),
        (bar, "note"),
        (reason, "quiet"),
    )


def _weight(backend: BackendView) -> str:
    used = number(backend.weight_in_use)
    return used if backend.weight == backend.weight_in_use else f"{used}/{number(backend.weight)}"


def _name(row: Row, *, is_flat: bool) -> str:
    return printable("/".join(row.names) if is_flat else row.backend.name)


def _bar(wanted: float, seen: float | None, width: int) -> str:
    """Filled as far as seen, with a mark where it should end; the whole width is all packets of the service."""
    filled = 0 if seen is None else round(seen * width)
    cells = ["█" if place < filled else "░" for place in range(width)]
    cells[min(round(wanted * width), width - 1)] = "┃"
    return "".join(cells)
