"""What the clients noticed: the packets of an event, which of them had no answer, and whose backend changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from scripts.demo_fleet.network import Flow

Homes = Mapping[Flow, str]
"""The server that answered each flow last."""


@dataclass(slots=True)
class Packet:
    """A question of a client. `sent_s`: monotonic time. `server`: that answered; None: no answer."""

    sent_s: float
    flow: Flow
    server: str | None = None


@dataclass(slots=True)
class Record:
    """Follows the file that the program of the clients writes."""

    file: Path
    packets: list[Packet] = field(default_factory=list)
    _read: int = 0

    def update(self) -> None:
        """Read what came since the last call."""
        with self.file.open() as lines:
            lines.seek(self._read)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            match line.split():
                case ["s", _, sent_s, client, port]:
                    self.packets.append(Packet(float(sent_s), Flow(client, int(port))))
                case ["a", number, server]:
                    self.packets[int(number)].server = server

    def between(self, begin_s: float, end_s: float) -> list[Packet]:
        """Return the packets that were sent in a time."""
        return [packet for packet in self.packets if begin_s <= packet.sent_s < end_s]


def homes(packets: Iterable[Packet]) -> dict[Flow, str]:
    """Return which server answered each flow last."""
    return {packet.flow: packet.server for packet in packets if packet.server is not None}


def servers_of_clients(homes: Homes) -> dict[str, set[str]]:
    """Return the servers of each client: several, if its flows have several."""
    found: dict[str, set[str]] = {}
    for flow, server in homes.items():
        found.setdefault(flow.client, set()).add(server)
    return found


def clients_by_server(homes: Homes) -> Counter[str]:
    """Return how many clients each server has; a client counts at each of its servers."""
    return Counter(server for servers in servers_of_clients(homes).values() for server in servers)


def least_moves(before: Counter[str], weights: Mapping[str, int]) -> int:
    """Return how many clients must change their server, so that none has more than its weight says."""
    clients, total = before.total(), sum(weights.values())
    return ceil(sum(max(0, had - clients * weights.get(server, 0) / total) for server, had in before.items()))


@dataclass(frozen=True, slots=True)
class Row:
    """What one event did to clients.

    Attributes:
        sent, lost: Packets during the event, and those without an answer.
        lasted_s: From the first to the last lost packet.
        rerouted: Flows that another DPU forwards now.
        had_to: The least number of clients that had to get another server.
        moved: Clients that have another server now.
        flapped: Clients that meanwhile went back to a server that they had left.
        torn: Clients whose flows have several servers at the end.
    """

    event: str
    sent: int
    lost: int
    lasted_s: float
    rerouted: int
    had_to: int
    moved: int
    flapped: int
    torn: int


def row_of(event: str, packets: Sequence[Packet], *, before: Homes, after: Homes, rerouted: int, had_to: int) -> Row:
    """Return the row of an event; `before` and `after`: homes, when nothing happens."""
    lost = [packet.sent_s for packet in packets if packet.server is None]
    had, have = servers_of_clients(before), servers_of_clients(after)
    return Row(
        event,
        sent=len(packets),
        lost=len(lost),
        lasted_s=lost[-1] - lost[0] if lost else 0.0,
        rerouted=rerouted,
        had_to=had_to,
        moved=sum(servers != have.get(client) for client, servers in had.items()),
        flapped=_flapped(packets),
        torn=sum(len(servers) > 1 for servers in have.values()),
    )


def _flapped(packets: Iterable[Packet]) -> int:
    """Return how many clients changed their server more than once."""
    last, changes = dict[str, str](), Counter[str]()
    for packet in packets:
        client, server = packet.flow.client, packet.server
        if server is not None:
            changes[client] += last.setdefault(client, server) != server
            last[client] = server
    return sum(count > 1 for count in changes.values())


_WIDTHS = (-24, 6, 6, 8, 10, 8, 6, 11)
_GROUPS = f"{'packets':>36}{'flows on':>18}{'clients that moved':>25}"
_HEADS = ("event", "sent", "lost", "for", "other DPU", "had to", "did", "to and fro")


def render(rows: Iterable[Row]) -> str:
    """Return the table, 79 columns wide."""
    lines = [
        (
            *(each.event, each.sent, each.lost, f"{each.lasted_s:.2f} s", each.rerouted),
            *(each.had_to, each.moved, each.flapped),
        )
        for each in rows
    ]
    return "\n".join([_GROUPS, *map(_line, [_HEADS, *lines])])


def _line(cells: Sequence[object]) -> str:
    return "".join(
        f"{cell!s:{'<' if width < 0 else '>'}{abs(width)}}" for cell, width in zip(cells, _WIDTHS, strict=True)
    )
