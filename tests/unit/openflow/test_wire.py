"""Messages: what OpenFlow 1.4 cannot express, bytes that are none, streams, and the first messages on a connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ovs.scripted_switch import packet_in
from xenoovs.errors import NotEncodable, ParseError, WireError
from xenoovs.openflow.flow import (
    Action,
    Command,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Match,
    Output,
    SetField,
    exact,
    match_of,
)
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import (
    BARRIER_REQUEST,
    ECHO_REQUEST,
    HEADER,
    NICIRA,
    NO_NUMBERS,
    Error,
    Frames,
    decode_error,
    decode_hello,
    encode_hello,
    message,
    name_versions,
)
from xenoovs.openflow.wire.message import (
    Port,
    PortReason,
    Role,
    decode_count,
    decode_features,
    decode_flows,
    decode_packet_in,
    decode_port_status,
    decode_ports,
    decode_role,
    encode_packet_out,
    encode_role_request,
    names_of,
    numbers_of,
)


def _flow(*actions: Action, match: Match = Match(), priority: int = 1, options: tuple[str, ...] = ()) -> FlowMod:  # noqa: B008
    return FlowMod(Command.ADD, Flow(FlowKey(0, priority, match), 0, actions, options))


_FLOW_MOD = bytes.fromhex("""
05 0e 0090 00000009
786f010100000005 0000000000000000
01 00 0000 0000 03e7 ffffffff ffffffff ffffffff 0000 0000
0001 0026
80000004 00000001
00010004 00000005
80000a02 0800
80001708 00000001 00000003
0000
0004 0038 00000000
0019 0010 80000606 020000000001 0000
0000 0010 00000002 0000 000000000000
ffff 0010 00002320 000e fff8 04 000000
""")


def test_a_flow_of_xenoovs() -> None:
    flow = parse_flow(
        "cookie=0x786f010100000005, table=1, priority=999,ip,reg0=0x5,in_port=p0,nw_src=0.0.0.1/0.0.0.3 "
        "actions=mod_dl_dst:02:00:00:00:00:01,output:p1,resubmit(,4)"
    )
    assert encode_flow_mod(FlowMod(Command.ADD, flow), xid=9, ofports={"p0": 1, "p1": 2}) == _FLOW_MOD


def test_hello_and_role() -> None:
    assert encode_hello((4, 5), xid=1) == bytes.fromhex("05000010 00000001 00010008 00000030")
    assert encode_role_request(Role.MASTER, 3, xid=2) == bytes.fromhex(
        "05180018 00000002 00000002 00000000 0000000000000003"
    )


@pytest.mark.parametrize(
    ("mod", "part"),
    [
        (_flow(Output("p7")), "port p7"),
        (_flow(match=Match(in_port="p7")), "port p7"),
        (_flow(Foreign("ct(commit)")), "ct(commit)"),
        (_flow(match=Match(foreign=("vlan_tci=0x1005",))), "vlan_tci=0x1005"),
        (_flow(match=Match(foreign=("vlan_tci=0x1005/0xffff",))), "vlan_tci=0x1005/0xffff"),
        (_flow(Foreign("wire:xyz")), "wire:xyz"),
        (_flow(Foreign("wire:00")), "wire:00"),
        (_flow(Foreign("instruction:xyz")), "instruction:xyz"),
        (_flow(match=Match(foreign=("ct_state=+new",))), "ct_state=+new"),
        (_flow(match=Match(foreign=("oxm:xyz",))), "oxm:xyz"),
        (_flow(match=match_of((exact(Field.TP_DST, 53),))), "tp_dst"),
        (_flow(match=match_of((exact(Field.ICMP_TYPE, 8),))), "icmp_type"),
        (_flow(options=("idle_timeout=70000",)), "idle_timeout=70000"),
        (_flow(options=("bundled",)), "bundled"),
        (_flow(SetField(Field.REG0, 1 << 32)), "0x100000000"),
        (_flow(priority=1 << 16), "priority=65536 actions=drop"),
    ],
)
def test_a_flow_that_has_no_bytes(mod: FlowMod, part: str) -> None:
    with pytest.raises(NotEncodable) as refused:
        encode_flow_mod(mod, xid=1, ofports=NO_NUMBERS)
    assert refused.value.part == part


def test_a_message_that_has_no_bytes() -> None:
    with pytest.raises(NotEncodable, match="more than 65535 bytes"):
        encode_flow_mod(_flow(*[Output("ofport 1")] * 5000), xid=1, ofports=NO_NUMBERS)
    with pytest.raises(NotEncodable, match="more than 65535 bytes"):
        message(ECHO_REQUEST, bytes(1 << 16), xid=1)
    with pytest.raises(NotEncodable, match="port p7"):
        encode_packet_out((Output("p7"),), b"", NO_NUMBERS, xid=1)


@pytest.mark.parametrize(
    ("decode", "packed", "offset", "expected"),
    [
        (decode_error, "", 0, "the header of a message"),
        (decode_error, "0502000900000001", 2, "the length 8"),
        (decode_features, "0406000800000001", 0, "version 5 of OpenFlow"),
        (decode_role, "0502000800000001", 1, "a role reply"),
        (decode_error, "0501000a000000010001", 8, "type and code of an error"),
        (decode_features, "0506000c0000000100000000", 8, "the features of a switch"),
        (decode_features, f"0506002400000001{'00' * 28}", 32, "the end of the message"),
        (decode_role, "0519001800000001 00000009 00000000 0000000000000000", 8, "a role of a controller"),
        (decode_ports, "05130010000000010001000000000000", 8, "ports"),
        (decode_count, "05130010000000010002000000000000", 16, "sums over flows"),
        (lambda frame: list(decode_flows(frame, {})), "05130012000000010001000000000000 0030", 16, "a flow"),
    ],
)
def test_bytes_that_are_no_message(decode: Callable[[bytes], object], packed: str, offset: int, expected: str) -> None:
    with pytest.raises(WireError) as refused:
        decode(bytes.fromhex(packed))
    assert (refused.value.offset, refused.value.expected) == (offset, expected)
    assert isinstance(refused.value, ParseError)
    assert f"byte {offset}: expected {expected}" in str(refused.value)


def test_a_condition_is_read_to_its_end_only() -> None:
    """A condition whose length reaches over the end of the match."""
    whole = bytearray(packet_in(b""))
    whole[31] = 0x7F
    with pytest.raises(WireError, match="a condition and its whole value"):
        decode_packet_in(bytes(whole), {})


@pytest.mark.parametrize("header", [HEADER.pack(5, 0, 7, 0), HEADER.pack(0, 0, 8, 0), HEADER.pack(0x47, 0, 8, 0)])
def test_what_no_message_starts_with(header: bytes) -> None:
    with pytest.raises(WireError):
        list(Frames().feed(header))


@pytest.mark.parametrize(
    ("hello", "versions"),
    [
        ("01000008 00000001", {1}),
        ("04000008 00000001", {1, 2, 3, 4}),
        ("06000008 00000001", {1, 2, 3, 4, 5, 6}),
        ("04000010 00000001 00010008 00000030", {4, 5}),
        ("06000010 00000001 00010008 00000052", {1, 4, 6}),
        ("05000010 00000001 00020008 ffffffff", {1, 2, 3, 4, 5}),
        ("0600000c 00000001 00010003", {1, 2, 3, 4, 5, 6}),
        ("05000018 00000001 0007000500000000 0001000800000020", {5}),
        ("0500001a 00000001 00010008 00000020 00070006 aabb0000 0102", {5}),
    ],
)
def test_versions(hello: str, versions: set[int]) -> None:
    assert decode_hello(bytes.fromhex(hello)) == versions


def test_versions_have_the_names_of_open_vswitch() -> None:
    assert name_versions((5, 4, 1, 0, 7)) == ("OpenFlow10", "OpenFlow13", "OpenFlow14")


REFUSED = message(BARRIER_REQUEST, xid=77)


@pytest.mark.parametrize(
    ("error", "name", "refused_xid"),
    [
        (Error(5, 1, REFUSED), "OFPFMFC_TABLE_FULL", 77),
        (Error(5, 1, REFUSED[:7]), "OFPFMFC_TABLE_FULL", None),
        (Error(0xFFFF, 37, NICIRA.to_bytes(4, "big") + REFUSED), "NXFMFC_INVALID_TLV_FIELD", 77),
        (Error(5, 99), "type 5, code 99", None),
        (Error(99, 0), "type 99, code 0", None),
        (Error(0xFFFF, 3, bytes.fromhex("00001018")), "vendor 0x1018, code 3", None),
    ],
)
def test_an_error_has_a_name_or_numbers_and_names_the_message_it_refuses(
    error: Error, name: str, refused_xid: int | None
) -> None:
    assert (error.name, error.refused_xid) == (name, refused_xid)


def test_an_error_of_another_version_is_understood() -> None:
    error = decode_error(bytes.fromhex("01010016 00000001 0000 0000") + b"no version")
    assert (error.name, error.refused) == ("OFPHFC_INCOMPATIBLE", b"no version")


def test_ports_by_name_and_by_number_and_a_name_of_two_ports_means_neither() -> None:
    """Open vSwitch cuts the names of two ports to the same text; a flow to one was read as a flow to the other."""
    twice = (Port(2, "a-name-of-15-by", 0), Port(3, "a-name-of-15-by", 0))
    ports = (Port(1, "p0", 0), *twice, Port(4, "LOCAL", 0), Port(0xFFFFFFFE, "br0", 0))
    assert numbers_of(ports) == {"p0": 1}
    assert names_of(ports) == {1: "p0"}


@pytest.mark.parametrize(("config", "state", "is_up"), [(0, 4, True), (0, 1, False), (1, 0, False)])
def test_a_port_is_up_with_a_link_and_unless_set_down(config: int, state: int, is_up: bool) -> None:
    assert Port(1, "p0", 0, config=config, state=state).is_up is is_up


def test_a_name_cut_within_a_character_can_be_shown() -> None:
    """Open vSwitch cuts names after 15 bytes, also within a character."""
    name = ("x" * 14 + "é").encode()[:15]
    body = bytes(8) + bytes.fromhex("00000001 0028 0000 020000000001 0000") + name.ljust(16, b"\0") + bytes(8)
    wanted = Port(1, "x" * 14 + "\\xc3", 0x020000000001)
    assert decode_port_status(message(12, body, xid=1)) == (PortReason.ADD, wanted)
