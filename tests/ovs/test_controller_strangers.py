"""Connections to the controller: strangers, TLS, and bridges that are silent, hung, too old or unwanted.

However many strangers there are, bridges come in; what is wrong is told in words.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.ovs.certificates import certificates, give_to_switch
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.scripted_switch import ADD, HELLO, peer, read_to_end, scripted_switch
from tests.ovs.ways import Record, Way, connect, live_switch, running_server
from tests.patience import eventually
from xenoovs.controller import listen, session
from xenoovs.controller.listen import MAX_PENDING
from xenoovs.controller.log import WARNINGS
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.errors import OpenFlowVersionDisabled, SwitchError, SwitchUnreachable
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod

_LIMITED = "too many warnings of one kind to log each"


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.mark.parametrize("said", [b"", HELLO], ids=["silent", "polite"])
def test_strangers_keep_no_bridge_out_and_drive_none_out(
    bridge: DummyBridge, record: Record, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when 64 connections that said nothing were all that the controller would have."""
    # So that strangers do not go by themselves.
    monkeypatch.setattr(session, "HANDSHAKE_S", 3600.0)
    with running_server(record) as server:
        switch = Way(server).switch(bridge.ovs)
        for is_connected in (False, True):
            with ExitStack() as strangers:
                oldest = strangers.enter_context(peer(server))
                for _ in range(3 * MAX_PENDING):
                    strangers.enter_context(peer(server)).sendall(said)
                read_to_end(oldest)
                if not is_connected:
                    switch.apply(bridge.name, ADD)
                assert len(switch.dump_flows(bridge.name)) == 1
    assert record.of("bridge disconnected")[0]["reason"] == "the controller stops"


def test_bridges_that_nobody_wants_fill_no_log(record: Record) -> None:
    """Found when one peer got a line for each name that it gave itself."""
    with running_server(record) as server:
        for number in range(3 * WARNINGS):
            with scripted_switch(server, datapath_id=number + 1, name=f"br{number}", is_wanted=False):
                pass
        eventually(lambda: record.of(_LIMITED) != [], "the last word")
    assert len(record.of("bridge refused")) == WARNINGS


class Descriptors:
    """Of a process that has none left: accept(2) fails while a connection waits."""

    def __init__(self) -> None:
        self.are_out, self.tries, self._accept = True, 0, socket.socket.accept

    def accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        if self.are_out and select.select([sock], [], [], 0.2)[0]:
            self.tries += 1
            raise OSError(24, "Too many open files")
        return self._accept(sock)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    made = Descriptors()
    monkeypatch.setattr(socket.socket, "accept", lambda sock: made.accept(sock))
    return made


