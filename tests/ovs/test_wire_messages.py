"""Every other message, said to a real Open vSwitch and heard from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.wire_peer import WirePeer, wire_peer
from xenoovs.openflow.flow import LOCAL, Bundle, Command, Field, Flow, FlowKey, FlowMod, Foreign, Match, Output
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.controller import (
    AsyncReply,
    AsyncRequest,
    Event,
    PacketIn,
    PacketOut,
    PacketReason,
    Role,
    RoleReply,
    RoleRequest,
    SetAsync,
    mask_of,
)
from xenoovs.openflow.wire.flow import Aggregate, FlowFilter, FlowRemoved, RemovedReason
from xenoovs.openflow.wire.frame import LOCAL_NUMBER, EchoReply, EchoRequest, Error
from xenoovs.openflow.wire.message import (
    AggregateReply,
    AggregateRequest,
    BundleControl,
    BundleStep,
    DescReply,
    DescRequest,
    FlowStatsReply,
    FlowStatsRequest,
    Message,
    PortReason,
    PortStatsReply,
    PortStatsRequest,
    PortStatus,
    TableStatsReply,
    TableStatsRequest,
    Unknown,
)
from xenoovs.openflow.wire.switch import (
    NO_BUFFER,
    WHOLE_PACKET,
    ConfigReply,
    ConfigRequest,
    FeaturesReply,
    FeaturesRequest,
    SetConfig,
)

pytestmark = pytest.mark.ovs

_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5") + b"xenoovs".ljust(46, b"\0")


@pytest.fixture
def peer(bridge: DummyBridge) -> Iterator[WirePeer]:
    with wire_peer(bridge) as connected:
        yield connected


def test_the_switch_tells_what_it_is(bridge: DummyBridge, peer: WirePeer) -> None:
    (features,), (description,) = peer.ask(FeaturesRequest()), peer.ask(DescRequest())
    assert isinstance(features, FeaturesReply)
    told = bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"')
    assert f"{features.datapath_id:016x}" == told
    assert features.tables == 254
    assert isinstance(description, DescReply)
    assert description.description.hardware == "Open vSwitch"


def test_ports_have_their_names_numbers_and_states(peer: WirePeer) -> None:
    assert {port.name: port.number for port in peer.ports} == {"p0": 1, "p1": 2, "ovsbr1": LOCAL_NUMBER}
    assert all(port.is_up for port in peer.ports)
    assert peer.ofports == {"p0": 1, "p1": 2}


def test_an_echo_comes_back(peer: WirePeer) -> None:
    assert peer.ask(EchoRequest(b"xo")) == [EchoReply(b"xo")]


def test_a_configuration_is_kept(peer: WirePeer) -> None:
    assert peer.ask(SetConfig(0, 128)) == []
    assert peer.ask(ConfigRequest()) == [ConfigReply(0, 128)]


def test_a_role_is_granted_and_an_old_generation_refused(peer: WirePeer) -> None:
    assert peer.ask(RoleRequest(Role.MASTER, 5)) == [RoleReply(Role.MASTER, 5)]
    assert peer.ask(RoleRequest(Role.NOCHANGE)) == [RoleReply(Role.MASTER, 5)]
    (error,) = peer.ask(RoleRequest(Role.SLAVE, 4))
    assert isinstance(error, Error)
    assert error.name == "OFPRRFC_STALE"


def test_events_are_chosen(peer: WirePeer) -> None:
    mask = mask_of(Event.PORT_STATUS_MASTER, (reason.value for reason in (PortReason.ADD, PortReason.DELETE)))
    assert peer.ask(SetAsync((mask,))) == []
    (reply,) = peer.ask(AsyncRequest())
    assert isinstance(reply, AsyncReply)
    assert [told for told in reply.masks if told.event is Event.PORT_STATUS_MASTER] == [mask]


def test_sums_and_tables_and_ports_count(bridge: DummyBridge, peer: WirePeer) -> None:
    bridge.add_flows("cookie=0x5, table=0, in_port=p0 actions=output:p1\ntable=3, actions=drop\n")
    bridge.send("p0", [udp_packet("10.0.0.1")], length=100)
    assert _sums(peer, FlowFilter(table=0, cookie=5, cookie_mask=0xFF)) == Aggregate(packets=1, bytes=100, flows=1)
    assert _sums(peer, FlowFilter(out_port="p0")).flows == 0
    assert _sums(peer, FlowFilter(match=Match(in_port="p0"))).flows == 1
    (tables,) = peer.ask(TableStatsRequest())
    assert isinstance(tables, TableStatsReply)
    assert [table.table for table in tables.tables if table.flows] == [0, 3]
    (ports,) = peer.ask(PortStatsRequest("p1"))
    assert isinstance(ports, PortStatsReply)
    assert [(port.port, port.tx_packets, port.tx_bytes) for port in ports.ports] == [(2, 1, 100)]
    (every,) = peer.ask(PortStatsRequest())
    assert isinstance(every, PortStatsReply)
    assert {port.port for port in every.ports} == {1, 2, LOCAL_NUMBER}


def test_flows_are_listed_with_their_counters(bridge: DummyBridge, peer: WirePeer) -> None:
    bridge.add_flows("in_port=p0 actions=output:p1\n")
    bridge.send("p0", [udp_packet("10.0.0.1")], length=100)
    (reply,) = peer.ask(FlowStatsRequest())
    assert isinstance(reply, FlowStatsReply)
    (seen,) = reply.flows
    assert (seen.flow, seen.packets, seen.bytes) == (parse_flow("in_port=p0 actions=output:p1"), 1, 100)
    assert 0 < seen.duration_s < 60


def test_a_packet_goes_out(bridge: DummyBridge, peer: WirePeer) -> None:
    assert peer.ask(PacketOut((Output("p1"),), _FRAME)) == []
    assert bridge.sent("p1") == [_FRAME]
    assert bridge.sent("p0") == []


def test_a_packet_comes_in(bridge: DummyBridge, peer: WirePeer) -> None:
    bridge.add_flows("cookie=0x9, table=0, in_port=p0 actions=load:7->NXM_NX_REG0[],CONTROLLER:65535\n")
    peer.ask(SetConfig(0, WHOLE_PACKET))
    bridge.send("p0", [udp_packet("10.0.0.1")], length=100)
    packet = _wait(peer, lambda message: isinstance(message, PacketIn))
    assert isinstance(packet, PacketIn)
    assert (packet.reason, packet.table, packet.cookie) == (PacketReason.APPLY_ACTION.value, 0, 9)
    assert packet.match.in_port == "p0"
    assert [(one.field, one.value) for one in packet.match.masked] == [(Field.REG0, 7)]
    assert (len(packet.data), packet.total_length, packet.buffer_id) == (100, 100, NO_BUFFER)
    assert packet.data[:12] == bytes.fromhex("c470bda056ac 020000000001")


def test_a_port_that_goes_down_is_told(bridge: DummyBridge, peer: WirePeer) -> None:
    peer.ask(SetConfig(0, WHOLE_PACKET))
    bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "down")
    status = _wait(peer, lambda message: isinstance(message, PortStatus) and not message.port.is_up)
    assert isinstance(status, PortStatus)
    assert (status.reason, status.port.name) == (PortReason.MODIFY, "p1")


def test_a_port_that_is_removed_is_told(bridge: DummyBridge, peer: WirePeer) -> None:
    peer.ask(SetConfig(0, WHOLE_PACKET))
    bridge.ovs.vsctl("del-port", bridge.name, "p1")
    status = _wait(peer, lambda message: isinstance(message, PortStatus))
    assert isinstance(status, PortStatus)
    assert (status.reason, status.port.name) == (PortReason.DELETE, "p1")


def test_a_flow_that_is_removed_is_told(bridge: DummyBridge, peer: WirePeer) -> None:
    flow = parse_flow("cookie=0x5, table=1, send_flow_rem priority=7,udp,in_port=p0,tp_dst=53 actions=drop")
    peer.ask(SetConfig(0, WHOLE_PACKET))
    peer.send_bundle(Bundle((FlowMod(Command.ADD, flow),)))
    bridge.ofctl("del-flows", "table=1")
    removed = _wait(peer, lambda message: isinstance(message, FlowRemoved))
    assert isinstance(removed, FlowRemoved)
    assert (removed.key, removed.cookie, removed.packets) == (flow.key, 5, 0)
    assert removed.reason == RemovedReason.DELETE.value


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("table=254, actions=drop", "OFPBRC_EPERM"),
        ("actions=output:4294967040", "OFPBAC_BAD_OUT_PORT"),
        ("tcp,tp_dst=0x10/0x10 actions=drop", None),
    ],
)
def test_a_refused_flow_is_named_and_nothing_is_changed(
    bridge: DummyBridge, peer: WirePeer, line: str, name: str | None
) -> None:
    good = parse_flow("priority=1,ip actions=drop")
    answers = peer.send_bundle(Bundle((FlowMod(Command.ADD, good), FlowMod(Command.ADD, parse_flow(line)))))
    first = answers[0].xid
    refused = [received for received in answers if isinstance(received.message, Error)]
    names = {one.message.name for one in refused if isinstance(one.message, Error) and one.xid == first + 2}
    assert names == ({name} if name else set())
    assert len(bridge.dump_flows()) == (0 if name else 2)


def test_a_field_without_its_prerequisite_is_refused(peer: WirePeer) -> None:
    condition = Match(foreign=("oxm:80001c020035",))
    (error,) = peer.ask(FlowMod(Command.ADD, Flow(FlowKey(0, 1, condition), 0, ())))
    assert isinstance(error, Error)
    assert error.name == "OFPBMC_BAD_PREREQ"
    assert error.refused[1] == 14


def test_what_the_switch_does_not_know_it_names(peer: WirePeer) -> None:
    (error,) = peer.ask(Unknown(99, b""))
    assert isinstance(error, Error)
    assert error.name == "OFPBRC_BAD_TYPE"


def test_a_bundle_can_be_dropped(bridge: DummyBridge, peer: WirePeer) -> None:
    (opened,) = peer.ask(BundleControl(7, BundleStep.OPEN_REQUEST))
    assert opened == BundleControl(7, BundleStep.OPEN_REPLY, flags=0)
    (dropped,) = peer.ask(BundleControl(7, BundleStep.DISCARD_REQUEST))
    assert isinstance(dropped, BundleControl)
    assert dropped.step is BundleStep.DISCARD_REPLY
    (error,) = peer.ask(BundleControl(7, BundleStep.COMMIT_REQUEST))
    assert isinstance(error, Error)
    assert error.name == "OFPBFC_BAD_ID"


def test_a_flow_may_send_to_the_bridge_and_to_groups(bridge: DummyBridge, peer: WirePeer) -> None:
    bridge.ofctl("add-group", "group_id=5,type=all,bucket=output:p1")
    flow = parse_flow("priority=1,in_port=LOCAL actions=LOCAL,group:5")
    assert flow.actions == (Output(LOCAL), Foreign("group:5"))
    peer.send_bundle(Bundle((FlowMod(Command.ADD, flow),)))
    assert bridge.dump_flows(version="OpenFlow14") == ["priority=1,in_port=LOCAL actions=LOCAL,group:5"]
    bridge.ofctl("del-groups")


def _sums(peer: WirePeer, wanted: FlowFilter) -> Aggregate:
    (reply,) = peer.ask(AggregateRequest(wanted))
    assert isinstance(reply, AggregateReply)
    return reply.sums


def _wait(peer: WirePeer, is_wanted: Callable[[Message], bool]) -> Message:
    while not is_wanted(message := peer.receive().message):
        pass
    return message
