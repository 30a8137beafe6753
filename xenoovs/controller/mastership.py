"""Which of several controllers may change a bridge, and the state that the next one takes over.

The master has a lease: a flow in a table that no packet visits. Several times a second it sends a packet through it
(OFPT_PACKET_OUT), which counts there. The others read the counter. When it has stopped, one of them requests the role
of master (OpenFlow 1.4.0, 6.3.5); generation ids make the switch refuse everything from an earlier master. The lease
also holds the run-time state, so that drains, weights and pauses outlive the master.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from secrets import randbits
from struct import Struct, error
from threading import Event, Lock, Thread

from xenoovs.controller.connection import BridgeConnection, dump, may_change
from xenoovs.controller.log import surviving
from xenoovs.controller.session import XID
from xenoovs.dataclass import dataclass
from xenoovs.errors import NotEncodable, SwitchError
from xenoovs.log import info, warn
from xenoovs.openflow.flow import (
    LEASE_OWNER,
    OWNER_MASK,
    Command,
    CookieMask,
    Flow,
    FlowKey,
    FlowMod,
    Match,
    ObservedFlow,
    Resubmit,
)
from xenoovs.openflow.wire.flow import encode_flow_mod, note_action, note_of
from xenoovs.openflow.wire.frame import NO_NUMBERS
from xenoovs.openflow.wire.message import Role, decode_role, encode_packet_out, encode_role_request
from xenoovs.switch.openflow import ask

_HEAD = Struct("!IHI")
"""Header of a note: version, bytes of the holder, bytes of the state; both follow, compressed."""
_MOST_STATE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a lease. `state`: the run-time state, opaque here; empty if none was published."""

    version: int
    holder: str
    state: bytes

    def encode(self) -> bytes:
        holder, state = self.holder.encode()[:0xFFFF], zlib.compress(self.state)
        return _HEAD.pack(self.version & 0xFFFFFFFF, len(holder), len(state)) + holder + state


def decode_lease(data: bytes) -> Lease | None:
    """Return the lease in a note; None if it is something else."""
    try:
        version, holder_size, state_size = _HEAD.unpack_from(data)
        start = _HEAD.size + holder_size
        state = zlib.decompressobj().decompress(data[start : start + state_size], _MOST_STATE_BYTES)
    except (error, zlib.error):
        return None
    return Lease(version, data[_HEAD.size : start].decode(errors="replace"), state)


class Heartbeats(deque[tuple[int, int]]):
    """The last reads of a lease: its cookie, and the counter that its holder increases.

    They are counted, not seconds: while the switch is busy with a bundle, neither reads nor heartbeats get through.
    """

    def __init__(self) -> None:
        super().__init__(maxlen=MISSED_READS + 1)

    @property
    def are_over(self) -> bool:
        """Return whether the master is gone: nothing has changed between them."""
        return len(self) == self.maxlen and len(set(self)) == 1


MISSED_READS = 4
"""Together with `STEP_S` they let a standby take over within a second."""
STEP_S = 0.15
"""Time between two heartbeats, and between two reads."""

_LEASES = (CookieMask(LEASE_OWNER << 48, OWNER_MASK),)
_RELEASED = LEASE_OWNER << 48
_TABLE = 253
"""The last table that Open vSwitch does not use itself."""
_KEY = FlowKey(_TABLE, 0, Match())
_IDLE_S, _RELEASED_S = 60, 3
"""idle_timeout of a lease. The next controller may start within this time and finds the state."""
_NO_GENERATION = (1 << 64) - 1


