"""A connection of one switch: version negotiation, datapath id and ports, echoes, and a bounded handshake."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from socket import SHUT_RDWR
from struct import Struct
from threading import Lock
from time import monotonic
from typing import Protocol

from xenoovs.display import span
from xenoovs.errors import MalformedOpenFlow, WireError
from xenoovs.openflow.wire.frame import (
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    FEATURES_REPLY,
    FEATURES_REQUEST,
    HEADER,
    HELLO,
    LOCAL_NUMBER,
    MULTIPART_REPLY,
    MULTIPART_REQUEST,
    PORT_STATUS,
    VERSION,
    Frames,
    decode_error,
    decode_hello,
    encode_hello,
    message,
    name_versions,
)
from xenoovs.openflow.wire.message import (
    Port,
    PortReason,
    decode_features,
    decode_port_status,
    decode_ports,
    encode_ports_request,
    has_more,
)

# Bridges that lack OpenFlow 1.4: their datapath id and name are read, so that the refusal can name them.


_OLD_10, _OLD_13 = 0x01, 0x04
OFFERED = (_OLD_10, _OLD_13, VERSION)

_OLD_FEATURES = {_OLD_10: 32, _OLD_13: 32}
"""Length of a features reply without ports (OpenFlow 1.0.0, 5.3.1; OpenFlow 1.3.0, A.3.1)."""
_OLD_PORT = {_OLD_10: Struct("!H6x16s24x"), _OLD_13: Struct("!I4x6x2x16s32x")}
"""Number and name of a port (OpenFlow 1.0.0, 5.2.1; OpenFlow 1.3.0, A.2.1)."""
_OLD_LOCAL = {_OLD_10: 0xFFFE, _OLD_13: LOCAL_NUMBER}
_MULTIPART_SIZE = 8


def old_name(ports: bytes, version: int) -> str:
    """Return the name of the local port in a list of ports of OpenFlow 1.0 or 1.3; empty if it is missing."""
    layout = _OLD_PORT[version]
    whole = ports[: len(ports) // layout.size * layout.size]
    found = (name for number, name in layout.iter_unpack(whole) if number == _OLD_LOCAL[version])
    return next(found, b"").partition(b"\0")[0].decode("utf-8", "backslashreplace")


_MOST_PORTS = 0xFF00
"""Open vSwitch numbers its ports in 16 bits (ovs-vswitchd.conf.db(5), column ofport)."""


class Transport(Protocol):
    """The methods of a socket that a session uses."""

    def recv(self, size: int, /) -> bytes:
        """Return the received bytes; empty at the end. Raises TimeoutError if nothing came for a moment, OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Send all data. Raises TimeoutError, OSError: part of it may have been sent."""

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class SessionEvents(Protocol):
    """Gets the events of sessions, in their reading threads."""

    def session_opened(self, session: Session) -> None:
        """Admit or refuse a session whose version, datapath id and ports are known."""

    def session_received(self, session: Session, frame: bytes) -> None:
        """Process a message of an admitted bridge. Raises WireError."""

    def session_failed(self, session: Session, error: Exception) -> None:
        """Take note of an exception that only a fault of xenoovs raises."""

    def session_closed(self, session: Session, reason: str) -> None: ...


HANDSHAKE_S = 10.0
"""Most time from the connection of a switch to the description of its ports."""
ECHO_S, SILENCE_S = 5.0, 15.0
"""A switch that is silent for the first time gets an echo request, and after the second it loses its connection."""


class _State(Enum):
    HELLO = auto()
    FEATURES = auto()
    PORTS = auto()
    OPEN = auto()
    CLOSED = auto()


_READ_BYTES = 1 << 18
XID = 0
"""Transaction id of echo requests, below those of exchanges (`connection.py`)."""


class Session:
    """One connection of a switch. `version`: the version agreed upon, as a number on the wire; 0 before. `spoken`,
    `offered`: the versions that the switch offers, and that we offer. `is_settled`: whether it was admitted or refused;
    until then the time limit of the handshake runs. `is_released`: whether another reader has the connection."""

    def __init__(
        self,
        transport: Transport,
        peer: str,
        registry: SessionEvents,
        *,
        accepted_s: float | None = None,
        admitted: Callable[[], None] = lambda: None,
        offered: Collection[int] = OFFERED,
    ) -> None:
        """Begin with a HELLO of the versions `offered`. `admitted`: called when the registry admits the session."""
        self._transport, self.peer, self._registry = transport, peer, registry
        self._admitted, self.offered = admitted, offered
        self._sending = Lock()
        self._begun_s = self._received_s = self._asked_s = monotonic()
        self.accepted_s = self._begun_s if accepted_s is None else accepted_s
        self.version, self.datapath_id = 0, 0
        self.spoken: frozenset[int] = frozenset()
        self._state, self._old_name = _State.HELLO, ""
        self._ports: dict[int, Port] = {}
        self.is_settled = self._is_abandoned = self.is_released = False
        self.end = ""

    @property
    def name(self) -> str:
        """Return the name of the bridge, which is that of its local port; empty if it has none."""
        return next((port.name for port in self.ports if port.is_local), self._old_name)

    @property
    def ports(self) -> tuple[Port, ...]:
        """Return the ports as described at the beginning and changed since; empty for versions before OpenFlow 1.4."""
        return tuple(self._ports.values())

    def settle(self) -> None:
        self.is_settled = True
        self._admitted()

    def serve(self) -> None:
        """Read until the connection ends."""
        self.end = "the switch closed the connection"
        try:
            self.send(encode_hello(tuple(self.offered), xid=XID))
            self._read()
        except MalformedOpenFlow as malformed:
            self.abandon(str(malformed))
        except WireError as malformed:
            self.abandon(f"malformed OpenFlow: {malformed}")
        except OSError as error:
            self.abandon(error.strerror or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this connection, and no other one
            self._registry.session_failed(self, error)
            self.abandon(f"internal error in xenoovs: {error!r}")
        finally:
            self._state = _State.CLOSED
            if not self.is_released:
                self._transport.close()
                self._registry.session_closed(self, self.end)

    def send(self, data: bytes) -> bool:
        """Send whole messages, from any thread. Return whether all was sent."""
        try:
            with self._sending:
                self._transport.sendall(data)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Stop reading, and leave the connection open for another reader. Within `session_opened`."""
        self.is_released, self._state = True, _State.CLOSED

    def refuse(self, reason: str) -> None:
        """End a connection whose bridge is not admitted."""
        self.is_settled = True
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """End the connection, from any thread. The first reason is reported."""
        if not self._is_abandoned:
            self.end = reason
        self._is_abandoned = True
        self._state = _State.CLOSED
        try:
            self._transport.shutdown(SHUT_RDWR)
        except OSError:
            return

    def _read(self) -> None:
        frames = Frames()
        while self._state is not _State.CLOSED:
            try:
                data = self._transport.recv(_READ_BYTES)
            except TimeoutError:
                data = None
            if data == b"":
                return
            if data:
                self._received_s = monotonic()
                for frame in frames.feed(data):
                    self._receive(frame)
            self._check_time()

    def _receive(self, frame: bytes) -> None:
        version, kind, _, xid = HEADER.unpack_from(frame)
        # Errors have other versions too (`bridge.is_refusal`).
        if self.version and version != self.version and kind != ERROR:
            raise MalformedOpenFlow(f"a message of version {version:#04x} where {self.version:#04x} was agreed on")
        if kind == ECHO_REQUEST:
            self.send(message(ECHO_REPLY, frame[HEADER.size :], xid=xid, version=version))
        elif self._state is _State.OPEN:
            if kind == PORT_STATUS and version == VERSION:
                self._change_port(frame)
            if kind not in (HELLO, ECHO_REPLY):
                self._registry.session_received(self, frame)
        elif kind == ERROR:
            self.abandon(f"the switch refused the handshake with {decode_error(frame).name}")
        elif self._state is _State.HELLO and kind == HELLO:
            self._negotiate(frame)
        elif self._state is _State.FEATURES and kind == FEATURES_REPLY:
            self._identify(frame)
        elif self._state is _State.PORTS and kind == MULTIPART_REPLY:
            self._describe(frame)

    def _negotiate(self, hello: bytes) -> None:
        self.spoken = decode_hello(hello)
        common = self.spoken.intersection(self.offered)
        if not common:
            names = ", ".join(name_versions(self.spoken)) or "no version that is known"
            self.abandon(f"it speaks {names}, not OpenFlow14: `ovs-vsctl add bridge BRIDGE protocols OpenFlow14`")
            return
        self.version, self._state = max(common), _State.FEATURES
        self.send(message(FEATURES_REQUEST, xid=XID, version=self.version))

    def _identify(self, frame: bytes) -> None:
        if self.version == VERSION:
            self.datapath_id = decode_features(frame)
        elif len(frame) < _OLD_FEATURES[self.version]:
            raise WireError(data=frame, offset=HEADER.size, expected="the features of a switch")
        else:
            self.datapath_id = int.from_bytes(frame[HEADER.size : HEADER.size + 8], "big")
        if self.version == _OLD_10:
            self._old_name = old_name(frame[_OLD_FEATURES[_OLD_10] :], _OLD_10)
            self._open()
            return
        self._state = _State.PORTS
        # The request looks the same in OpenFlow 1.3 (A.3.5).
        request = encode_ports_request(XID)
        self.send(message(MULTIPART_REQUEST, request[HEADER.size :], xid=XID, version=self.version))

    def _describe(self, frame: bytes) -> None:
        if self.version == VERSION:
            self._add_ports(frame, decode_ports(frame))
            is_last = not has_more(frame)
        else:
            start = HEADER.size + _MULTIPART_SIZE
            self._old_name = self._old_name or old_name(frame[start:], self.version)
            is_last = len(frame) < start or not frame[HEADER.size + 3] & 1
        if is_last:
            self._open()

    def _change_port(self, frame: bytes) -> None:
        reason, port = decode_port_status(frame)
        if reason is PortReason.DELETE:
            self._ports.pop(port.number, None)
        else:
            self._add_ports(frame, (port,))

    def _add_ports(self, frame: bytes, ports: Iterable[Port]) -> None:
        self._ports.update((port.number, port) for port in ports)
        if len(self._ports) > _MOST_PORTS:
            raise WireError(data=frame, offset=HEADER.size, expected=f"at most {_MOST_PORTS} ports")

    def _open(self) -> None:
        self._state = _State.OPEN
        self._registry.session_opened(self)

    def _check_time(self) -> None:
        now_s = monotonic()
        if not self.is_settled and self._state is not _State.CLOSED:
            if now_s - self._begun_s > HANDSHAKE_S:
                self.abandon(f"no OpenFlow handshake within {span(HANDSHAKE_S)}")
            return
        silent_s = now_s - self._received_s
        if silent_s > SILENCE_S:
            self.abandon(f"the switch has sent nothing for {span(SILENCE_S)}, not even to an echo request")
        elif silent_s > ECHO_S and now_s - self._asked_s > ECHO_S:
            self._asked_s = now_s
            self.send(message(ECHO_REQUEST, xid=XID, version=self.version or VERSION))
