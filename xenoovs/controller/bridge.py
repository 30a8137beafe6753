"""A bridge that the controller expects: how it is made to connect, and what outlives its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from struct import Struct
from threading import Condition, Lock, Timer
from time import monotonic

from xenoovs.controller.connection import Line
from xenoovs.errors import MalformedOpenFlow, SwitchError, SwitchUnreachable
from xenoovs.model.balancer import label_of
from xenoovs.openflow.flow import is_ours
from xenoovs.openflow.wire.frame import HEADER, MULTIPART_REPLY, MULTIPART_REQUEST, VERSION

# A token bucket as a value: how many things may be done at once, and how many a second.


@dataclass(frozen=True, slots=True)
class Bucket:
    """rate: tokens that come in a second. size: the most that it holds. tokens: at the time `at_s`."""

    rate: float
    size: float
    tokens: float
    at_s: float


def full_bucket(*, rate: float, size: float, now_s: float) -> Bucket:
    return Bucket(rate, size, size, now_s)


def take(bucket: Bucket, now_s: float) -> tuple[Bucket, bool]:
    """The bucket without one token, and whether it had one. A clock that goes back brings nothing."""
    tokens = min(bucket.size, bucket.tokens + bucket.rate * max(0.0, now_s - bucket.at_s))
    has_one = tokens >= 1
    return replace(bucket, tokens=tokens - has_one, at_s=max(now_s, bucket.at_s)), has_one


# How a bridge that has not come is let come: the command for whoever keeps its Open vSwitch (ovs-vsctl(8)).


@dataclass(frozen=True, slots=True)
class Invitation:
    """target: where bridges connect, such as `tcp:127.0.0.1:6653`; None: a launcher listens, and does not tell where.

    db: of the Open vSwitch of the bridge, where ovs-vsctl has to be told. is_redundant: other controllers stay.
    """

    target: str | None = None
    db: str | None = None
    is_redundant: bool = False

    def command(self, bridge: str) -> str:
        """`set-controller` puts one controller in the place of all others, so that it is not for a bridge with some."""
        program = "ovs-vsctl" if self.db is None else f"ovs-vsctl --db={self.db}"
        target = self.target or "tcp:ADDRESS:PORT"
        if not self.is_redundant:
            return f"{program} set-controller {bridge} {target}"
        row = f"""create controller 'target="{target}"' connection_mode=out-of-band max_backoff=1000"""
        return f"{program} -- --id=@c {row} -- add bridge {bridge} controller @c"

    def words(self, bridge: str) -> str:
        """The command in a sentence."""
        where = " with the address and port at which the launcher listens" if self.target is None else ""
        return f"`{self.command(bridge)}`{where}"


# Flows that others change, told by the switch as it happens (OpenFlow 1.4.0, 7.3.5.16 and 7.3.5.17: flow monitoring).
#
# OFPT_FLOW_REMOVED would tell of fewer things, and only of flows with a flag that would show in every dump.


MONITOR_XID = 0xFFE
"""Of the request, below those of exchanges (`connection.py`). What the switch tells later has none."""

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
"""OFPFME_*. Changes of our own come as OFPFME_ABBREV, without a cookie."""
_WANTED = 1 << 1 | 1 << 2 | 1 << 3
"""OFPFMF_ADD, OFPFMF_REMOVED, OFPFMF_MODIFY; not OFPFMF_INITIAL."""

_PAUSE_S = 2.0


def monitor_request() -> bytes:
    """Tell all changes of flows from now on. Open vSwitch can since 2.16; an older one refuses, and nothing is lost."""
    body = _PART.pack(_FLOW_MONITOR, 0) + _REQUEST.pack(1, _ANY, _ANY, _WANTED, _ALL_TABLES, _ADD_MONITOR, _OXM, 4)
    return HEADER.pack(VERSION, MULTIPART_REQUEST, HEADER.size + len(body), MONITOR_XID) + body


def touches_ours(frame: bytes) -> bool:
    """Whether a message tells that others changed flows of ours. Raises MalformedOpenFlow."""
    if frame[1] != MULTIPART_REPLY or len(frame) < HEADER.size + _PART.size:
        return False
    kind, _ = _PART.unpack_from(frame, HEADER.size)
    return kind == _FLOW_MONITOR and any(is_ours(cookie) for cookie in _changed(frame))


def _changed(frame: bytes) -> Iterator[int]:
    """The cookies of the flows that were changed."""
    offset = HEADER.size + _PART.size
    while len(frame) - offset >= _UPDATE.size:
        length, event = _UPDATE.unpack_from(frame, offset)
        is_full = event in (_ADDED, _REMOVED, _MODIFIED)
        if not (_FULL.size if is_full else _UPDATE.size) <= length <= len(frame) - offset:
            raise MalformedOpenFlow(f"a change of a flow that says to be {length} bytes long")
        if is_full:
            yield _FULL.unpack_from(frame, offset)[-1]
        offset += length


class Damper:
    """Calls `wake` at once, and then not again for a pause: two that undo each other's work must not spin."""

    def __init__(self, wake: Callable[[], None], *, pause_s: float = _PAUSE_S) -> None:
        self._wake, self._pause_s = wake, pause_s
        self._lock = Lock()
        self._next_s = 0.0
        self._is_waiting = False

    def hear(self) -> None:
        """Something happened. `wake` is called now, or when the pause is over."""
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
        self._wake()


