"""The controller and switches that are silent, hung, too old, unwanted: told in words, and nothing breaks."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.scripted_switch import HELLO, peer, read_to_end
from tests.ovs.ways import Record, Way, connect, running_server
from tests.patience import eventually
from xenoovs.controller.server import ControllerSwitch
from xenoovs.controller.session import Timeouts
from xenoovs.errors import OpenFlowVersionDisabled, SwitchError, SwitchUnreachable
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod

_FLOW = parse_flow("cookie=0x786f000000000001, priority=7,ip actions=output:p1")
_ADD = Bundle((FlowMod(Command.ADD, _FLOW),))
_QUICK = Timeouts(handshake_s=0.3)
_WATCHFUL = Timeouts(echo_s=1.0, silence_s=3.0)
"""Longer than a busy machine lets an Open vSwitch wait that is well."""


@pytest.mark.parametrize("said", [b"", HELLO, HELLO[:3]], ids=["nothing", "hello alone", "half a hello"])
def test_a_peer_that_falls_silent_is_told_and_let_go(said: bytes) -> None:
    record = Record()
    with running_server(record, timeouts=_QUICK) as server, peer(server) as sock:
        sock.sendall(said)
        read_to_end(sock)
        eventually(lambda: record.of("a connection is closed") != [], "the end of a silent connection")
    assert record.of("a connection is closed") == [
        {"peer": "127.0.0.1", "reason": "no OpenFlow handshake within 300ms"}
    ]


def test_a_switch_that_hangs_is_told_and_comes_back(own_ovs: DummyOvs) -> None:
    record, pid = Record(), own_ovs.ovs.pids()[0]
    with running_server(record, timeouts=_WATCHFUL) as server, own_ovs.bridge():
        switch = Way(server).switch(own_ovs)
        switch.apply("ovsbr1", _ADD)
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: record.of("bridge disconnected") != [], "the silence is noticed")
            with pytest.raises(SwitchUnreachable):
                ControllerSwitch(server.registry).dump_flows("ovsbr1")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [seen.flow for seen in switch.dump_flows("ovsbr1")] == [_FLOW]
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
    bridge: DummyBridge, protocols: str, expected: tuple[Any, ...], event: str, reason: str
) -> None:
    bridge.ovs.vsctl("set", "bridge", bridge.name, f"protocols={protocols}")
    record = Record()
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


def test_two_bridges_of_one_name(dummy_ovs: DummyOvs, own_ovs: DummyOvs) -> None:
    record = Record()
    with dummy_ovs.bridge(), own_ovs.bridge(), running_server(record) as server:
        Way(server).switch(own_ovs).apply("ovsbr1", _ADD)
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


def test_the_error_for_a_lost_bridge_names_no_command(bridge: DummyBridge) -> None:
    """Found when a controller told to run `set-controller` for a bridge whose Open vSwitch had been stopped."""
    with running_server(Record()) as server:
        switch = Way(server).switch(bridge.ovs)
        switch.dump_flows(bridge.name)
        bridge.ovs.vsctl("del-controller", bridge.name)
        place = server.expect(bridge.name).expected
        eventually(lambda: place.connection is None, "the connection ends")
        with pytest.raises(SwitchUnreachable, match=r"its connection was lost at 20\d\d-.*T.*\(") as caught:
            ControllerSwitch(server.registry).dump_flows(bridge.name)
    assert "set-controller" not in str(caught.value)


def test_an_error_of_the_switch_is_told_with_what_it_is_about(bridge: DummyBridge) -> None:
    record = Record()
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
        Way(server).switch(bridge.ovs).apply(bridge.name, _ADD)
    eventually(lambda: set(threading.enumerate()) <= before, "all threads have ended")
    assert bridge.dump_flows() == ["cookie=0x786f000000000001, priority=7,ip actions=output:p1"]
