"""A bridge that the controller expects: the command that makes it connect, and its state between connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from struct import Struct
from threading import Condition, Lock, Timer
from time import monotonic

from xenoovs.controller.connection import BridgeConnection, may_change
from xenoovs.controller.mastership import Mastership
from xenoovs.controller.neighbour_discovery import NeighbourProxy
from xenoovs.errors import MalformedOpenFlow, SwitchError, SwitchUnreachable
from xenoovs.log import TokenBucket, warn
from xenoovs.model.balancer import label_of
from xenoovs.openflow.flow import is_ours
from xenoovs.openflow.wire.frame import ERROR, HEADER, MULTIPART_REPLY, MULTIPART_REQUEST, message


def connect_command(bridge: str, target: str, *, db: str | None = None, is_redundant: bool = False) -> str:
    """Return the command on a bridge's host that makes it connect (ovs-vsctl(8)). `set-controller` replaces all other
    controllers, so it is not for a redundant one. `target`: such as `tcp:127.0.0.1:6653`. `db`: if ovs-vsctl needs
    it."""
    program = "ovs-vsctl" if db is None else f"ovs-vsctl --db={db}"
    if not is_redundant:
        return f"{program} set-controller {bridge} {target}"
    row = f"""create controller 'target="{target}"' connection_mode=out-of-band max_backoff=1000"""
    return f"{program} -- --id=@c {row} -- add bridge {bridge} controller @c"


PORT_EVENTS, PORT_EVENTS_PER_S = 40, 1.0
"""Port changes logged in a burst, and per second: a link that flaps must not fill the log."""


class ExpectedBridge:
    """The bridge with this name and, unless that is None, this datapath id. `generation`: changes when the bridge has
    lost its flows. `proxy`, `mastership`: have threads until `close`; the latter is None without other controllers.
    `target`, `db`: as of `connect_command`; `target` is None if a launcher listens at an unknown address."""

    def __init__(
        self, bridge: str, datapath_id: int | None = None, *, target: str | None = None, is_shared: bool = False
    ) -> None:
        self.bridge, self.datapath_id = bridge, datapath_id
        self.target = target
        self.db: str | None = None
        self.connection: BridgeConnection | None = None
        self.generation = 0
        self._problem: SwitchError | None = None
        self._lost: str | None = None
        self._changed = Condition()
        self._wake: Callable[[], None] = lambda: None
        self.flows_changed = Throttle(self.wake)
        self._port_events = TokenBucket(rate=PORT_EVENTS_PER_S, size=PORT_EVENTS, now_s=monotonic())
        self._is_limited = False
        self.proxy = NeighbourProxy(lambda: self.connection)
        self.mastership = Mastership(self.label, lambda: self.connection, self.wake) if is_shared else None

    def close(self) -> None:
        self.proxy.close()
        if self.mastership is not None:
            self.mastership.close()

    @property
    def label(self) -> str:
        """Return its unique name: `ovsbr1`, or `ovsbr1@0000c470bda056ac`."""
        return label_of(self.bridge, self.datapath_id)

    @property
    def connections(self) -> tuple[BridgeConnection, ...]:
        """Return its connection, if it has one."""
        connection = self.connection
        return () if connection is None else (connection,)

    @property
    def ports_down(self) -> frozenset[str]:
        """Return the ports without link; empty while the bridge is not connected."""
        return frozenset(port.name for each in self.connections for port in each.ports if not port.is_up)

    def on_change(self, wake: Callable[[], None]) -> None:
        """Set the function that is called, in any thread, when the bridge connects or one of its ports changes."""
        self._wake = wake

    def wait(self, *, timeout_s: float) -> None:
        """Wait until it may be changed, or is refused for its own fault, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_master or self._problem is not None, timeout_s)

    def connected(self, *, timeout_s: float = 0.0) -> BridgeConnection:
        """Return the connection. Raises SwitchUnreachable, OpenFlowVersionDisabled."""
        with self._changed:
            if timeout_s:
                # What was wrong may have been corrected: the bridge reconnects again and again.
                self._problem = None
        self.wait(timeout_s=timeout_s)
        connection = self.connection
        if connection is None:
            raise self._problem or SwitchUnreachable(target=f"bridge {self.label}", reason=self._absence())
        return connection

    def log_port(self, log: Callable[..., None], event: str, port: str) -> None:
        """Log a change of a port, or the begin of the limit."""
        may = self._port_events.take(monotonic())
        if may:
            log(event, bridge=self.label, port=port)
        elif not self._is_limited:
            warn("too many port changes to log each; all are processed", bridge=self.label)
        self._is_limited = not may

    def begin(self, connection: BridgeConnection) -> None:
        """Use a connection of the bridge."""
        self.connection, self._problem = connection, None

    def end(self, connection: BridgeConnection, reason: str) -> bool:
        """Drop a lost connection. Return whether it was the one in use."""
        is_current = self.connection is connection
        if is_current:
            self.connection, since = None, datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._lost = f"its connection was lost at {since} ({reason}); it reconnects by itself"
        return is_current

    def fail(self, problem: SwitchError) -> None:
        """Refuse the bridge for its own fault."""
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._wake()

    @property
    def is_master(self) -> bool:
        return may_change(self.connection)

    def _absence(self) -> str:
        """Return why it is absent. A bridge that was connected is configured already and needs no command."""
        if self._lost is not None:
            return self._lost
        target, where = self.target, ""
        if target is None:
            target, where = "tcp:ADDRESS:PORT", " with the address and port at which the launcher listens"
        command = connect_command(self.bridge, target, db=self.db, is_redundant=self.mastership is not None)
        return f"it has not connected; to connect it run `{command}`{where}"


