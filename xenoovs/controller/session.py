"""One connection of a switch: the framework's session, which negotiates the version and answers echoes.

Three things are done anew. Messages are cut here and handed on as bytes, because the objects of the framework take
half a millisecond each. Bytes are sent by whoever has some, because the framework's sending thread cannot be ended.
Silence is noticed in the reading loop, because a thread that sleeps cannot be ended either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from socket import SHUT_RDWR
from threading import Lock
from time import monotonic
from typing import Any

from xenoovs.controller.framework import OPENFLOW, load_framework
from xenoovs.controller.listen import Visit
from xenoovs.errors import MalformedOpenFlow, WireError
from xenoovs.openflow.wire.frame import (
    ECHO_REPLY,
    ECHO_REQUEST,
    FEATURES_REPLY,
    HEADER,
    HELLO,
    LOCAL_NUMBER,
    MULTIPART_REPLY,
    PORT_STATUS,
    VERSION,
    Frames,
    Hello,
    name_versions,
    versions_of,
)
from xenoovs.openflow.wire.message import Port, PortDescReply, PortReason, PortStatus, decode, encode

# The HELLO of a switch: which versions it offers, and the same without anything else in it.


def spoken_versions(hello: bytes) -> tuple[int, ...]:
    """Return the wire versions that a HELLO offers. Raises WireError."""
    received = decode(hello)
    if not isinstance(received.message, Hello):
        return ()
    return tuple(sorted(versions_of(received.message, version=received.version)))


def plain_hello(hello: bytes, spoken: tuple[int, ...]) -> bytes:
    """Return a HELLO that offers the same versions and has nothing else in it."""
    if len(hello) == HEADER.size:
        return hello
    return encode(Hello(frozenset(spoken)), xid=HEADER.unpack_from(hello)[3])


# The ports of a bridge as it describes them.


_LOCAL_NUMBER_16 = 0xFFFE
"""OFPP_LOCAL of OpenFlow 1.0.0, 5.2.1."""


class PortTable:
    """The ports of a bridge as it has told them so far, in OpenFlow 1.4. Frames that are none raise WireError."""

    def __init__(self) -> None:
        self._ports: dict[int, Port] = {}

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(self._ports.values())

    def describe(self, frame: bytes) -> bool:
        """Whether the description of all ports is complete with this frame."""
        reply = decode(frame).message
        if not isinstance(reply, PortDescReply):
            return False
        self._ports.update((port.number, port) for port in reply.ports)
        return not reply.more

    def change(self, frame: bytes) -> None:
        """A port has come, gone or changed."""
        status = decode(frame).message
        if isinstance(status, PortStatus):
            if status.reason is PortReason.DELETE:
                self._ports.pop(status.port.number, None)
            else:
                self._ports[status.port.number] = status.port


def port_of(described: Any) -> Port:
    """Return the framework's description of a port, for the versions of OpenFlow that only tell who asks."""
    name = described.name if isinstance(described.name, bytes) else str(described.name).encode()
    return Port(
        number=LOCAL_NUMBER if described.port_no == _LOCAL_NUMBER_16 else described.port_no,
        name=name.rstrip(b"\0").decode("utf-8", "backslashreplace"),
        mac=int(described.hw_addr.replace(":", ""), 16),
        config=described.config,
        state=described.state,
    )


FRAMEWORK = load_framework()

_READ = 1 << 18
_HANDSHAKE, _CONFIG, _MAIN, _DEAD = (
    getattr(FRAMEWORK.handler, f"{name}_DISPATCHER") for name in ("HANDSHAKE", "CONFIG", "MAIN", "DEAD")
)


@dataclass(frozen=True, slots=True)
class Patience:
    """handshake_s: from the connection to the description of its ports. A switch that is silent for `echo_s` is asked
    for an echo, and given up after `silence_s`."""

    handshake_s: float = 10.0
    echo_s: float = 5.0
    silence_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Ears:
    """Who is told what a session hears; all are called by its reading thread.

    opened: version, datapath id and ports are known. heard: a message after that. closed: the end, with the reason.
    """

    opened: Callable[[Session], None]
    heard: Callable[[Session, bytes], None]
    closed: Callable[[Session, str], None]


