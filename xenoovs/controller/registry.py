"""The registry of connected bridges: admits expected bridges, and logs changes of their ports."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from xenoovs.controller.bridge import ExpectedBridge, is_refusal, monitor_request, touches_ours
from xenoovs.controller.connection import BridgeConnection
from xenoovs.controller.log import LogLimit, describe_error
from xenoovs.controller.session import Session
from xenoovs.errors import OpenFlowVersionDisabled
from xenoovs.log import info, warn
from xenoovs.openflow.flow import OURS
from xenoovs.openflow.wire.frame import (
    ERROR,
    HEADER,
    MULTIPART_REPLY,
    PACKET_IN,
    PORT_STATUS,
    ROLE_STATUS,
    VERSION,
    decode_error,
    name_versions,
)
from xenoovs.openflow.wire.message import Port, decode_count, encode_count_request
from xenoovs.switch.openflow import is_slave_error

_COUNT_XID = 0xFFF
"""Transaction id of the first request to a bridge, below those of exchanges (`connection.py`)."""

_RECONNECTED = "the switch has reconnected"


class Registry:
    """All connections. Gets the events of sessions, in their reading threads, and admits bridges that are expected by
    name or by name and datapath id. `claim`: called with a session and whether its bridge is expected; returns whether
    another part decides about it. `listener`: called with a connection when it begins (True) and when it is lost."""

    def __init__(self, *, is_redundant: bool = False) -> None:
        self.expected: tuple[ExpectedBridge, ...] = ()
        self._is_redundant = is_redundant
        self.target: str | None = None
        self._lock = Lock()
        self._sessions: dict[Session, tuple[ExpectedBridge, BridgeConnection]] = {}
        self.log_limit = LogLimit()
        self.claim: Callable[[Session, bool], bool] = lambda _session, _is_expected: False
        self.listener: Callable[[BridgeConnection, bool], None] = lambda _connection, _is_connected: None

    def expect(self, bridge: str, datapath_id: int | None = None) -> ExpectedBridge:
        """Admit a bridge when it connects. Returns the same value for the same bridge."""
        with self._lock:
            known = (each for each in self.expected if (each.bridge, each.datapath_id) == (bridge, datapath_id))
            expected = next(known, None)
            if expected is None:
                expected = ExpectedBridge(bridge, datapath_id, target=self.target, is_shared=self._is_redundant)
                self.expected = (*self.expected, expected)
        return expected

    @property
    def connections(self) -> tuple[BridgeConnection, ...]:
        """Return the connections in use, by the labels of their bridges."""
        by_label = sorted(self.expected, key=lambda expected: expected.label)
        return tuple(connection for expected in by_label for connection in expected.connections)

    def session_opened(self, session: Session) -> None:
        """Admit a session whose version, datapath id and ports are known, or refuse it."""
        expected = self._match(session)
        if self.claim(session, expected is not None):
            return
        if expected is None:
            labels = ", ".join(sorted(each.label for each in self.expected))
            self._refuse(session, reason=f"this controller is for {labels or 'no bridge yet'}")
            return
        if session.version != VERSION:
            spoken = name_versions(session.spoken)
            problem = OpenFlowVersionDisabled(bridge=session.name, version="OpenFlow14", spoken=spoken)
            expected.fail(problem)
            self._refuse(session, reason=str(problem))
            return
        with self._lock:
            others = {other: each for other, (theirs, each) in self._sessions.items() if theirs is expected}
            is_other = any(other.datapath_id != session.datapath_id for other in others)
            # Each session has a thread: the one that connected last need not be the last that comes here.
            is_late = any(other.accepted_s > session.accepted_s for other in others)
            if not is_other and not is_late:
                connection = BridgeConnection(session, bridge=session.name, label=expected.label)
                self._sessions = {other: pair for other, pair in self._sessions.items() if other not in others}
                self._sessions[session] = expected, connection
        if is_other:
            reason = "another bridge of this name is connected; say in the config which one: switch.datapath_id"
            self._refuse(session, reason=reason)
            return
        if is_late:
            session.refuse(_RECONNECTED)
            return
        for other, old in others.items():
            other.refuse(_RECONNECTED)
            self._lose(expected, old, _RECONNECTED)
        # Does the bridge still have flows of xenoovs? Before the answer comes the connection is not used.
        (ours,) = OURS
        session.send(encode_count_request(ours, _COUNT_XID))

    def session_received(self, session: Session, frame: bytes) -> None:
        """Process a message of an admitted bridge. Raises WireError."""
        expected, connection = self._sessions.get(session, (None, None))
        if expected is None or connection is None or connection.receive(frame):
            return
        _, kind, _, xid = HEADER.unpack_from(frame)
        if connection.generation is None and (kind, xid) == (MULTIPART_REPLY, _COUNT_XID):
            session.settle()
            self._begin(session, has_flows=decode_count(frame) > 0)
        elif kind == PORT_STATUS:
            self._compare_ports(expected, connection, session.ports)
        elif touches_ours(frame):
            if not connection.is_standby:
                expected.flows_changed.trigger()
        elif kind == ERROR and not is_refusal(frame):
            error = decode_error(frame)
            connection.is_standby = connection.is_standby or is_slave_error(error)
            self.log_limit.warn("the switch reports an error", bridge=expected.label, **describe_error(error))
        elif kind == ROLE_STATUS:
            connection.is_standby = True
            self.log_limit.warn("another controller has become master", bridge=expected.label)
        elif kind == PACKET_IN:
            expected.proxy.receive(connection, frame)

    def session_failed(self, session: Session, error: Exception) -> None:
        """Log an exception that only a fault of xenoovs raises."""
        facts = {"bridge": session.name, "peer": session.peer, "error": repr(error)}
        self.log_limit.warn("internal error; a connection is closed", **facts)

    def session_closed(self, session: Session, reason: str) -> None:
        with self._lock:
            expected, connection = self._sessions.pop(session, (None, None))
        if expected is None or connection is None:
            if not session.is_settled:
                self.log_limit.once(session.peer.rpartition(":")[0], "a connection is closed", reason=reason)
            return
        self._lose(expected, connection, reason)

    def _match(self, session: Session) -> ExpectedBridge | None:
        """Return the expected bridge; one with a datapath id comes first."""
        named = (each for each in self.expected if each.bridge == session.name)
        matching = [each for each in named if each.datapath_id in (None, session.datapath_id)]
        return max(matching, key=lambda expected: expected.datapath_id is not None, default=None)

    def _lose(self, expected: ExpectedBridge, connection: BridgeConnection, reason: str) -> None:
        is_current = expected.end(connection, reason)
        connection.hang_up(reason)
        if is_current:
            warn("bridge disconnected", bridge=expected.label, reason=reason)
            expected.wake()
            self.listener(connection, False)  # noqa: FBT003

    def _begin(self, session: Session, *, has_flows: bool) -> None:
        """Use the connection. A bridge without any flow of xenoovs has lost them, and may be another one."""
        with self._lock:
            expected, connection = self._sessions.get(session, (None, None))
            if expected is None or connection is None:
                # It has reconnected meanwhile.
                return
            if not (has_flows and expected.generation):
                expected.generation += 1
            connection.generation = expected.generation
            connection.is_standby = self._is_redundant
            expected.begin(connection)
        session.send(monitor_request())
        datapath = f"{connection.datapath_id:016x}"
        info("bridge connected", bridge=expected.label, datapath_id=datapath, peer=session.peer)
        expected.wake()
        self.listener(connection, True)  # noqa: FBT003

    def _compare_ports(self, expected: ExpectedBridge, connection: BridgeConnection, ports: tuple[Port, ...]) -> None:
        before, connection.ports = {port.name: port.is_up for port in connection.ports}, ports
        for port in ports:
            if before.get(port.name) != port.is_up:
                log, event = (info, "port up") if port.is_up else (warn, "port down")
                expected.log_port(log, event, port.name)
        for name in sorted(before.keys() - {port.name for port in ports}):
            expected.log_port(warn, "port removed", name)
        expected.wake()

    def _refuse(self, session: Session, *, reason: str) -> None:
        datapath = f"{session.datapath_id:016x}"
        facts = {"bridge": session.name, "datapath_id": datapath, "reason": reason}
        self.log_limit.once(datapath, "bridge refused", **facts)
        session.refuse(reason)
