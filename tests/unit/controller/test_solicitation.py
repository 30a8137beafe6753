"""Solicitations and advertisements of RFC 4861; those that it requires to drop are dropped."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.balancer import balancer, claim, service
from xenoovs.controller.neighbour_discovery import (
    Solicitation,
    advertisement,
    answer,
    answer_flows,
    macs_of,
    parse_solicitation,
)
from xenoovs.controller.session import XID
from xenoovs.model.address import Mac
from xenoovs.openflow.flow import Match, Output
from xenoovs.openflow.text import render_flow
from xenoovs.openflow.wire.message import PacketIn, encode_packet_out

VIP, HOST = IPv6Address("2001:db8::80").packed, IPv6Address("2001:db8::9").packed
VIP_MAC, HOST_MAC = bytes.fromhex("02005e100001"), bytes.fromhex("020000000009")
GROUP, GROUP_MAC = IPv6Address("ff02::1:ff00:80").packed, bytes.fromhex("3333ff000080")
UNSPECIFIED = bytes(16)


def sum16(data: bytes) -> int:
    """The Internet checksum by the book (RFC 1071, 4.1)."""
    total = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def solicitation(
    *,
    source: bytes = HOST,
    destination: bytes = GROUP,
    target: bytes = VIP,
    options: bytes = b"\x01\x01" + HOST_MAC,
    hops: int = 255,
    kind: int = 135,
    code: int = 0,
    spoil: int = 0,
    tags: bytes = b"",
    mac: bytes = HOST_MAC,
) -> bytes:
    """A frame with a right checksum, to which `spoil` is added."""
    body = bytes((kind, code, 0, 0)) + bytes(4) + target + options
    pseudo = source + destination + len(body).to_bytes(4, "big") + bytes((0, 0, 0, 58))
    body = body[:2] + (sum16(pseudo + body) + spoil & 0xFFFF).to_bytes(2, "big") + body[4:]
    header = bytes.fromhex("60000000") + len(body).to_bytes(2, "big") + bytes((58, hops)) + source + destination
    return GROUP_MAC + mac + tags + b"\x86\xdd" + header + body


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(solicitation(mac=bytes.fromhex("0200000000ff")), id="the address in the option"),
        pytest.param(solicitation(options=b"", destination=VIP), id="without an option: where it came from"),
        pytest.param(solicitation(options=b"\x0e\x01nonce!\x01\x01" + HOST_MAC), id="behind another option"),
        pytest.param(solicitation() + bytes(10), id="more behind the packet"),
    ],
)
def test_where_the_answer_goes(frame: bytes) -> None:
    assert parse_solicitation(frame) == Solicitation(VIP, HOST, HOST_MAC)


@pytest.mark.parametrize(
    "frame",
    [
        solicitation(hops=254),
        solicitation(kind=136),
        solicitation(code=1),
        solicitation(spoil=1),
        solicitation(target=GROUP),
        solicitation(options=b"\x01\x00" + HOST_MAC),
        solicitation(options=b"\x01\x02" + HOST_MAC),
        solicitation(options=b"\x01"),
        solicitation(source=UNSPECIFIED),
        solicitation(source=UNSPECIFIED, options=b"", destination=VIP),
        solicitation(options=b"\x01\x01" + GROUP_MAC),
        solicitation(options=b"", mac=GROUP_MAC),
        solicitation()[:-1],
        solicitation().replace(b"\x86\xdd", b"\x08\x00"),
        b"",
    ],
    ids=[
        *("from beyond a router", "an advertisement", "code 1", "a wrong checksum", "a group as target"),
        *("an option of no length", "an option beyond the end", "half an option", "no source but an option"),
        *("no source but no group", "a group's MAC in the option", "a group's MAC as sender", "cut", "IPv4", "nothing"),
    ],
)
def test_invalid_solicitations_are_dropped(frame: bytes) -> None:
    assert parse_solicitation(frame) is None


def test_the_answer_to_a_host() -> None:
    answer = advertisement(Solicitation(VIP, HOST, HOST_MAC), VIP_MAC)
    assert answer[:14] == HOST_MAC + VIP_MAC + b"\x86\xdd"
    assert answer[14:22] == bytes.fromhex("60000000 0020 3a ff")
    assert answer[22:54] == VIP + HOST
    assert answer[54:56] == bytes((136, 0))
    assert answer[58:] == bytes.fromhex("60000000") + VIP + b"\x02\x01" + VIP_MAC


def test_the_answer_to_duplicate_address_detection_goes_to_all_nodes() -> None:
    asked = parse_solicitation(solicitation(source=UNSPECIFIED, options=b""))
    assert asked is not None
    answer = advertisement(asked, VIP_MAC)
    all_nodes = IPv6Address("ff02::1").packed
    assert answer[:6] == bytes.fromhex("333300000001")
    assert answer[22:54] == VIP + all_nodes
    assert answer[58:62] == bytes.fromhex("20000000")


def test_tags_are_sent_back() -> None:
    tags = bytes.fromhex("88a80007 81000005")
    asked = parse_solicitation(solicitation(tags=tags))
    assert asked == Solicitation(VIP, HOST, HOST_MAC, tags)
    assert advertisement(asked, VIP_MAC)[12:22] == tags + b"\x86\xdd"


@given(target=st.binary(min_size=16, max_size=16), host=st.binary(min_size=16, max_size=16))
def test_every_answer_has_its_checksum(target: bytes, host: bytes) -> None:
    answer = advertisement(Solicitation(target, host, HOST_MAC), VIP_MAC)
    assert sum16(answer[22:54] + bytes((0, 0, 0, 32, 0, 0, 0, 58)) + answer[54:]) == 0


@given(cut=st.integers(0, 90), put=st.binary(max_size=4), at=st.integers(0, 90), data=st.binary(max_size=100))
def test_any_frame_is_a_solicitation_or_none(cut: int, put: bytes, at: int, data: bytes) -> None:
    whole = solicitation()
    for frame in (whole[:cut], whole[:at] + put + whole[at + len(put) :], data):
        asked = parse_solicitation(frame)
        assert asked is None or (len(asked.target), len(asked.source), len(asked.mac)) == (16, 16, 6)


_BOTH = replace(
    service(claim(ip_address("192.0.2.80"), ip_address("2001:db8::80"))), vip_mac=Mac(int.from_bytes(VIP_MAC, "big"))
)
_SILENT = service(claim(ip_address("2001:db8::81")), name="silent")
_BALANCER = balancer(_BOTH, _SILENT, ingress=("p0", "p2"))
_MACS, _PORTS = macs_of(_BALANCER), {"p0": 1, "p2": 2}


def _packet(frame: bytes, *, in_port: str | None = "p0") -> PacketIn:
    return PacketIn(Match(in_port=in_port), frame)


def test_the_answer_leaves_by_the_port_of_the_solicitation() -> None:
    frame = advertisement(Solicitation(VIP, HOST, HOST_MAC), VIP_MAC)
    sent = encode_packet_out((Output("p2"),), frame, _PORTS, xid=XID)
    assert answer(_packet(solicitation(), in_port="p2"), _MACS, _PORTS) == sent


def test_other_packets_get_no_answer() -> None:
    assert answer(_packet(solicitation(target=ip_address("2001:db8::81").packed)), _MACS, _PORTS) is None
    assert answer(_packet(solicitation(hops=64)), _MACS, _PORTS) is None
    assert answer(_packet(solicitation(), in_port=None), _MACS, _PORTS) is None


def test_the_flows_send_only_packets_for_our_addresses_and_for_seconds_only() -> None:
    assert [render_flow(flow) for flow in answer_flows(_BALANCER)] == [
        f"cookie=0x786e000000000000, hard_timeout=10, priority=2001,icmp6,in_port={port},icmp_type=135,icmp_code=0,"
        "nd_target=2001:db8::80 actions=CONTROLLER:65535"
        for port in ("p0", "p2")
    ]
    # Which of several services answers for an address: tests/property/test_compile_program.py.
    of_prefix = replace(service(claim(ip_network("2001:db8::80/121"))), vip_mac=Mac(1))
    assert [flow.match.foreign for flow in answer_flows(balancer(of_prefix))] == [("nd_target=2001:db8::80/121",)]
    assert list(answer_flows(balancer(service(claim(ip_address("192.0.2.80")))))) == []
