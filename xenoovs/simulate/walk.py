"""One packet's way through the tables: executes actions, asks a look-up for the flows, tells an observer what it does.

Semantics: OpenFlow 1.4.0, 5; ovs-actions(7); ofproto/ofproto-dpif-xlate.c for what happens at the edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from xenoovs.errors import SimulateError
from xenoovs.openflow.action import Action, Foreign, Learn, Move, Normal, Output, OutputInPort, Resubmit, SetField
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.simulate.headers import Headers
from xenoovs.simulate.learn import learned_flow

Lookup = Callable[[int, Headers], Flow | None]
"""(table, headers) -> the flow that the packet meets there, or None."""

MAX_DEPTH = 64
MAX_RESUBMITS = MAX_DEPTH * MAX_DEPTH
"""Beyond these OVS drops the packet (ofproto/ofproto-dpif-xlate.c)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the packet that left. `port`: None where the switch's MAC learning decides (NORMAL)."""

    port: str | None
    headers: Headers

    @property
    def dl_src(self) -> int:
        return self.headers.get(Field.DL_SRC)

    @property
    def dl_dst(self) -> int:
        return self.headers.get(Field.DL_DST)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a packet. `copies` empty: dropped. `flows`: those it met, in order.

    learned: flows that the switch adds because of it, unless it has them; their ports are told by number.
    """

    copies: tuple[Copy, ...]
    flows: tuple[Flow, ...]
    learned: tuple[Flow, ...] = ()


class Observer(Protocol):
    """Is told what decides over the packet."""

    def touched(self, touched: Field) -> None:
        """An action read or wrote the whole of this field."""

    def sent(self, copy: Copy) -> None:
        """A copy leaves now."""


class Unwatched:
    """An observer that looks away."""

    def touched(self, touched: Field) -> None: ...

    def sent(self, copy: Copy) -> None: ...


class _TooDeep(Exception):
    pass


@dataclass(slots=True)
class _Walk:
    lookup: Lookup
    observer: Observer
    headers: Headers
    copies: list[Copy] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    learned: list[Flow] = field(default_factory=list)

    def enter(self, table: int, depth: int) -> None:
        if depth > MAX_DEPTH or len(self.flows) > MAX_RESUBMITS:
            raise _TooDeep
        flow = self.lookup(table, self.headers)
        if flow is None:
            return
        self.flows.append(flow)
        for action in flow.actions:
            self.execute(action, flow, depth)

    def execute(self, action: Action, flow: Flow, depth: int) -> None:
        match action:
            case Output(port):
                # OpenFlow 1.4.0, 7.2.1: a packet goes back to its ingress port by IN_PORT only.
                if port != self.headers.in_port:
                    self.send(port)
            case OutputInPort():
                self.send(self.headers.in_port)
            case Normal():
                self.observer.touched(Field.DL_SRC)
                self.observer.touched(Field.DL_DST)
                self.send(None)
            case SetField(target, value):
                self.set(target, value)
            case Move(source, target):
                if self.headers.has(source) and self.headers.has(target):
                    self.observer.touched(source)
                    self.set(target, self.headers.get(source))
            case Resubmit(table):
                self.enter(table, depth + 1)
            case Learn():
                self.learned.append(learned_flow(action, self.headers))
            case Foreign(text):
                raise SimulateError(flow=f"table {flow.table}, priority {flow.priority}", unknown=text)
            case _:
                assert_never(action)

    def send(self, port: str | None) -> None:
        copy = Copy(port, self.headers)
        self.copies.append(copy)
        self.observer.sent(copy)

    def set(self, target: Field, value: int) -> None:
        if self.headers.has(target):
            self.observer.touched(target)
            self.headers = self.headers.with_value(target, value)


def walk(headers: Headers, lookup: Lookup, observer: Observer) -> Outcome:
    """Send a packet into table 0. Raises SimulateError for an action that this simulation does not know."""
    state = _Walk(lookup, observer, headers)
    try:
        state.enter(0, 0)
    except _TooDeep:
        return Outcome((), tuple(state.flows))
    return Outcome(tuple(state.copies), tuple(state.flows), tuple(state.learned))
