"""Packets through the flows of a program, without a switch: the meaning of the tables, no classifier involved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.errors import SimulateError
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Match
from xenoovs.simulate.headers import Headers, headers_of
from xenoovs.simulate.walk import Outcome, Unwatched, walk


@dataclass(frozen=True, slots=True)
class Tables:
    """Flows by table, highest priority first; build it with `tables_of`."""

    flows: dict[int, tuple[Flow, ...]]

    def lookup(self, table: int, headers: Headers) -> Flow | None:
        """The flow of highest priority that matches; of several (which OpenFlow leaves open) the first one given."""
        return next((flow for flow in self.flows.get(table, ()) if matches(flow.match, headers)), None)

    def run(self, packet: Packet | Headers) -> Outcome:
        """What becomes of a packet. Raises SimulateError for an action that this simulation does not know."""
        headers = headers_of(packet) if isinstance(packet, Packet) else packet
        return walk(headers, self.lookup, Unwatched())


def tables_of(flows: Iterable[Flow]) -> Tables:
    """Sort flows for look-ups. Raises SimulateError for a condition that this simulation does not know."""
    tables: dict[int, list[Flow]] = {}
    for flow in flows:
        check_known(flow)
        tables.setdefault(flow.table, []).append(flow)
    by_priority = {table: sorted(listed, key=lambda flow: -flow.priority) for table, listed in tables.items()}
    return Tables({table: tuple(by_priority[table]) for table in sorted(by_priority)})


def check_known(flow: Flow) -> None:
    """Raise SimulateError where a flow matches something that this simulation does not know."""
    if flow.match.foreign:
        raise SimulateError(flow=f"table {flow.table}, priority {flow.priority}", unknown=", ".join(flow.match.foreign))


def matches(match: Match, headers: Headers) -> bool:
    """Whether the packet fulfils all conditions."""
    if match.in_port is not None and match.in_port != headers.in_port:
        return False
    return all(headers.get(c.field) & c.mask == c.value for c in match.masked)