class Mastership:
    """The role of this controller at one bridge. It has a thread until `close`. `holder`: the master, if known.
    `state`: the run-time state as last published by any controller; empty if unknown."""

    def __init__(self, label: str, connection: Callable[[], BridgeConnection | None], wake: Callable[[], None]) -> None:
        """`label`: of the bridge. `connection`: returns its connection. `wake`: called when this one is the master."""
        self.label, self._connection, self._wake = label, connection, wake
        self._cookie = _RELEASED | (randbits(47) + 1)
        self._lock, self._sending = Lock(), Lock()
        self._identity, self.holder = "", ""
        self.state, self._delivered, self._version, self._is_holder = b"", b"", 0, False
        self._adopt: Callable[[bytes], None] | None = None
        self._reads, self._is_standing_by = Heartbeats(), False
        self._closing = Event()
        self._thread = Thread(target=self._run, name="xenoovs-roles", daemon=True)
        self._thread.start()

    def share(self, identity: str, adopt: Callable[[bytes], None]) -> None:
        """Start to share the run-time state. `identity`: name of this controller for messages of the others. `adopt`:
        called in a thread with the state of another controller; returns when it is in force."""
        with self._lock:
            self._identity, self._adopt = identity, adopt
        self._send_lease()

    def publish(self, state: bytes) -> None:
        """Publish the state of this controller; a standby only stores it."""
        with self._lock:
            self._delivered = state
            if state == self.state:
                return
            self.state = state
            self._version += self._is_holder
        self._send_lease()

    @property
    def is_master(self) -> bool:
        return may_change(self._connection())

    def close(self) -> None:
        """Release the lease, so that another controller takes over at once."""
        self._closing.set()
        self._thread.join()
        self._send_lease(is_released=True)

    def _run(self) -> None:
        last = None
        while not self._closing.wait(STEP_S):
            connection = self._connection()
            if connection is not last:
                last, self._reads, self._is_standing_by = connection, Heartbeats(), False
            with surviving("roles"):
                self._deliver()
            # SwitchError: the connection ends and comes back: another connection, and another step.
            with surviving("roles"), suppress(SwitchError):
                if connection is not None:
                    self._step(connection)

    def _step(self, connection: BridgeConnection) -> None:
        observed = _read(connection)
        if not connection.is_standby:
            if observed is None:
                self._send_lease()
            connection.session.send(encode_packet_out((Resubmit(_TABLE),), bytes(60), NO_NUMBERS, xid=XID))
            return
        if observed is not None:
            self._reads.append((observed.flow.cookie, observed.packets))
        # A released lease: its holder ended normally.
        if observed is None or observed.flow.cookie == _RELEASED or self._reads.are_over:
            self._take_over(connection)
        elif observed.flow.cookie != self._cookie:
            self._stand_by(connection, _lease_of(observed))

    def _take_over(self, connection: BridgeConnection) -> None:
        _, generation = _request_role(connection, Role.NOCHANGE, 0)
        role, _ = _request_role(connection, Role.MASTER, (generation + 1) & _NO_GENERATION)
        if role is not Role.MASTER:
            return
        # From now on no other controller can change it.
        lease = _lease_of(_read(connection))
        self._follow(lease)
        with self._lock:
            self._is_holder, self.holder = True, self._identity
            self._version += lease is None or lease.state != self.state
        connection.is_standby = False
        self._send_lease()
        self._reads, self._is_standing_by = Heartbeats(), False
        info("this controller is master", bridge=self.label)
        self._wake()

    def _stand_by(self, connection: BridgeConnection, lease: Lease | None) -> None:
        with self._lock:
            self._is_holder, self.holder = False, "" if lease is None else lease.holder
        self._follow(lease)
        if self._is_standing_by:
            return
        self._is_standing_by = True
        _, generation = _request_role(connection, Role.NOCHANGE, 0)
        _request_role(connection, Role.SLAVE, 0 if generation == _NO_GENERATION else generation)
        info("another controller is master; standing by", bridge=self.label)

    def _follow(self, lease: Lease | None) -> None:
        """Adopt the state of a lease if it is newer."""
        with self._lock:
            if lease is None or lease.version <= self._version:
                return
            self._version, self.state = lease.version, lease.state or self.state
        self._deliver()

    def _deliver(self) -> None:
        """Pass the state of another controller to this one, once it can adopt it."""
        with self._lock:
            state, adopt = self.state, self._adopt
            if adopt is None or state == self._delivered:
                return
            self._delivered = state
        adopt(state)

    def _send_lease(self, *, is_released: bool = False) -> None:
        connection = self._connection()
        if connection is None or connection.is_standby:
            return
        cookie, idle_s = (_RELEASED, _RELEASED_S) if is_released else (self._cookie, _IDLE_S)
        # Two threads must not send an older state last.
        with self._sending:
            with self._lock:
                lease = Lease(self._version, "" if is_released else self._identity, self.state)
            flow = Flow(_KEY, cookie, (note_action(lease.encode()),), (f"idle_timeout={idle_s}",))
            try:
                packed = encode_flow_mod(FlowMod(Command.ADD, flow), xid=XID, ofports=NO_NUMBERS)
            except NotEncodable as problem:
                event = "the run-time state is too large to be shared with other controllers"
                warn(event, bridge=self.label, reason=str(problem))
                return
            connection.session.send(packed)


def _read(connection: BridgeConnection) -> ObservedFlow | None:
    """Return the flow of the lease on the bridge. Raises SwitchError."""
    return next(iter(dump(connection, _LEASES, table=_TABLE)), None)


def _lease_of(observed: ObservedFlow | None) -> Lease | None:
    notes = () if observed is None else filter(None, map(note_of, observed.flow.actions))
    return next(map(decode_lease, notes), None)


def _request_role(connection: BridgeConnection, role: Role, generation: int) -> tuple[Role, int]:
    """Return the new role and generation. Raises SwitchError if the switch refuses, as for a stale generation."""
    with connection.exchange() as exchange:
        reply = ask(exchange, lambda xid: encode_role_request(role, generation, xid), "ROLE_REQUEST")
        return decode_role(reply)
