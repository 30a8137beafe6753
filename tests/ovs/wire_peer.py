"""A blocking OpenFlow 1.4 connection to the management socket of a bridge, for tests of the codec."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S
from xenoovs.openflow.flow import Bundle
from xenoovs.openflow.wire.frame import VERSION, BarrierReply, BarrierRequest, Error, Frames, Hello, versions_of
from xenoovs.openflow.wire.message import (
    Message,
    Port,
    PortDescReply,
    PortDescRequest,
    Received,
    decode,
    encode,
    encode_bundle,
    names_of,
    numbers_of,
)

OURS = frozenset((VERSION,))


class WirePeer:
    """Asks and is answered in turn; what comes unasked is kept in `events`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._frames, self._xids = connection, Frames(), count(1)
        self._waiting: list[Received] = []
        self.ports: tuple[Port, ...] = ()

    @property
    def ofports(self) -> dict[str, int]:
        return numbers_of(self.ports)

    def send(self, message: Message) -> int:
        """Its xid."""
        xid = next(self._xids)
        self._connection.sendall(encode(message, xid=xid, ofports=self.ofports))
        return xid

    def receive(self) -> Received:
        """The next message, whatever it is."""
        while not self._waiting:
            more = self._connection.recv(1 << 16)
            assert more, "Open vSwitch closed the connection"
            self._waiting += [decode(message, names=names_of(self.ports)) for message in self._frames.feed(more)]
        return self._waiting.pop(0)

    def ask(self, message: Message) -> list[Message]:
        """All answers to a question, a barrier behind it telling their end."""
        self.send(message)
        return self.until_barrier()

    def until_barrier(self) -> list[Message]:
        """All that comes before the answer to a barrier sent now."""
        return [received.message for received in self._received_until_barrier()]

    def send_bundle(self, bundle: Bundle) -> list[Received]:
        """Commits a bundle if no part of it was refused. The answers, in their order."""
        first = next(self._xids)
        self._xids = count(first + len(bundle) + 2)
        *parts, commit = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=self.ofports)
        self.send_bytes(parts)
        answers = self._received_until_barrier()
        if not any(isinstance(received.message, Error) for received in answers):
            self.send_bytes([commit])
        return answers + self._received_until_barrier()

    def send_bytes(self, messages: Iterable[bytes]) -> None:
        self._connection.sendall(b"".join(messages))

    def _received_until_barrier(self) -> list[Received]:
        xid = self.send(BarrierRequest())
        answers = []
        while (received := self.receive()) != Received(VERSION, xid, BarrierReply()):
            answers.append(received)
        return answers


@contextmanager
def wire_peer(bridge: DummyBridge) -> Iterator[WirePeer]:
    """A connection for the time of a `with`, with HELLO exchanged and the ports known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(bridge.management.removeprefix("unix:"))
        peer = WirePeer(connection)
        peer.send(Hello(OURS))
        greeting = peer.receive()
        assert isinstance(greeting.message, Hello)
        assert VERSION in versions_of(greeting.message, version=greeting.version)
        answers = peer.ask(PortDescRequest())
        peer.ports = tuple(port for reply in answers if isinstance(reply, PortDescReply) for port in reply.ports)
        yield peer
