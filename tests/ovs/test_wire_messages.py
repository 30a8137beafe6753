"""Messages to a real Open vSwitch and its answers, besides flows; and how `ovs-ofctl ofp-parse` prints ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.ways import live_switch
from tests.property.flows import flows
from tests.property.wire_messages import OFPORTS
from tests.strategies import share
from xenoovs.controller.bridge import monitor_request
from xenoovs.errors import BundleRejected, SwitchError
from xenoovs.openflow.flow import (
    LOCAL,
    Bundle,
    Command,
    CookieMask,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Match,
    Output,
    SetField,
)
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ECHO_REPLY,
    ERROR,
    EXPERIMENTER,
    FEATURES_REQUEST,
    LOCAL_NUMBER,
    NICIRA,
    decode_error,
    encode_hello,
    error_name,
    message,
)
from xenoovs.openflow.wire.message import (
    PacketOut,
    Role,
    decode_role,
    encode_bundle,
    encode_count_request,
    encode_discard,
    encode_flows_request,
    encode_packet_out,
    encode_ports_request,
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
from xenoovs.switch.process import run

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


_PRINTED_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5").ljust(60, b"\0")
_BUNDLE = Bundle((FlowMod(Command.ADD, parse_flow("priority=1,ip actions=drop")),))
_COOKIES = CookieMask(0x786F << 48, 0xFFFF << 48)
_MESSAGES = (
    encode_hello((1, 4, 5), xid=1),
    message(ECHO_REPLY, b"x", xid=1),
    message(FEATURES_REQUEST, xid=1),
    message(BARRIER_REQUEST, xid=1),
    *(encode_role_request(role, 5, 1) for role in Role),
    *encode_bundle(_BUNDLE, bundle_id=3, first_xid=1, ofports={}),
    encode_discard(3, 1),
    encode_ports_request(1),
    encode_flows_request(_COOKIES, 1, table=3),
    encode_count_request(_COOKIES, 1),
    monitor_request(),
)


def test_fixed_messages(tmp_path: Path) -> None:
    printed = _printed(_MESSAGES, tmp_path / "messages")
    # The flow-mod within the bundle begins a line of its own.
    assert len(printed) == len(_MESSAGES) + 1
    assert [text for text in printed if "***" in text] == []


def test_errors_have_the_names_of_open_vswitch(tmp_path: Path) -> None:
    """All but three that Open vSwitch does not tell apart from others (13,2 to 13,4: bad properties)."""
    codes = [(kind, code) for kind in range(18) for code in range(17) if error_name(kind, code).startswith("OFP")]
    names = {error_name(*each): pack("!HH", *each) for each in codes if each not in ((13, 2), (13, 3), (13, 4))}
    for code in (2, 3, 4, 11, 12, 15):
        names[error_name(EXPERIMENTER, code, vendor=NICIRA)] = pack("!HHI", EXPERIMENTER, code, NICIRA)
    printed = _printed([message(ERROR, body, xid=1) for body in names.values()], tmp_path / "messages")
    assert [name for name, text in zip(names, printed, strict=True) if name not in text] == []


@share(0.3)
@given(wanted=st.lists(flows(), min_size=1, max_size=20))
def test_messages_about_flows(tmp_path_factory: pytest.TempPathFactory, wanted: list[Flow]) -> None:
    mods = [FlowMod(command, flow) for flow in wanted for command in Command]
    sent = [encode_flow_mod(mod, xid=1, ofports=OFPORTS) for mod in mods]
    # A packet that is sent out has no match, so no protocol whose ports an action could write.
    portless = [flow for flow in wanted if not _writes_ports(flow)]
    sent += [encode_packet_out(PacketOut(flow.actions, _PRINTED_FRAME), OFPORTS, xid=1) for flow in portless]
    printed = _printed(sent, tmp_path_factory.mktemp("wire") / "messages")
    assert len(printed) == len(sent)
    assert [text for text in printed if "***" in text] == []


def _writes_ports(flow: Flow) -> bool:
    return any(isinstance(action, SetField) and action.field in (Field.TP_SRC, Field.TP_DST) for action in flow.actions)


def _printed(messages: Sequence[bytes], path: Path) -> list[str]:
    """What ovs-ofctl prints of each; it writes `***` where it cannot decode."""
    path.write_bytes(b"".join(messages))
    text = run(["ovs-ofctl", "ofp-parse", str(path)], timeout_s=20).stdout
    return re.split(r"^(?=OFP[A-Z]+_)", text, flags=re.MULTILINE)[1:]
