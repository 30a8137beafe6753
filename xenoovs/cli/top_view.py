"""What the person at `xenoovs top` has chosen, and what a key makes of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from xenoovs.agent.rates import nic_share
from xenoovs.agent.snapshot import BackendState, BackendView, Rate, ServiceView, Snapshot

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