# Flow monitoring: a switch reports changes of flows as they happen (OpenFlow 1.4.0, 7.3.5.16 and 7.3.5.17).
# OFPT_FLOW_REMOVED would report fewer changes, and only of flows with a flag that would show in every dump.


MONITOR_XID = 0xFFE
"""Transaction id of the request, below those of exchanges (`connection.py`). Later reports have none."""

_FLOW_MONITOR = 16
"""OFPMP_FLOW_MONITOR."""
_PART = Struct("!HH4x")
_REQUEST = Struct("!IIIHBBHH4x")
"""monitor_id, out_port, out_group, flags, table_id, command; a match of type OXM that is 4 bytes long: everything."""
_UPDATE = Struct("!HH")
_FULL = Struct("!HHBBHHH4xQ")
"""length, event, table_id, reason, idle_timeout, hard_timeout, priority, cookie."""

_ANY, _ALL_TABLES, _ADD_MONITOR, _OXM = 0xFFFFFFFF, 0xFF, 0, 1
_ADDED, _REMOVED, _MODIFIED = 1, 2, 3
"""OFPFME_*. The controller's own changes come as OFPFME_ABBREV, without a cookie."""
_REPORTED = 1 << 1 | 1 << 2 | 1 << 3
"""OFPFMF_ADD, OFPFMF_REMOVED, OFPFMF_MODIFY; not OFPFMF_INITIAL."""

_PAUSE_S = 2.0


def monitor_request() -> bytes:
    """Return the request to report all changes of flows. Open vSwitch before 3.0 refuses it (commit c3e64047d)."""
    body = _PART.pack(_FLOW_MONITOR, 0) + _REQUEST.pack(1, _ANY, _ANY, _REPORTED, _ALL_TABLES, _ADD_MONITOR, _OXM, 4)
    return message(MULTIPART_REQUEST, body, xid=MONITOR_XID)


def is_refusal(frame: bytes) -> bool:
    """Return whether an error refuses to monitor.

    Open vSwitch before 3.0 takes the bytes after the header for a header, and answers with version 1 and xid 0
    (handle_flow_monitor_request of ofproto/ofproto.c).
    """
    version, kind, _, xid = HEADER.unpack_from(frame)
    return kind == ERROR and (xid == MONITOR_XID or (version, xid) == (1, 0))


def touches_ours(frame: bytes) -> bool:
    """Return whether a message reports an external change of flows of xenoovs. Raises MalformedOpenFlow."""
    if frame[1] != MULTIPART_REPLY or len(frame) < HEADER.size + _PART.size:
        return False
    kind, _ = _PART.unpack_from(frame, HEADER.size)
    return kind == _FLOW_MONITOR and any(is_ours(cookie) for cookie in _changed(frame))


def _changed(frame: bytes) -> Iterator[int]:
    offset = HEADER.size + _PART.size
    while len(frame) - offset >= _UPDATE.size:
        length, event = _UPDATE.unpack_from(frame, offset)
        is_full = event in (_ADDED, _REMOVED, _MODIFIED)
        if not (_FULL.size if is_full else _UPDATE.size) <= length <= len(frame) - offset:
            raise MalformedOpenFlow(f"a flow update with the length {length}")
        if is_full:
            yield _FULL.unpack_from(frame, offset)[-1]
        offset += length


class Throttle:
    """Calls `act` at once, then not again for a pause: two programs that revert each other must not spin."""

    def __init__(self, act: Callable[[], None], *, pause_s: float = _PAUSE_S) -> None:
        self._act, self._pause_s = act, pause_s
        self._lock = Lock()
        self._next_s = 0.0
        self._is_waiting = False

    def trigger(self) -> None:
        with self._lock:
            if self._is_waiting:
                return
            wait_s = self._next_s - monotonic()
            self._is_waiting = wait_s > 0
        if wait_s <= 0:
            self._call()
            return
        timer = Timer(wait_s, self._call)
        timer.daemon = True
        timer.start()

    def _call(self) -> None:
        with self._lock:
            self._is_waiting = False
            self._next_s = monotonic() + self._pause_s
        self._act()
