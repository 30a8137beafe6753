"""A switch that a test makes up: it greets as Open vSwitch does, and answers what the test tells it to answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from tests.patience import PATIENCE_S
from xenoovs.controller.server import Server
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.frame import HEADER, Frames

HELLO = bytes.fromhex("0500000800000001")
"""OpenFlow 1.4, nothing else (1.4.0, 7.5.1)."""

BARRIER_REQUEST, BARRIER_REPLY = 20, 21
BUNDLE_CONTROL = 33
ERROR, PACKET_IN, PORT_STATUS = 1, 10, 12
MULTIPART_REQUEST, MULTIPART_REPLY = 18, 19
FLOW, AGGREGATE, PORT_DESC = 1, 2, 13
_DOWN, _LIVE = 1, 4

ADD = Bundle((FlowMod(Command.ADD, parse_flow("cookie=0x786f000000000001, priority=7 actions=output:p1")),))
"""One flow, which a switch with p1 takes."""

Answer = Callable[["ScriptedSwitch", bytes], bytes | None]
"""Takes a connection and a message that it got; None: as a good switch would answer, empty: not at all."""


def message(kind: int, body: bytes = b"", *, xid: int = 0) -> bytes:
    """One of OpenFlow 1.4."""
    return HEADER.pack(5, kind, HEADER.size + len(body), xid) + body


def port(number: int, name: str, *, is_up: bool = True) -> bytes:
    """A description (OpenFlow 1.4.0, 7.2.1)."""
    state = _LIVE if is_up else _DOWN
    return struct.pack("!IHxx6sxx16sII", number, 40, b"\x02\0\0\0\0\x01", name.encode(), 0, state)


def port_status(number: int, name: str, *, is_up: bool) -> bytes:
    """A port has changed (7.4.3)."""
    return message(PORT_STATUS, struct.pack("!B7x", 2) + port(number, name, is_up=is_up))


def packet_in(frame: bytes) -> bytes:
    """A packet of p0 for the controller (7.4.1), whole."""
    match = struct.pack("!HHIIxxxx", 1, 12, 0x80000004, 1)
    fixed = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0)
    return message(PACKET_IN, fixed + match + bytes(2) + frame)


def error(request: bytes) -> bytes:
    """A refusal (7.5.4): OFPBRC_EPERM."""
    return message(ERROR, struct.pack("!HH", 1, 5) + request[:64], xid=xid_of(request))


def xid_of(request: bytes) -> int:
    return int.from_bytes(request[4:8], "big")


def step_of(request: bytes) -> int | None:
    """Which step of a bundle it is."""
    return int.from_bytes(request[12:14], "big") if request[1] == BUNDLE_CONTROL else None


def part_of(request: bytes) -> int:
    """Which part of a multipart request it is."""
    return int.from_bytes(request[8:10], "big")


class ScriptedSwitch:
    """`heard`: the types of what the controller has asked, after the greeting."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self._sock, self._answer = sock, answer
        self.heard: list[int] = []

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Until the connection ends."""
        frames = Frames()
        with suppress(OSError):
            while data := self._sock.recv(1 << 16):
                for request in frames.feed(data):
                    self.heard.append(request[1])
                    answer = self._answer(self, request)
                    self._sock.sendall(good_answer(request) if answer is None else answer)


def good_answer(request: bytes) -> bytes:
    """What a switch without any flows says."""
    xid = xid_of(request)
    match request[1]:
        case 2:
            return message(3, request[HEADER.size :], xid=xid)
        case 20:
            return message(BARRIER_REPLY, xid=xid)
        case 33:
            bundle_id, step, flags = struct.unpack_from("!IHH", request, HEADER.size)
            return message(BUNDLE_CONTROL, struct.pack("!IHH", bundle_id, step + 1, flags), xid=xid)
        case 18:
            part = part_of(request)
            body = {AGGREGATE: bytes(24), PORT_DESC: port(1, "p0") + port(2, "p1")}.get(part, b"")
            return message(MULTIPART_REPLY, struct.pack("!HH4x", part, 0) + body, xid=xid)
    return b""


def greeting(datapath_id: int = 0xAABBCCDDEEFF, name: str = "ovsbr1") -> tuple[bytes, bytes, bytes]:
    """HELLO, features, and the description of the bridge, p0 (1) and p1 (2)."""
    features = struct.pack("!QIBB2xII", datapath_id, 0, 254, 0, 0x4F, 0)
    ports = port(0xFFFFFFFE, name) + port(1, "p0") + port(2, "p1")
    return HELLO, message(6, features), message(MULTIPART_REPLY, struct.pack("!HH4x", PORT_DESC, 0) + ports)


@contextmanager
def peer(server: Server) -> Iterator[socket.socket]:
    """A TCP connection to the controller."""
    host, port = server.target.partition(":")[2].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
        yield sock


def read_to_end(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionError:
        return data
    return data


@contextmanager
def scripted_management(
    directory: Path, *, answer: Answer = lambda _switch, _request: None, hello: bytes = HELLO
) -> Iterator[list[ScriptedSwitch]]:
    """One that listens at a management socket for the time of a `with`: its connections so far."""
    made: list[ScriptedSwitch] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock:
                    made.append(ScriptedSwitch(sock, answer))
                    sock.sendall(hello)
                    made[-1].serve()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / "ovsbr1.mgmt"))
        listener.listen(8)
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in made:
                each.close()
            thread.join(20)


@contextmanager
def scripted_switch(
    server: Server,
    *,
    answer: Answer = lambda _switch, _request: None,
    datapath_id: int = 0xAABBCCDDEEFF,
    name: str = "ovsbr1",
    is_wanted: bool = True,
) -> Iterator[ScriptedSwitch]:
    """Wanted, if it is to be, and connected until the end of the `with`; its ports: p0 (1), p1 (2)."""
    if is_wanted:
        server.expect(name)
    with peer(server) as sock:
        sock.settimeout(None)
        sock.sendall(b"".join(greeting(datapath_id, name)))
        made = ScriptedSwitch(sock, answer)
        thread = Thread(target=made.serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.close()
            thread.join(20)