def test_a_controller_without_descriptors_does_not_spin(
    descriptors: Descriptors, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when accept(2) was called in a loop at full speed, for EMFILE leaves the connection in the queue."""
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 3600.0, raising=False)
    with running_server(record) as server, peer(server):
        eventually(lambda: descriptors.tries > 0, "the first try")
        for _ in range(20):
            assert descriptors.tries == 1
            with peer(server):
                pass
    assert record.of("connections cannot be accepted; retrying") == [{"reason": "Too many open files"}]


def test_a_controller_that_has_descriptors_again_goes_on(
    bridge: DummyBridge, descriptors: Descriptors, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 0.01)
    with running_server(record) as server:
        with peer(server):
            eventually(lambda: descriptors.tries > 3, "some tries")
        descriptors.are_out = False
        assert Way(server).switch(bridge.ovs).dump_flows(bridge.name) == ()
    assert len(record.of("connections cannot be accepted; retrying")) == 1


@pytest.mark.parametrize("said", [b"", HELLO, HELLO[:3]], ids=["nothing", "hello alone", "half a hello"])
def test_a_peer_that_falls_silent_is_told_and_let_go(
    record: Record, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "HANDSHAKE_S", 0.3)
    with running_server(record) as server, peer(server) as sock:
        sock.sendall(said)
        read_to_end(sock)
        eventually(lambda: record.of("a connection is closed") != [], "the end of a silent connection")
    assert record.of("a connection is closed") == [
        {"peer": "127.0.0.1", "reason": "no OpenFlow handshake within 300ms"}
    ]


def test_a_switch_that_hangs_is_told_and_comes_back(
    own_ovs: DummyOvs, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = own_ovs.ovs.pids()[0]
    monkeypatch.setattr(session, "ECHO_S", 1.0)
    # Longer than a busy machine lets an Open vSwitch wait that is well.
    monkeypatch.setattr(session, "SILENCE_S", 3.0)
    with running_server(record) as server, own_ovs.bridge():
        switch = Way(server).switch(own_ovs)
        switch.apply("ovsbr1", ADD)
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: record.of("bridge disconnected") != [], "the silence is noticed")
            with pytest.raises(SwitchUnreachable):
                ControllerSwitch(server.registry).dump_flows("ovsbr1")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(switch.dump_flows("ovsbr1")) == 1
    (end, *_) = record.of("bridge disconnected")
    assert "has sent nothing for 3s, not even to an echo request" in str(end["reason"])


@pytest.mark.parametrize(
    ("protocols", "expected", "event", "reason"),
    [
        ("OpenFlow10", ("ovsbr1",), "bridge refused", "ovs-vsctl add bridge ovsbr1 protocols OpenFlow14"),
        ("OpenFlow11,OpenFlow12", (), "a connection is closed", "it speaks OpenFlow11, OpenFlow12, not OpenFlow14"),
        ("OpenFlow14", ("another",), "bridge refused", "this controller is for another"),
        ("OpenFlow14", ("ovsbr1", 0xAA), "bridge refused", "00000000000000aa"),
    ],
    ids=["an old version", "no version in common", "nobody asked for it", "another datapath of the right name"],
)
def test_a_bridge_is_refused_once_and_told_why(
    bridge: DummyBridge, record: Record, protocols: str, expected: tuple[Any, ...], event: str, reason: str
) -> None:
    bridge.ovs.vsctl("set", "bridge", bridge.name, f"protocols={protocols}")
    with running_server(record) as server:
        if expected:
            server.expect(*expected)
        connect(bridge.ovs, bridge.name, server)
        eventually(lambda: record.of(event) != [], "it is refused")
        assert server.registry.connections == ()
        if reason.startswith("ovs-vsctl"):
            with pytest.raises(OpenFlowVersionDisabled, match=protocols):
                ControllerSwitch(server.registry).dump_flows(bridge.name)
    (refused,) = record.of(event)
    assert reason in str(refused["reason"])


def test_two_bridges_of_one_name(dummy_ovs: DummyOvs, own_ovs: DummyOvs, record: Record) -> None:
    with dummy_ovs.bridge(), own_ovs.bridge(), running_server(record) as server:
        Way(server).switch(own_ovs).apply("ovsbr1", ADD)
        connect(dummy_ovs.ovs, "ovsbr1", server)
        eventually(lambda: record.of("bridge refused") != [], "the second is refused")
        assert len(server.registry.connections) == 1
    assert "another bridge of this name is connected" in str(record.of("bridge refused")[0]["reason"])


def test_what_a_controller_cannot_tell_is_said(bridge: DummyBridge) -> None:
    with running_server(Record()) as server:
        Way(server).switch(bridge.ovs).dump_flows(bridge.name)
        elsewhere = ControllerSwitch(server.registry)
        assert elsewhere.describe(bridge.name).ofports == {"ovsbr1": 65534, "p0": 1, "p1": 2}
        for ask in (elsewhere.dump_megaflows, lambda: elsewhere.trace(bridge.name, "ip")):
            with pytest.raises(SwitchError, match="run this on the host of the switch"):
                ask()
        with pytest.raises(SwitchUnreachable, match="ovs-vsctl set-controller nosuch tcp:127"):
            elsewhere.dump_flows("nosuch")


def test_an_error_of_the_switch_is_told_with_what_it_is_about(bridge: DummyBridge, record: Record) -> None:
    with running_server(record) as server:
        Way(server).switch(bridge.ovs).dump_flows(bridge.name)
        internal = parse_flow("cookie=0x786f000000000001, table=254, priority=1 actions=drop")
        line = server.registry.expect(bridge.name).connected()
        line.session.send(encode_flow_mod(FlowMod(Command.ADD, internal), xid=7, ofports=line.numbers))
        eventually(lambda: record.of("the switch reports an error") != [], "the error is told")
    told = {"bridge": "ovsbr1", "error": "OFPBRC_EPERM", "about": "FLOW_MOD", "xid": 7}
    assert record.of("the switch reports an error") == [told]


def test_nothing_is_left_of_a_controller_that_ends(bridge: DummyBridge) -> None:
    before = set(threading.enumerate())
    with running_server(Record()) as server, peer(server):
        Way(server).switch(bridge.ovs).apply(bridge.name, ADD)
    eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")
    assert bridge.dump_flows() == ["cookie=0x786f000000000001, priority=7 actions=output:p1"]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(own_ovs: DummyOvs, authority: trustme.CA, record: Record, tmp_path: Path) -> Iterator[Server]:
    """A controller with TLS; it and the switch trust each other."""
    give_to_switch(own_ovs.ovs, certificates(authority, tmp_path, "switch"))
    with running_server(record, certificates=certificates(authority, tmp_path, "controller")) as made:
        yield made


def test_flows_go_and_come_by_tls_beside_strangers_that_do_not_even_begin_it(own_ovs: DummyOvs, tls: Server) -> None:
    assert tls.target.startswith("ssl:127.0.0.1:")
    texts = (f"cookie=0x786f000000000001, priority={number},ip actions=output:p1" for number in range(1, 2001))
    flows = {parse_flow(text) for text in texts}
    with own_ovs.bridge(), ExitStack() as strangers:
        for _ in range(2 * MAX_PENDING):
            strangers.enter_context(peer(tls))
        switch = Way(tls).switch(own_ovs)
        switch.apply("ovsbr1", Bundle(tuple(FlowMod(Command.ADD, flow) for flow in flows)))
        for reader in (switch, live_switch(own_ovs.ovs)):
            assert {seen.flow for seen in reader.dump_flows("ovsbr1")} == flows


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("a switch of another authority", "CERTIFICATE_VERIFY_FAILED"),
        ("a switch whose certificate has ended", "CERTIFICATE_VERIFY_FAILED"),
        ("a controller of another authority", "TLSV1_ALERT_UNKNOWN_CA"),
    ],
)
def test_a_certificate_that_the_other_side_does_not_trust(
    own_ovs: DummyOvs, authority: trustme.CA, record: Record, tmp_path: Path, who: str, reason: str
) -> None:
    other, ended = trustme.CA(), datetime(2020, 1, 1, tzinfo=timezone.utc) if "ended" in who else None
    own = certificates(authority if ended else other, tmp_path, "switch", not_after=ended)
    ours = certificates(authority, tmp_path, "controller")
    # Only one side is to refuse the other.
    if "controller" in who:
        other.cert_pem.write_to_path(ours.authority)
    else:
        authority.cert_pem.write_to_path(own.authority)
    give_to_switch(own_ovs.ovs, own)
    with own_ovs.bridge(), running_server(record, certificates=ours) as server:
        Way(server).switch(own_ovs)
        event = "a connection is refused: no TLS with a certificate we trust"
        eventually(lambda: record.of(event) != [], "the refusal")
        assert server.registry.connections == ()
    assert record.of(event)[0]["reason"] == reason


def test_a_peer_without_tls_or_without_certificate(record: Record, tls: Server, authority: trustme.CA) -> None:
    with peer(tls) as sock:
        sock.sendall(HELLO)
        read_to_end(sock)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = False
    with peer(tls) as sock, context.wrap_socket(sock) as secure, suppress(OSError):
        secure.sendall(HELLO)
        read_to_end(secure)
    eventually(lambda: len(record.events) >= 3, "both are told")
    reasons = [str(facts["reason"]) for event, facts in record.events if "refused" in event]
    assert [reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST") for reason in reasons] == [True, False]
    assert reasons[1] == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