# A bridge that is wanted: what of it outlives its connections, and who is told of it. One bridge knows no other.


NEWS, NEWS_PER_S = 40, 1.0
"""Changes of ports that are told at once, and in the long run: a link that flaps must not fill the log."""


class Place:
    """Of the bridge with this name and, unless that is None, this datapath id.

    invitation: how it is let come, for messages.
    line:  its connection, once it may be worked on. generation: another after the bridge had lost its flows.
    """

    def __init__(self, bridge: str, datapath_id: int | None = None, *, invitation: Invitation | None = None) -> None:
        self.bridge, self.datapath_id, self.invitation = bridge, datapath_id, invitation or Invitation()
        self.line: Line | None = None
        self.generation = 0
        self._problem: SwitchError | None = None
        self._lost: str | None = None
        self._changed = Condition()
        self._wake: Callable[[], None] = lambda: None
        self._hear_packet: Callable[[Line, bytes], None] = lambda _line, _frame: None
        self.damper = Damper(self.wake)
        self._news = full_bucket(rate=NEWS_PER_S, size=NEWS, now_s=monotonic())
        self._is_hushed = False

    @property
    def label(self) -> str:
        """What tells it from all others: `ovsbr1`, or `ovsbr1@0000c470bda056ac`."""
        return label_of(self.bridge, self.datapath_id)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its connection, if it has one."""
        line = self.line
        return () if line is None else (line,)

    @property
    def ports_down(self) -> frozenset[str]:
        """Ports without link. Empty while the bridge is not connected: nothing is known then."""
        return frozenset(port.name for line in self.lines for port in line.ports if not port.is_up)

    def takes(self, bridge: str, datapath_id: int) -> bool:
        """Whether a bridge that says this of itself is meant."""
        return bridge == self.bridge and self.datapath_id in (None, datapath_id)

    def on_change(self, wake: Callable[[], None]) -> None:
        """What to call, in any thread, when the bridge came or a port went up or down."""
        self._wake = wake

    def on_packet(self, hear: Callable[[Line, bytes], None]) -> None:
        """What to give packets that the bridge sends here, in its reading thread."""
        self._hear_packet = hear

    def hear_packet(self, line: Line, frame: bytes) -> None:
        """A packet-in came."""
        self._hear_packet(line, frame)

    def wait(self, *, patience_s: float) -> None:
        """Until it may be worked on, or is refused for what it is, or the patience is at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ours() or self._problem is not None, patience_s)

    def connected(self, *, patience_s: float = 0.0) -> Line:
        """The connection. Raises SwitchUnreachable, OpenFlowVersionDisabled."""
        with self._changed:
            if patience_s:
                # What was wrong before may be mended by now: the bridge comes again and again.
                self._problem = None
        self.wait(patience_s=patience_s)
        line = self.line
        if line is None:
            raise self._problem or SwitchUnreachable(target=f"bridge {self.label}", reason=self._absence())
        return line

    def has_news(self, *, now_s: float) -> tuple[bool, bool]:
        """A port has changed: whether to tell it, and whether to tell instead that no more are told for now."""
        self._news, may = take(self._news, now_s)
        was_hushed, self._is_hushed = self._is_hushed, not may
        return may, not may and not was_hushed

    def begin(self, line: Line) -> None:
        """It has connected, and may be worked on."""
        self.line, self._problem = line, None

    def end(self, line: Line, reason: str) -> bool:
        """A connection is lost. Whether it was the one in use."""
        is_current = self.line is line
        if is_current:
            self.line, since = None, datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._lost = f"it was connected, and is lost since {since} ({reason}); it connects again by itself"
        return is_current

    def fail(self, problem: SwitchError) -> None:
        """It cannot be worked on because of what it is."""
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def wake(self) -> None:
        """Something has changed."""
        with self._changed:
            self._changed.notify_all()
        self._wake()

    def _absence(self) -> str:
        """Whoever was here knows the way: nobody has to be told to let it come."""
        return self._lost or f"it has not connected; let it: {self.invitation.words(self.bridge)}"

    def _is_ours(self) -> bool:
        return self.line is not None and not self.line.is_standby
