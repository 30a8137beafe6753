"""Bytes that are no OpenFlow at the real socket of the controller: the connection ends, all others live on."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.openflow_peer import HELLO, peer, read_to_end
from tests.ovs.ways import Record, Way, running_server
from tests.patience import PATIENCE_S, eventually
from xenoovs.controller.server import Server
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.errors import MalformedOpenFlow
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow

pytestmark = pytest.mark.ovs

_ADD = Bundle((FlowMod(Command.ADD, parse_flow("cookie=0x786f000000000001, priority=7 actions=output:p1")),))
_PEERS = 1000

# What Open vSwitch 3.1.0 says of a bridge `ovsbr1` with the ports p0 and p1: features, and the description of ports.
_FEATURES = bytes.fromhex("0506002000000002 0000aabbccddeeff 00000000fe000000 0000004f00000000".replace(" ", ""))
_PORTS_HEAD = bytes.fromhex("051300 00 00000003 000d0000 00000000".replace(" ", ""))


def _port(number: int, name: str) -> bytes:
    fixed = number.to_bytes(4, "big") + (40).to_bytes(2, "big") + bytes(2) + bytes.fromhex("020000000001") + bytes(2)
    return fixed + name.encode().ljust(16, b"\0") + bytes(8)


def _described() -> bytes:
    body = _port(0xFFFFFFFE, "ovsbr1") + _port(1, "p0") + _port(2, "p1")
    head = bytearray(_PORTS_HEAD)
    head[2:4] = (len(head) + len(body)).to_bytes(2, "big")
    return bytes(head) + body


_TALK = (
    HELLO,
    _FEATURES,
    _described(),
    bytes.fromhex("051300280000 0fff 0002000000000000".replace(" ", "")) + bytes(24),
)


def _hostile(chance: random.Random) -> Iterator[bytes]:
    """What one peer says: pure noise, or a talk as it should be up to some point and then not."""
    if chance.random() < 0.3:
        yield chance.randbytes(chance.randrange(200))
        return
    point = chance.randrange(len(_TALK) + 1)
    yield from _TALK[:point]
    for _ in range(chance.randrange(1, 4)):
        message = bytearray(chance.choice(_TALK))
        for _ in range(chance.randrange(4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        if chance.random() < 0.5:
            message[0:2] = bytes((5, chance.randrange(36)))
        yield bytes(message[: chance.randrange(1, len(message) + 1)])


def _talk(server: Server, chance: random.Random) -> None:
    with suppress(OSError), peer(server) as sock:
        for said in _hostile(chance):
            sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        read_to_end(sock)


def test_whatever_comes_the_controller_lives_on(bridge: DummyBridge, capfd: pytest.CaptureFixture[str]) -> None:
    record = Record()
    with running_server(record) as server:
        switch = Way(server).switch(bridge.ovs)
        switch.apply(bridge.name, _ADD)
        for number in range(_PEERS):
            # Each has chances of its own: where a talk is cut short is not the same on every machine.
            _talk(server, random.Random(number))
        assert len(switch.dump_flows(bridge.name)) == 1
        assert [line.bridge for line in server.registry.connections] == [bridge.name]
    reasons = {str(facts["reason"]).partition(":")[0] for facts in record.of("a connection is closed")}
    assert "malformed OpenFlow" in reasons
    assert "Traceback" not in capfd.readouterr().err


_ENDLESS = {
    "the versions of a hello": (bytes.fromhex("05000010000000010001000000000000"),),
    "an element of a hello": (bytes.fromhex("05000010000000010007000000000000"),),
    "a port": (HELLO, _FEATURES, _described()[:20] + bytes(2) + _described()[22:]),
    "a table": (HELLO, _FEATURES, bytes.fromhex("0513001800000003000c0000000000000000000000000000")),
}


@pytest.mark.parametrize("said", _ENDLESS.values(), ids=_ENDLESS.keys())
def test_what_has_no_length_does_not_keep_a_thread_for_ever(said: tuple[bytes, ...]) -> None:
    """Found when the framework's own parsers went round and round for an element of length 0."""
    record = Record()
    with running_server(record) as server, peer(server) as sock:
        for message in said:
            sock.sendall(message)
        sock.shutdown(socket.SHUT_WR)
        read_to_end(sock)
        eventually(lambda: record.of("a connection is closed") != [], "the connection is given up")


def test_a_bridge_that_answers_a_dump_with_noise_is_let_go(capfd: pytest.CaptureFixture[str]) -> None:
    record = Record()
    with running_server(record) as server, peer(server) as sock, ThreadPoolExecutor() as pool:
        server.expect("ovsbr1")
        for said in _TALK:
            sock.sendall(said)
        server.registry.expect("ovsbr1").connected(timeout_s=PATIENCE_S)
        dumped = pool.submit(ControllerSwitch(server.registry).dump_flows, "ovsbr1")
        heard = b""
        while b"\x00\x00\x10\x00\x00\x01" not in heard:
            heard += sock.recv(4096)
        # The answer to the first transaction id of a line: a flow of 7 bytes, where 56 is the least.
        sock.sendall(bytes.fromhex("051300180000100000010000000000000007000000000000"))
        with pytest.raises(MalformedOpenFlow, match="bridge ovsbr1"):
            dumped.result()
        read_to_end(sock)
    assert "malformed OpenFlow" in str(record.of("bridge disconnected")[0]["reason"])
    assert "Traceback" not in capfd.readouterr().err
