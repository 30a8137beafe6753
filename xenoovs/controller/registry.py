"""Which bridges are connected: admits those that are expected, and reports what happens at their ports."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic

from xenoovs.controller.bridge import (
    MONITOR_XID,
    Bucket,
    Invitation,
    Place,
    full_bucket,
    monitor_request,
    take,
    touches_ours,
)
from xenoovs.controller.connection import Line
from xenoovs.controller.log import Say, Voice
from xenoovs.controller.session import Ears, Session
from xenoovs.errors import OpenFlowVersionDisabled
from xenoovs.openflow.flow import OURS
from xenoovs.openflow.wire.flow import FlowFilter
from xenoovs.openflow.wire.frame import (
    ERROR,
    HEADER,
    MULTIPART_REPLY,
    PACKET_IN,
    PORT_STATUS,
    ROLE_STATUS,
    VERSION,
    Error,
    name_versions,
)
from xenoovs.openflow.wire.message import AggregateReply, AggregateRequest, Port, decode, encode
from xenoovs.switch.openflow import error_of, is_slave_error

# What is told of strangers who are turned away: seldom, for how often they come is up to them.


COMPLAINTS, COMPLAINTS_PER_S = 20, 1 / 30
"""Of one kind that are told at once, and in the long run, whatever names, ids, ports and addresses strangers take."""

_REMEMBERED = 256
"""Peers whose refusal was told once; beyond that they are told again."""


class Complaints:
    """May be called by any thread. What is left out is counted, and told with the next one of its kind."""

    def __init__(self, voice: Voice, *, now_s: Callable[[], float] = monotonic) -> None:
        self._voice, self._now_s = voice, now_s
        self._lock = Lock()
        self._told: set[tuple[str, str]] = set()
        self._buckets: dict[str, Bucket] = {}
        self._left_out: dict[str, int] = {}

    def once(self, peer: str, event: str, **facts: object) -> None:
        """Once for each peer and reason: it comes again every few seconds."""
        complaint = (peer, str(facts["reason"]))
        with self._lock:
            if complaint in self._told:
                return
            if len(self._told) >= _REMEMBERED:
                self._told.clear()
            self._told.add(complaint)
        self.warn(event, **{"peer": peer, **facts})

    def warn(self, event: str, **facts: object) -> None:
        """As of Voice."""
        with self._lock:
            now_s = self._now_s()
            bucket = self._buckets.get(event) or full_bucket(rate=COMPLAINTS_PER_S, size=COMPLAINTS, now_s=now_s)
            self._buckets[event], may = take(bucket, now_s)
            before = self._left_out.get(event, 0)
            self._left_out[event] = 0 if may else before + 1
        if may:
            self._voice.warn(event, **facts, **({"suppressed": before} if before else {}))
        elif not before:
            self._voice.warn("strangers come faster than is told; they are turned away all the same", last=event)


# What a switch reports unasked, in words.


def describe_error(error: Error) -> dict[str, object]:
    """Name of the error and the message that it is about."""
    if len(error.refused) < 2:
        return {"error": error.name}
    kind = error.refused[1]
    return {"error": error.name, "about": _KINDS.get(kind, f"message type {kind}"), "xid": error.refused_xid}


_KINDS = {
    2: "ECHO_REQUEST",
    9: "SET_CONFIG",
    13: "PACKET_OUT",
    14: "FLOW_MOD",
    18: "MULTIPART_REQUEST",
    20: "BARRIER_REQUEST",
    24: "ROLE_REQUEST",
    28: "SET_ASYNC",
    33: "BUNDLE_CONTROL",
    34: "BUNDLE_ADD_MESSAGE",
}
"""Requests that a controller sends (OpenFlow 1.4.0, 7.1.1: enum ofp_type)."""


# The first question to a bridge that connects: does it still have flows of ours?


_XID = 0xFFF
"""Below those of exchanges (`connection.py`)."""


def memory_request() -> bytes:
    """Asks for the number of our flows. Before the answer comes nobody works on the bridge."""
    (ours,) = OURS
    return encode(AggregateRequest(FlowFilter(cookie=ours.value, cookie_mask=ours.mask)), xid=_XID)


def remembers(frame: bytes) -> bool | None:
    """Whether the bridge has flows of ours; None: this is no answer to the question. Raises WireError."""
    _, kind, _, xid = HEADER.unpack_from(frame)
    if (kind, xid) != (MULTIPART_REPLY, _XID):
        return None
    answer = decode(frame).message
    return isinstance(answer, AggregateReply) and answer.sums.flows > 0


# Who is connected: lets in the bridges that are wanted, and tells what happens at their ports.


_ANEW = "the switch has connected anew"


class Board:
    """All connections. Let in are bridges that somebody has asked for, by name or by name and datapath id."""

    def __init__(self, *, voice: Voice, is_redundant: bool = False) -> None:
        self._places: tuple[Place, ...] = ()
        self._voice, self._is_redundant = voice, is_redundant
        self.target: str | None = None
        self._lock = Lock()
        self._sessions: dict[Session, tuple[Place, Line]] = {}
        self.complaints = Complaints(voice)
        self.ears = Ears(self._open, self._hear, self._close)

    def want(self, bridge: str, datapath_id: int | None = None) -> Place:
        """Let it in when it comes. The same place for the same bridge."""
        with self._lock:
            found = next((p for p in self._places if (p.bridge, p.datapath_id) == (bridge, datapath_id)), None)
            if found is None:
                invitation = Invitation(self.target, is_redundant=self._is_redundant)
                found = Place(bridge, datapath_id, invitation=invitation)
                self._places = (*self._places, found)
        return found

    def line(self, bridge: str, *, patience_s: float = 0.0) -> Line:
        """The connection of a bridge, let in from now on. Raises SwitchUnreachable, OpenFlowVersionDisabled."""
        return self.want(bridge).connected(patience_s=patience_s)

    @property
    def lines(self) -> tuple[Line, ...]:
        """By the labels of their places."""
        return tuple(line for place in sorted(self._places, key=lambda place: place.label) for line in place.lines)

    def _open(self, session: Session) -> None:
        ports = session.port_table()
        name = next((port.name for port in ports if port.is_local), "")
        place = self._place_of(name, session.id)
        if place is None:
            mine = ", ".join(sorted(place.label for place in self._places))
            self._refuse(session, name, reason=f"this controller is for {mine or 'none yet'}")
            return
        if session.version != VERSION:
            spoken = name_versions(session.spoken)
            problem = OpenFlowVersionDisabled(bridge=name, version="OpenFlow14", spoken=spoken)
            place.fail(problem)
            self._refuse(session, name, reason=str(problem))
            return
        with self._lock:
            others = {other: line for other, (theirs, line) in self._sessions.items() if theirs is place}
            is_taken = any(other.id != session.id for other in others)
            # Each has a thread of its own: the one that came last need not be the one that is looked at last.
            is_late = any(other.accepted_s > session.accepted_s for other in others)
            if not is_taken and not is_late:
                line = Line(session, bridge=name, label=place.label, datapath_id=session.id, ports=ports)
                self._sessions = {other: of for other, of in self._sessions.items() if other not in others}
                self._sessions[session] = place, line
        if is_taken:
            reason = "another bridge of this name is connected; say in the config which one: switch.datapath_id"
            self._refuse(session, name, reason=reason)
            return
        if is_late:
            _supersede(session)
            return
        for other, old in others.items():
            _supersede(other)
            self._lose(place, old, _ANEW)
        session.send(memory_request())

    def _place_of(self, name: str, datapath_id: int) -> Place | None:
        """Whose datapath id is named goes first."""
        found = [place for place in self._places if place.takes(name, datapath_id)]
        return max(found, key=lambda place: place.datapath_id is not None, default=None)

    def _hear(self, session: Session, frame: bytes) -> None:
        place, line = self._sessions.get(session, (None, None))
        if place is None or line is None or line.hear(frame):
            return
        if line.generation is None and (remembered := remembers(frame)) is not None:
            session.settle()
            self._begin(session, remembered=remembered)
        elif frame[1] == PORT_STATUS:
            self._compare_ports(place, line, session.port_table())
        elif touches_ours(frame):
            if not line.is_standby:
                place.damper.hear()
        elif frame[1] == ERROR and HEADER.unpack_from(frame)[3] != MONITOR_XID:
            error = error_of(frame)
            line.is_standby = line.is_standby or is_slave_error(error)
            self._voice.warn("the switch reports an error", bridge=place.label, **describe_error(error))
        elif frame[1] == ROLE_STATUS:
            line.is_standby = True
            self._voice.warn("another controller has become master", bridge=place.label)
        elif frame[1] == PACKET_IN:
            place.hear_packet(line, frame)

    def _close(self, session: Session, reason: str) -> None:
        with self._lock:
            place, line = self._sessions.pop(session, (None, None))
        if place is None or line is None:
            if not session.is_settled:
                self.complaints.once(session.peer.rpartition(":")[0], "a connection is closed", reason=reason)
            return
        self._lose(place, line, reason)

    def _lose(self, place: Place, line: Line, reason: str) -> None:
        is_current = place.end(line, reason)
        line.hang_up(reason)
        if is_current:
            self._voice.warn("bridge disconnected", bridge=place.label, reason=reason)
            place.wake()

    def _begin(self, session: Session, *, remembered: bool) -> None:
        """The bridge may be worked on. One that has no flow of ours has forgotten, and may be another one."""
        with self._lock:
            place, line = self._sessions.get(session, (None, None))
            if place is None or line is None:
                # It has connected anew meanwhile.
                return
            if not (remembered and place.generation):
                place.generation += 1
            line.generation = place.generation
            line.is_standby = self._is_redundant
            place.begin(line)
        line.carrier.send(monitor_request())
        datapath = f"{line.datapath_id:016x}"
        self._voice.tell("bridge connected", bridge=place.label, datapath_id=datapath, peer=line.carrier.peer)
        place.wake()

    def _compare_ports(self, place: Place, line: Line, ports: tuple[Port, ...]) -> None:
        before, line.ports = {port.name: port.is_up for port in line.ports}, ports
        for port in ports:
            if before.get(port.name) != port.is_up:
                say = self._voice.tell if port.is_up else self._voice.warn
                self._tell_port(place, port.name, f"port {'up' if port.is_up else 'down'}", say)
        for name in sorted(before.keys() - {port.name for port in ports}):
            self._tell_port(place, name, "port removed", self._voice.warn)
        place.wake()

    def _tell_port(self, place: Place, name: str, event: str, say: Say) -> None:
        is_told, is_last = place.has_news(now_s=monotonic())
        if is_told:
            say(event, bridge=place.label, port=name)
        elif is_last:
            self._voice.warn("ports change faster than is told; they are followed all the same", bridge=place.label)

    def _refuse(self, session: Session, name: str, *, reason: str) -> None:
        datapath = f"{session.id:016x}"
        session.is_settled = True
        self.complaints.once(datapath, "bridge refused", bridge=name, datapath_id=datapath, reason=reason)
        session.abandon(reason)


def _supersede(session: Session) -> None:
    session.is_settled = True
    session.abandon(_ANEW)
