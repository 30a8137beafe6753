"""An OpenFlow flow: identity (table, priority, match) apart from content (cookie, actions)."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.openflow.action import Action
from xenoovs.openflow.match import Match

DEFAULT_PRIORITY = 0x8000
"""What ovs-ofctl leaves out of a dump (OFP_DEFAULT_PRIORITY, lib/match.c)."""

MAX_PRIORITY = 0xFFFF
MAX_TABLE = 254
"""OpenFlow 1.4.0, 7.3.4.1: priorities are 16 bits; table 255 means all tables (OFPTT_ALL)."""


@dataclass(frozen=True, slots=True)
class FlowKey:
    """What a strict flow-mod identifies a flow by (OpenFlow 1.4.0, 6.4); the cookie is not part of it."""

    table: int
    priority: int
    match: Match


@dataclass(frozen=True, slots=True)
class Flow:
    """One rule. `actions` empty: drop.

    options: timeouts, flags and importance as ovs-ofctl writes them (`idle_timeout=10`, `send_flow_rem`), in its order.
    xenoovs sets none. They are content: only adding the flow anew changes them (OpenFlow 1.4.0, 6.4).
    """

    key: FlowKey
    cookie: int
    actions: tuple[Action, ...]
    options: tuple[str, ...] = ()

    @property
    def table(self) -> int:
        return self.key.table

    @property
    def priority(self) -> int:
        return self.key.priority

    @property
    def match(self) -> Match:
        return self.key.match


@dataclass(frozen=True, slots=True)
class ObservedFlow:
    """A flow read back from a switch, with its counters. `duration_s`: since it was installed."""

    flow: Flow
    packets: int
    bytes: int
    duration_s: float
