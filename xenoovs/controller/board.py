"""Who is connected: lets in the bridges that are wanted, and tells what happens at their ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Condition

from xenoovs.controller.frames import ERROR, PACKET_IN, PORT_STATUS, ROLE_STATUS, is_answer
from xenoovs.controller.line import Line
from xenoovs.controller.monitor import MONITOR_XID, Damper, monitor_request, touches_ours
from xenoovs.controller.notices import describe_error, error_of, is_slave_error
from xenoovs.controller.opening import memory_request, remembers
from xenoovs.controller.port import Port
from xenoovs.controller.session import Ears, Session, name_versions
from xenoovs.controller.voice import Voice
from xenoovs.errors import OpenFlowVersionDisabled, SwitchError, SwitchUnreachable

_VERSION = 5
_COMPLAINTS = 256
"""Peers whose refusal was told once; beyond that they are told again."""


class Board:
    """All connections. Let in are bridges that somebody has asked for, by name.

    datapath_ids: of these alone; empty: of any. where: what `ovs-vsctl set-controller` has to be told, for messages.
    """

    def __init__(self, *, voice: Voice, datapath_ids: Iterable[int] = (), is_redundant: bool = False) -> None:
        self._wanted: set[str] = set()
        self._datapath_ids, self._voice, self._is_redundant = frozenset(datapath_ids), voice, is_redundant
        self.where = "tcp:127.0.0.1:6653"
        self._changed = Condition()
        self._sessions: dict[Session, Line] = {}
        self._ready: dict[str, Line] = {}
        self._generations: dict[str, int] = {}
        self._problems: dict[str, SwitchError] = {}
        self._told: set[tuple[str, str]] = set()
        self._wake: Callable[[], None] = lambda: None
        self._damper = Damper(self.wake)
        self._hear_packet: Callable[[Line, bytes], None] = lambda _line, _frame: None
        self.ears = Ears(self._open, self._hear, self._close)

    def on_change(self, wake: Callable[[], None]) -> None:
        """What to call, in any thread, when a bridge came or a port went up or down."""
        self._wake = wake

    def on_packet(self, hear: Callable[[Line, bytes], None]) -> None:
        """What to give packets that a bridge sends here, in its reading thread."""
        self._hear_packet = hear

    def want(self, bridge: str) -> None:
        """Let it in when it comes."""
        self._wanted.add(bridge)

    def wait_for(self, bridge: str, *, patience_s: float) -> None:
        """Until the bridge is connected, or refused for what it is, or the patience is at its end."""
        with self._changed:
            self._changed.wait_for(lambda: bridge in self._ready or bridge in self._problems, patience_s)

    def line(self, bridge: str, *, patience_s: float = 0.0) -> Line:
        """The connection of a bridge, let in from now on. Raises SwitchUnreachable, OpenFlowVersionDisabled."""
        self.want(bridge)
        with self._changed:
            if patience_s:
                # What was wrong before may be mended by now: the bridge comes again and again.
                self._problems.pop(bridge, None)
            self.wait_for(bridge, patience_s=patience_s)
            found = self._ready.get(bridge)
        if found is None:
            raise self._problems.get(bridge) or SwitchUnreachable(
                target=f"bridge {bridge}",
                reason=f"it has not connected; let it: `ovs-vsctl set-controller {bridge} {self.where}`",
            )
        return found

    def find(self, bridge: str) -> Line | None:
        """As `line`, for those who only look."""
        return self._ready.get(bridge)

    @property
    def lines(self) -> tuple[Line, ...]:
        """By the names of their bridges."""
        with self._changed:
            return tuple(self._ready[name] for name in sorted(self._ready))

    def ports_down(self, bridge: str) -> frozenset[str]:
        """Ports without link. Empty while the bridge is not connected: nothing is known then."""
        line = self._ready.get(bridge)
        return frozenset() if line is None else frozenset(port.name for port in line.ports if not port.is_up)

    def wake(self) -> None:
        """Something has changed."""
        with self._changed:
            self._changed.notify_all()
        self._wake()

    def _open(self, session: Session) -> None:
        ports = session.port_table()
        name = next((port.name for port in ports if port.is_local), "")
        if name not in self._wanted or (self._datapath_ids and session.id not in self._datapath_ids):
            mine = [*sorted(self._wanted), *(f"{number:016x}" for number in sorted(self._datapath_ids))]
            self._refuse(session, name, reason=f"this controller is for {', '.join(mine) or 'none yet'}")
            return
        if session.version != _VERSION:
            spoken = name_versions(session.spoken)
            problem = OpenFlowVersionDisabled(bridge=name, version="OpenFlow14", spoken=spoken)
            with self._changed:
                self._problems[name] = problem
                self._changed.notify_all()
            self._refuse(session, name, reason=str(problem))
            return
        with self._changed:
            others = [other for other, line in self._sessions.items() if line.bridge == name]
            is_taken = any(other.id != session.id for other in others)
            if not is_taken:
                self._sessions[session] = Line(session, bridge=name, datapath_id=session.id, ports=ports)
        if is_taken:
            self._refuse(session, name, reason="another bridge of this name is connected; name its --datapath-id")
            return
        for other in others:
            other.abandon("the switch has connected anew")
        session.send(memory_request())

    def _hear(self, session: Session, frame: bytes) -> None:
        line = self._sessions.get(session)
        if line is None or line.hear(frame):
            return
        if line.generation is None and (remembered := remembers(frame)) is not None:
            session.is_settled = True
            self._begin(line, remembered=remembered)
        elif frame[1] == PORT_STATUS:
            self._compare_ports(line, session.port_table())
        elif touches_ours(frame):
            if not line.is_standby:
                self._damper.hear()
        elif frame[1] == ERROR and not is_answer(frame, MONITOR_XID):
            error = error_of(frame)
            line.is_standby = line.is_standby or is_slave_error(error)
            self._voice.warn("the switch reports an error", bridge=line.bridge, **describe_error(error))
        elif frame[1] == ROLE_STATUS:
            line.is_standby = True
            self._voice.warn("another controller has become master", bridge=line.bridge)
        elif frame[1] == PACKET_IN:
            self._hear_packet(line, frame)

    def _close(self, session: Session, reason: str) -> None:
        with self._changed:
            line = self._sessions.pop(session, None)
            is_current = line is not None and self._ready.get(line.bridge) is line
            if line is not None and is_current:
                del self._ready[line.bridge]
        if line is None:
            if not session.is_settled:
                self._complain(session.peer.rpartition(":")[0], "a connection is closed", reason=reason)
            return
        line.hang_up(reason)
        if is_current:
            self._voice.warn("bridge disconnected", bridge=line.bridge, reason=reason)
            self.wake()

    def _begin(self, line: Line, *, remembered: bool) -> None:
        """The bridge may be worked on. One that has no flow of ours has forgotten, and may be another one."""
        last = self._generations.get(line.bridge, 0)
        line.generation = last if remembered and last else last + 1
        line.is_standby = self._is_redundant
        self._generations[line.bridge] = line.generation
        with self._changed:
            self._ready[line.bridge] = line
            self._problems.pop(line.bridge, None)
        line.carrier.send(monitor_request())
        datapath = f"{line.datapath_id:016x}"
        self._voice.tell("bridge connected", bridge=line.bridge, datapath_id=datapath, peer=line.carrier.peer)
        self.wake()

    def _compare_ports(self, line: Line, ports: tuple[Port, ...]) -> None:
        before, line.ports = {port.name: port.is_up for port in line.ports}, ports
        for port in ports:
            if before.get(port.name) != port.is_up:
                say = self._voice.tell if port.is_up else self._voice.warn
                say(f"port {'up' if port.is_up else 'down'}", bridge=line.bridge, port=port.name)
        for name in sorted(before.keys() - {port.name for port in ports}):
            self._voice.warn("port removed", bridge=line.bridge, port=name)
        self._wake()

    def _refuse(self, session: Session, name: str, *, reason: str) -> None:
        datapath = f"{session.id:016x}"
        session.is_settled = True
        self._complain(datapath, "bridge refused", bridge=name, datapath_id=datapath, reason=reason)
        session.abandon(reason)

    def _complain(self, peer: str, event: str, **facts: object) -> None:
        """Once for each peer and reason: it comes again every few seconds."""
        complaint = (peer, str(facts["reason"]))
        if complaint in self._told:
            return
        if len(self._told) >= _COMPLAINTS:
            self._told.clear()
        self._told.add(complaint)
        self._voice.warn(event, **{"peer": peer, **facts})