class Session(FRAMEWORK.controller.Datapath):  # type: ignore[misc,name-defined]
    """`spoken`: the OpenFlow versions that the switch offers, by their numbers on the wire.

    is_settled: whether it was let in or refused; until then the time of the handshake runs. accepted_s: since when it
    is connected, monotonic.
    """

    def __init__(
        self,
        socket: Any,
        address: object,
        ears: Ears,
        patience: Patience | None = None,
        *,
        visit: Visit | None = None,
    ) -> None:
        """`visit`: how it came; None: by a launcher's own server."""
        self._ears, self._patience, self._visit = ears, patience or Patience(), visit
        self._sending = Lock()
        self._begun_s = self._heard_s = self._asked_s = monotonic()
        self.accepted_s = self._begun_s if visit is None else visit.at_s
        self.spoken: tuple[int, ...] = ()
        self._table = PortTable()
        self.is_settled = self._is_abandoned = False
        self.end = ""
        super().__init__(socket, address)

    @property
    def peer(self) -> str:
        """ADDRESS:PORT of the other side."""
        host, port = self.address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def version(self) -> int:
        """Agreed upon, as a number on the wire."""
        number: int = self.ofproto.OFP_VERSION
        return number

    def port_table(self) -> tuple[Port, ...]:
        """As described at the beginning and changed since."""
        return (
            self._table.ports
            if self.version == VERSION
            else tuple(port_of(described) for described in self.ports.values())
        )

    def settle(self) -> None:
        """It is a bridge that is wanted."""
        self.is_settled = True
        if self._visit is not None:
            self._visit.let_in()

    def serve(self) -> None:
        """Until the connection ends."""
        self.end = "the switch closed the connection"
        try:
            self.send_msg(self.ofproto_parser.OFPHello(self))
            self._read()
        except MalformedOpenFlow as malformed:
            self.abandon(str(malformed))
        except WireError as malformed:
            self.abandon(f"malformed OpenFlow: {malformed}")
        except OSError as error:
            self.abandon(error.strerror or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - what a hostile message makes the framework raise is without limit
            self.abandon(f"malformed OpenFlow: {type(error).__name__}: {error}")
        finally:
            self.set_state(_DEAD)
            self.socket.close()
            self.is_active = False
            self._ears.closed(self, self.end)

    def send(self, buf: bytes, close_socket: bool = False) -> bool:  # noqa: FBT001, FBT002 - the framework's signature
        """Whether all of it has left. May be called by any thread."""
        try:
            with self._sending:
                self.socket.sendall(buf)
        except OSError:
            return False
        if close_socket:
            self.abandon("no OpenFlow version in common")
        return True

    def abandon(self, reason: str) -> None:
        """End the connection. May be called by any thread; the first reason is the one that is told."""
        if not self._is_abandoned:
            self.end = reason
        self._is_abandoned = True
        self.state = _DEAD
        try:
            self.socket.shutdown(SHUT_RDWR)
        except OSError:
            return

    def set_state(self, state: str) -> None:
        super().set_state(state)
        if state == _MAIN:
            self._ears.opened(self)

    def _read(self) -> None:
        frames = Frames()
        while self.state != _DEAD:
            try:
                data = self.socket.recv(_READ)
            except TimeoutError:
                data = None
            if data == b"":
                return
            if data:
                self._heard_s = monotonic()
                for frame in frames.feed(data):
                    self._take(frame)
            self._look_at_the_clock()

    def _take(self, frame: bytes) -> None:
        version, kind, _, _ = HEADER.unpack_from(frame)
        if self.state == _MAIN:
            if version != self.version:
                raise MalformedOpenFlow(f"a message of version {version:#04x} where {self.version:#04x} was agreed on")
            if kind == PORT_STATUS and version == VERSION:
                self._table.change(frame)
            if kind not in (HELLO, ECHO_REQUEST, ECHO_REPLY):
                self._ears.heard(self, frame)
                return
        if kind == HELLO and self.state == _HANDSHAKE:
            self._agree(frame)
        elif kind == MULTIPART_REPLY and version == VERSION:
            if self.state == _CONFIG and self._table.describe(frame):
                self.set_state(_MAIN)
        elif kind in (ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY) or _describes_ports(frame):
            self._hand_on(frame)

    def _agree(self, hello: bytes) -> None:
        self.spoken = spoken_versions(hello)
        if OPENFLOW.keys() & set(self.spoken):
            self._hand_on(plain_hello(hello, self.spoken))
            return
        names = ", ".join(name_versions(self.spoken)) or "no version that is known"
        self.abandon(f"it speaks {names}, not OpenFlow14: `ovs-vsctl add bridge BRIDGE protocols OpenFlow14`")

    def _hand_on(self, frame: bytes) -> None:
        """Let the framework handle it: versions, features, echoes.

        Nothing with lengths inside comes here that was not looked at: the parsers of os-ken 4.2.2 and ryu 4.34 never
        come to an end for an element of length 0.
        """
        message = FRAMEWORK.ofproto_parser.msg(self, *HEADER.unpack_from(frame), bytearray(frame))
        if message is None:
            raise MalformedOpenFlow(f"a message of type {frame[1]} that cannot be read")
        event = FRAMEWORK.ofp_event.ofp_msg_to_ev(message)
        for handle in FRAMEWORK.service.get_handlers(event, self.state):
            handle(event)

    def _look_at_the_clock(self) -> None:
        now_s, patience = monotonic(), self._patience
        if not self.is_settled and self.state != _DEAD:
            if now_s - self._begun_s > patience.handshake_s:
                self.abandon(f"no OpenFlow handshake within {patience.handshake_s:g} s")
            return
        silent_s = now_s - self._heard_s
        if silent_s > patience.silence_s:
            self.abandon(f"the switch has said nothing for {patience.silence_s:g} s, not even to an echo request")
        elif silent_s > patience.echo_s and now_s - self._asked_s > patience.echo_s:
            self._asked_s = now_s
            self.send_msg(self.ofproto_parser.OFPEchoRequest(self, data=b""))


def _describes_ports(frame: bytes) -> bool:
    """Whether it is a multipart reply of kind OFPMP_PORT_DESC, of whatever version (OpenFlow 1.4.0, 7.3.5.7)."""
    return frame[1] == MULTIPART_REPLY and frame[8:10] == b"\x00\x0d"
