"""OpenFlow connections to the management socket of a bridge, RUNDIR/BRIDGE.mgmt, at which ovs-vswitchd listens.

Each call opens a connection of its own (docs/adr/0017): that takes 0.13 ms, and no connection has to be kept alive,
shared between threads, or replaced after a restart of ovs-vswitchd.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from xenoovs.errors import MalformedOpenFlow, OpenFlowVersionDisabled, SwitchUnreachable, WireError
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.echo import EchoReply
from xenoovs.openflow.wire.frame import HEADER, VERSION, Frames
from xenoovs.openflow.wire.hello import Hello, name_versions, versions_of
from xenoovs.openflow.wire.kinds import ECHO_REQUEST
from xenoovs.openflow.wire.multipart import PortDescReply, PortDescRequest
from xenoovs.openflow.wire.port import Port, names_of, numbers_of
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.openflow.exchange import ANSWER_TIMEOUT_S, answers
from xenoovs.switch.stderr import lift_lost

GREETING_TIMEOUT_S = 5.0
"""Until the HELLO of ovs-vswitchd. A large change keeps it busy for a second or two."""

_RETRY_S = 0.05
_READ_BYTES = 1 << 18
_MAX_PATH_BYTES = 107
"""sun_path of unix(7), without its final zero."""

_SILENT = (
    "ovs-vswitchd does not answer: it is stopped or very busy, or ovsdb-server is away, without which some versions "
    "serve no bridge; see `systemctl status ovsdb-server ovs-vswitchd`"
)


class Connection:
    """A connection for one thread. Implements `Exchange`."""

    def __init__(self, sock: socket.socket, *, bridge: str) -> None:
        self.bridge = bridge
        self._socket = sock
        self._frames, self._arrived = Frames(), deque[bytes]()
        self._next_xid = 1

    @cached_property
    def _ports(self) -> tuple[Port, ...]:
        (frames,) = answers(self, (PortDescRequest(),))
        replies = (decode(frame).message for frame in frames)
        return tuple(port for reply in replies if isinstance(reply, PortDescReply) for port in reply.ports)

    @property
    def names(self) -> dict[int, str]:
        """Port names by number, for `decode_flows`."""
        return names_of(self._ports)

    @property
    def numbers(self) -> dict[str, int]:
        """Port numbers by name, for `send_bundle`."""
        return numbers_of(self._ports)

    def take_xids(self, number: int) -> int:
        self._next_xid += number
        return self._next_xid - number

    def send(self, data: bytes) -> None:
        view, deadline_s = memoryview(data), time.monotonic() + ANSWER_TIMEOUT_S
        while view:
            events = self._wait(select.POLLIN | select.POLLOUT, deadline_s)
            if events & ~select.POLLOUT:
                # While 100 replies wait ovs-vswitchd reads no further request (OFCONN_REPLY_MAX, ofproto/connmgr.c).
                self._read()
            if events & select.POLLOUT:
                view, deadline_s = view[self._socket.send(view) :], time.monotonic() + ANSWER_TIMEOUT_S

    def receive(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        while True:
            frame = self._next_frame(deadline_s)
            _, kind, _, xid = HEADER.unpack_from(frame)
            if kind == ECHO_REQUEST:
                self.send(encode(EchoReply(frame[HEADER.size :]), xid=xid))
            elif 0 < xid < self._next_xid:
                return frame

    def greet(self) -> None:
        """Agree on OpenFlow 1.4: each side sends HELLO at once (OpenFlow 1.4.0, 6.3.1)."""
        deadline_s = time.monotonic() + GREETING_TIMEOUT_S
        self.send(encode(Hello(frozenset((VERSION,))), xid=self.take_xids(1)))
        frame = self._next_frame(deadline_s)
        hello = decode(frame)
        if not isinstance(hello.message, Hello):
            raise WireError(data=frame, offset=1, expected="a HELLO")
        spoken = versions_of(hello.message, version=hello.version)
        if VERSION not in spoken:
            raise OpenFlowVersionDisabled(bridge=self.bridge, version="OpenFlow14", spoken=name_versions(spoken))

    def _next_frame(self, deadline_s: float) -> bytes:
        while not self._arrived:
            self._wait(select.POLLIN, deadline_s)
            self._read()
        return self._arrived.popleft()

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._arrived += self._frames.feed(data)

    def _wait(self, events: int, deadline_s: float) -> int:
        poll = select.poll()
        poll.register(self._socket, events)
        for _, happened in poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            return happened
        raise TimeoutError


@contextmanager
def connected(endpoint: Endpoint, bridge: str) -> Iterator[Connection]:
    """Connect for the time of a `with`.

    Raises, also for what happens within the `with`:
        BridgeMissing: there is no socket of this name.
        MalformedOpenFlow: the other side sent what is no OpenFlow.
        OpenFlowVersionDisabled: the bridge does not allow OpenFlow 1.4.
        SwitchUnreachable: ovs-vswitchd does not answer in time, or the connection is lost.
    """
    target = endpoint.management(bridge)
    try:
        with _connect(Path(target.removeprefix("unix:"))) as sock:
            connection = Connection(sock, bridge=bridge)
            connection.greet()
            yield connection
    except WireError as error:
        raise MalformedOpenFlow(f"{target}: {error}") from None
    except TimeoutError:
        raise SwitchUnreachable(target=target, reason=_SILENT) from None
    except OSError as error:
        raise lift_lost(error.strerror or str(error), endpoint=endpoint, bridge=bridge) from None


def _connect(path: Path) -> socket.socket:
    """Raises OSError; TimeoutError while the backlog of the socket is full (unix(7), EAGAIN)."""
    deadline_s = time.monotonic() + GREETING_TIMEOUT_S
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        while True:
            try:
                _connect_to(sock, path)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise TimeoutError from None
                time.sleep(_RETRY_S)
            else:
                return sock
    except BaseException:
        sock.close()
        raise


def _connect_to(sock: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        sock.connect(str(path))
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
