"""The controller answers neighbour solicitations for IPv6 VIPs, on a real bridge; a flood of them drowns nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv6Address, ip_address

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.ways import Record, Way, connect, running_server
from tests.patience import eventually
from tests.unit.balancer import balancer, claim, service
from tests.unit.controller.test_solicitation import HOST_MAC, VIP_MAC, solicitation
from xenoovs.controller.neighbour_discovery import BURST, NeighbourProxy, answer_flows
from xenoovs.controller.server import Server
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.model.address import Mac
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow, render_flow

pytestmark = pytest.mark.ovs

_VIP, _OTHER = "2001:db8::80", "2001:db8::81"
_MAC = Mac(int.from_bytes(VIP_MAC, "big"))
_BALANCER = balancer(replace(service(claim(ip_address(_VIP))), vip_mac=_MAC))
_MOVED = balancer(replace(service(claim(ip_address(_OTHER))), vip_mac=_MAC))
_WANTED = sorted(render_flow(flow) for flow in answer_flows(_BALANCER))
_PASSED_ON = parse_flow("cookie=0x786f000000000001, priority=1,in_port=p0 actions=output:p1")


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def server(record: Record, bridge: DummyBridge) -> Iterator[Server]:
    """A controller to which the bridge is connected, and which answers for the VIP."""
    with running_server(record) as running:
        switch = Way(running).switch(bridge.ovs)
        switch.apply(bridge.name, Bundle((FlowMod(Command.ADD, _PASSED_ON),)))
        running.expect(bridge.name).proxy.follow(_BALANCER)
        eventually(lambda: _flows(bridge) == _WANTED, "the flows that bring solicitations")
        yield running


def _flows(bridge: DummyBridge) -> list[str]:
    dump = bridge.dump_flows(version="OpenFlow14")
    return sorted(flow for flow in dump if flow.startswith("cookie=0x786e"))


def _receive(bridge: DummyBridge, *frames: bytes) -> None:
    """Let whole frames enter at p0."""
    bridge.receive("p0", [(frame.hex(),) for frame in frames])


def test_a_solicitation_is_answered_and_not_passed_on(server: Server, bridge: DummyBridge) -> None:
    _receive(bridge, solicitation())
    eventually(lambda: len(bridge.sent("p0")) == 1, "an answer")
    (answer,) = bridge.sent("p0")
    assert answer[:12] == HOST_MAC + VIP_MAC
    assert answer[62:78] == IPv6Address(_VIP).packed
    assert bridge.sent("p1") == []
    assert server.expect(bridge.name).proxy.answered == 1


def test_other_addresses_are_passed_on(server: Server, bridge: DummyBridge) -> None:
    frames = [solicitation(target=IPv6Address(_OTHER).packed), solicitation(kind=136)]
    _receive(bridge, *frames)
    eventually(lambda: bridge.sent("p1") == frames, "both are passed on")
    assert bridge.sent("p0") == []
    assert server.expect(bridge.name).proxy.answered == 0


def test_a_new_config_moves_the_flows(server: Server, bridge: DummyBridge) -> None:
    server.expect(bridge.name).proxy.follow(_MOVED)
    wanted = sorted(render_flow(flow) for flow in answer_flows(_MOVED))
    eventually(lambda: _flows(bridge) == wanted, "the flows of the other address")


def test_without_a_controller_discovery_goes_where_it_went(bridge: DummyBridge, record: Record) -> None:
    with running_server(record) as running:
        Way(running).switch(bridge.ovs).apply(bridge.name, Bundle((FlowMod(Command.ADD, _PASSED_ON),)))
        running.expect(bridge.name).proxy.follow(_BALANCER)
        eventually(lambda: _flows(bridge) == _WANTED, "the flows that bring solicitations")
    eventually(lambda: _flows(bridge) == [], "the flows are gone with the controller")
    _receive(bridge, solicitation())
    eventually(lambda: bridge.sent("p1") == [solicitation()], "it is passed on")


def test_the_next_master_answers(bridge: DummyBridge, record: Record) -> None:
    """Each question is answered once, by the master of the moment."""
    with running_server(Record(), is_redundant=True) as heir, running_server(record, is_redundant=True) as first:
        heir.expect(bridge.name)
        first.expect(bridge.name)
        connect(bridge.ovs, bridge.name, first)
        _follow_as_master(first, bridge)
        connect(bridge.ovs, bridge.name, heir)
        place = heir.expect(bridge.name).expected
        eventually(lambda: place.connection is not None and place.connection.is_standby, "the second stands by")
        heir.expect(bridge.name).proxy.follow(_BALANCER)
        _receive(bridge, solicitation())
        eventually(lambda: len(bridge.sent("p0")) == 1, "the first answers")
        first.close()
        _follow_as_master(heir, bridge)
        _receive(bridge, solicitation())
        eventually(lambda: len(bridge.sent("p0")) == 2, "the second answers")
        assert (first.expect(bridge.name).proxy.answered, heir.expect(bridge.name).proxy.answered) == (1, 1)


def _follow_as_master(server: Server, bridge: DummyBridge) -> None:
    place = server.expect(bridge.name).expected
    eventually(lambda: place.connection is not None and not place.connection.is_standby, "it is master")
    server.expect(bridge.name).proxy.follow(_BALANCER)
    eventually(lambda: _flows(bridge) == _WANTED, "the flows that bring solicitations")


def test_the_switch_keeps_most_of_a_flood_to_itself(server: Server, bridge: DummyBridge) -> None:
    """controller_rate_limit, as `--attach` sets it: what is beyond it never comes to the connection."""
    limits = ("controller_rate_limit=100", "controller_burst_limit=25")
    bridge.ovs.vsctl("set", "controller", bridge.name, *limits)
    sent = 3_000
    _receive(bridge, *[solicitation()] * sent)
    # The answer comes behind whatever of the flood was let through.
    ControllerSwitch(server.registry).dump_flows(bridge.name)
    proxy = server.expect(bridge.name).proxy
    assert 25 <= proxy.answered + proxy.dropped < sent


def test_a_flood_is_bounded_and_drowns_nothing(bridge: DummyBridge, record: Record) -> None:
    """No token comes while the clock of the bucket stands; so exactly a burst is answered, whatever the machine does.

    While it lasts, flows are changed and a port without link is seen.
    """
    with running_server(record) as server:
        switch = Way(server).switch(bridge.ovs)
        switch.apply(bridge.name, Bundle((FlowMod(Command.ADD, _PASSED_ON),)))
        proxy = NeighbourProxy(lambda: server.registry.connections, log=record.log, now_s=lambda: 1.0)
        server.expect(bridge.name).expected.receive_packet = proxy.receive
        proxy.follow(_BALANCER)
        eventually(lambda: _flows(bridge) == _WANTED, "the flows that bring solicitations")
        try:
            for step in range(30):
                _receive(bridge, *[solicitation()] * 64)
                flow = parse_flow(f"cookie=0x786f000000000001, table=1, priority={step} actions=drop")
                switch.apply(bridge.name, Bundle((FlowMod(Command.ADD, flow),)))
            bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "down")
            eventually(lambda: server.expect(bridge.name).expected.ports_down == {"p1"}, "the port without link")
        finally:
            proxy.close()
    assert proxy.answered == BURST == len(bridge.sent("p0"))
    assert proxy.dropped > BURST
    assert len(record.of("packets come faster than they are answered")) == 1
    assert len([flow for flow in bridge.dump_flows() if "table=1," in flow]) == 30
    assert bridge.sent("p1") == []
