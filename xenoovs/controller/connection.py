"""The connection to one bridge: requests and their answers, flows, and bundles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock, RLock

from xenoovs.controller.session import Session
from xenoovs.datapath.database import BridgeState
from xenoovs.display import span
from xenoovs.errors import MalformedOpenFlow, NotEncodable, StandingBy, SwitchUnreachable, WireError
from xenoovs.openflow.flow import Bundle, Cookies, ObservedFlow
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.message import ALL_TABLES, names_of, numbers_of
from xenoovs.switch import openflow
from xenoovs.switch.stderr import rejected

_FIRST_XID = 0x1000
_LAST_XID = 0x7FFFFFFF


class ConnectionExchange:
    """Implements `Exchange` of switch/openflow. It gets all messages with its transaction ids."""

    def __init__(self, connection: BridgeConnection, first_xid: int) -> None:
        self._connection, self._first, self._next = connection, first_xid, first_xid
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()

    @property
    def bridge(self) -> str:
        return self._connection.bridge

    def take_xids(self, number: int) -> int:
        self._next += number
        return self._next - number

    def send(self, data: bytes) -> None:
        if not self._connection.session.send(data):
            raise self._connection.lost()

    def receive(self, *, timeout_s: float) -> bytes:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except Empty:
            reason = f"no answer within {span(timeout_s)}; is ovs-vswitchd busy or hung?"
            raise self._connection.unreachable(reason) from None
        if answer is None:
            raise self._connection.lost()
        return answer

    def offer(self, frame: bytes | None) -> bool:
        """Return whether the message has a transaction id of this exchange. `frame`: None if the connection is lost."""
        if frame is not None and not self._first <= HEADER.unpack_from(frame)[3] < self._next:
            return False
        self._answers.put(frame)
        return True


class BridgeConnection:
    """One connected bridge. `label`: its unique name, for messages (`ExpectedBridge.label`). `generation`: changes when
    the bridge has lost its flows; None until that is known. `is_here`: whether it is of this host; None if not checked
    yet. `host_view`: the host's bridges, as `ControllerSwitch` last read them, after the connected bridges and ports
    for which they are valid."""

    def __init__(self, session: Session, *, bridge: str, label: str) -> None:
        self.session, self.bridge, self.label = session, bridge, label
        self.datapath_id, self.ports = session.datapath_id, session.ports
        self.generation: int | None = None
        self.is_standby = False
        self.is_here: bool | None = None
        self.host_view: tuple[tuple[object, ...], tuple[BridgeState, ...]] | None = None
        self._turn = RLock()
        self._state = Lock()
        self._next_xid = _FIRST_XID
        self._exchange: ConnectionExchange | None = None
        self._end: str | None = None

    @contextmanager
    def exchange(self) -> Iterator[ConnectionExchange]:
        """Yield an exchange for requests; other exchanges wait. Raises SwitchUnreachable, MalformedOpenFlow."""
        with self._turn, self.well_formed():
            exchange = ConnectionExchange(self, self._next_xid)
            with self._state:
                if self._end is not None:
                    raise self.lost()
                self._exchange = exchange
            try:
                yield exchange
            finally:
                with self._state:
                    self._exchange = None
                    self._next_xid = exchange.take_xids(1)
                    if self._next_xid > _LAST_XID:
                        self._next_xid = _FIRST_XID

    @contextmanager
    def well_formed(self) -> Iterator[None]:
        """End the connection if its answers are no OpenFlow. Raises MalformedOpenFlow."""
        try:
            yield
        except WireError as error:
            self.session.abandon(f"malformed OpenFlow: {error}")
            raise MalformedOpenFlow(f"bridge {self.bridge}: {error}") from None

    def receive(self, frame: bytes) -> bool:
        """Return whether an exchange was waiting for this message."""
        with self._state:
            return self._exchange is not None and self._exchange.offer(frame)

    def hang_up(self, reason: str) -> None:
        """End a lost connection."""
        with self._state:
            self._end = reason
            if self._exchange is not None:
                self._exchange.offer(None)

    def lost(self) -> SwitchUnreachable:
        """Return the error for a lost connection. The tables may have changed, but only as a whole."""
        return self.unreachable(f"the connection is lost ({self._end or 'the switch reads nothing'}); it reconnects")

    def unreachable(self, reason: str) -> SwitchUnreachable:
        return SwitchUnreachable(target=f"bridge {self.label} ({self.session.peer})", reason=reason)

    @property
    def names(self) -> dict[int, str]:
        return names_of(self.ports)

    @property
    def numbers(self) -> dict[str, int]:
        """Return port numbers by the names that flows use."""
        return numbers_of(self.ports)


def may_change(connection: BridgeConnection | None) -> bool:
    """Return whether a bridge is connected and this controller may change it."""
    return connection is not None and not connection.is_standby


def dump(connection: BridgeConnection, only: Cookies, *, table: int = ALL_TABLES) -> tuple[ObservedFlow, ...]:
    """Return the flows with these cookies and their counters. Raises SwitchUnreachable, MalformedOpenFlow."""
    with connection.exchange() as exchange:
        frames = openflow.request_flows(exchange, only, table=table)
    # Decoding thousands of flows takes long; other threads may use the connection meanwhile.
    with connection.well_formed():
        return openflow.decode_flows(frames, connection.names)


def send_bundle(connection: BridgeConnection, bundle: Bundle) -> None:
    """Apply all flow-mods or none. Raises BundleRejected, StandingBy, SwitchUnreachable, MalformedOpenFlow.

    After SwitchUnreachable read the tables again: all or nothing was changed.
    """
    numbers = connection.numbers
    try:
        with connection.exchange() as exchange:
            openflow.send_bundle(exchange, openflow.with_groups(exchange, bundle, ofports=numbers), ofports=numbers)
    except StandingBy:
        connection.is_standby = True
        raise
    except NotEncodable as unknown:
        raise rejected(connection.bridge, None, str(unknown)) from None
