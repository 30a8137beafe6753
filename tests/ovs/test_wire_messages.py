"""Messages to a real Open vSwitch and its answers, besides flows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.ways import live_switch
from xenoovs.errors import BundleRejected, SwitchError
from xenoovs.openflow.flow import LOCAL, Bundle, Command, CookieMask, Flow, FlowKey, FlowMod, Foreign, Match, Output
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.frame import BARRIER_REPLY, BARRIER_REQUEST, ERROR, LOCAL_NUMBER, decode_error, message
from xenoovs.openflow.wire.message import (
    PacketOut,
    Role,
    decode_role,
    encode_bundle,
    encode_discard,
    encode_packet_out,
    encode_role_request,
)
from xenoovs.switch.openflow import (
    Connection,
    ask,
    connected,
    count_flows,
    decode_flows,
    request_datapath_id,
    request_flows,
    request_ports,
    send_bundle,
)

pytestmark = pytest.mark.ovs

_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5") + b"xenoovs".ljust(46, b"\0")


@pytest.fixture
def peer(bridge: DummyBridge) -> Iterator[Connection]:
    with connected(live_switch(bridge.ovs).endpoint, bridge.name) as connection:
        yield connection


def _wait_for_barrier(peer: Connection) -> list[bytes]:
    """All messages up to the answer to a barrier sent now."""
    peer.send(message(BARRIER_REQUEST, xid=peer.take_xids(1)))
    frames = []
    while (frame := peer.receive())[1] != BARRIER_REPLY:
        frames.append(frame)
    return frames


def _request_role(peer: Connection, role: Role, generation: int) -> tuple[Role, int]:
    return decode_role(ask(peer, lambda xid: encode_role_request(role, generation, xid), "ROLE_REQUEST"))


def test_the_switch_has_its_datapath_id(bridge: DummyBridge, peer: Connection) -> None:
    in_database = bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"')
    assert f"{request_datapath_id(peer):016x}" == in_database


def test_ports_have_their_names_numbers_and_states(bridge: DummyBridge, peer: Connection) -> None:
    assert {port.name: port.number for port in request_ports(peer)} == {"p0": 1, "p1": 2, "ovsbr1": LOCAL_NUMBER}
    assert all(port.is_up for port in request_ports(peer))
    assert peer.numbers == {"p0": 1, "p1": 2}


def test_a_role_is_granted_and_an_old_generation_refused(peer: Connection) -> None:
    assert _request_role(peer, Role.MASTER, 5) == (Role.MASTER, 5)
    assert _request_role(peer, Role.NOCHANGE, 0) == (Role.MASTER, 5)
    with pytest.raises(SwitchError, match="refused ROLE_REQUEST: OFPRRFC_STALE"):
        _request_role(peer, Role.SLAVE, 4)


def test_flows_are_counted_and_listed_with_their_counters(bridge: DummyBridge, peer: Connection) -> None:
    bridge.add_flows("cookie=0x5, table=0, in_port=p0 actions=output:p1\ntable=3, actions=drop\n")
    bridge.send("p0", [udp_packet("10.0.0.1")], length=100)
    masks = (CookieMask(5, 0xFF), CookieMask(6, 0xFF), CookieMask(0, 0))
    assert count_flows(peer, masks) == (1, 0, 2)
    (seen,) = decode_flows(request_flows(peer, masks[:1]), peer.names)
    wanted = parse_flow("cookie=0x5, table=0, in_port=p0 actions=output:p1")
    assert (seen.flow, seen.packets, seen.bytes) == (wanted, 1, 100)
    assert 0 < seen.duration_s < 60
    (in_table,) = decode_flows(request_flows(peer, masks[2:], table=3), peer.names)
    assert in_table.flow.table == 3


def test_a_packet_goes_out(bridge: DummyBridge, peer: Connection) -> None:
    peer.send(encode_packet_out(PacketOut((Output("p1"),), _FRAME), peer.numbers, xid=peer.take_xids(1)))
    assert _wait_for_barrier(peer) == []
    assert bridge.sent("p1") == [_FRAME]
    assert bridge.sent("p0") == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("table=254, actions=drop", "OFPBRC_EPERM"),
        ("actions=output:4294967040", "OFPBAC_BAD_OUT_PORT"),
        ("tcp,tp_dst=0x10/0x10 actions=drop", None),
    ],
)
def test_a_refused_flow_is_named_and_nothing_is_changed(
    bridge: DummyBridge, peer: Connection, line: str, name: str | None
) -> None:
    mods = tuple(FlowMod(Command.ADD, parse_flow(each)) for each in ("priority=1,ip actions=drop", line))
    if name is None:
        send_bundle(peer, Bundle(mods), ofports=peer.numbers)
    else:
        with pytest.raises(BundleRejected) as caught:
            send_bundle(peer, Bundle(mods), ofports=peer.numbers)
        assert caught.value.error == name
    assert len(bridge.dump_flows()) == (0 if name else 2)


def test_a_field_without_its_prerequisite_is_refused(peer: Connection) -> None:
    flow = Flow(FlowKey(0, 1, Match(foreign=("oxm:80001c020035",))), 0, ())
    with pytest.raises(BundleRejected) as caught:
        send_bundle(peer, Bundle((FlowMod(Command.ADD, flow),)), ofports=peer.numbers)
    assert caught.value.error == "OFPBMC_BAD_PREREQ"


def test_an_unknown_message_is_refused_by_name(peer: Connection) -> None:
    peer.send(message(99, xid=peer.take_xids(1)))
    (frame,) = _wait_for_barrier(peer)
    assert (frame[1], decode_error(frame).name) == (ERROR, "OFPBRC_BAD_TYPE")


def test_a_bundle_can_be_dropped(bridge: DummyBridge, peer: Connection) -> None:
    bundle = Bundle((FlowMod(Command.ADD, parse_flow("priority=1,ip actions=drop")),))
    first = peer.take_xids(4)
    *parts, commit = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=peer.numbers)
    peer.send(b"".join((*parts, encode_discard(first, first + 3), commit)))
    *_, refused = _wait_for_barrier(peer)
    assert decode_error(refused).name == "OFPBFC_BAD_ID"
    assert bridge.dump_flows() == []


def test_a_flow_may_send_to_the_bridge_and_to_groups(bridge: DummyBridge, peer: Connection) -> None:
    bridge.ofctl("add-group", "group_id=5,type=all,bucket=output:p1")
    flow = parse_flow("priority=1,in_port=LOCAL actions=LOCAL,group:5")
    assert flow.actions == (Output(LOCAL), Foreign("group:5"))
    send_bundle(peer, Bundle((FlowMod(Command.ADD, flow),)), ofports=peer.numbers)
    assert bridge.dump_flows(version="OpenFlow14") == ["priority=1,in_port=LOCAL actions=LOCAL,group:5"]
    bridge.ofctl("del-groups")
