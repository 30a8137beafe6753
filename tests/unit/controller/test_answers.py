"""Which packets are answered, with what, and which flows send them to the controller."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from struct import pack

from tests.ovs.scripted_switch import packet_in
from tests.unit.balancer import balancer, claim, service
from tests.unit.controller.test_solicitation import HOST_MAC, VIP_MAC, solicitation
from xenoovs.controller.neighbour_discovery import answer, answer_flows, macs_of, parse_solicitation
from xenoovs.model.address import Mac
from xenoovs.openflow.flow import Match, Output
from xenoovs.openflow.text import render_flow
from xenoovs.openflow.wire.frame import CONTROLLER
from xenoovs.openflow.wire.message import NO_BUFFER, PacketIn, PacketOut, decode_packet_in, encode_packet_out

_BOTH = replace(
    service(claim(ip_address("192.0.2.80"), ip_address("2001:db8::80"))), vip_mac=Mac(int.from_bytes(VIP_MAC, "big"))
)
_SILENT = service(claim(ip_address("2001:db8::81")), name="silent")
_BALANCER = balancer(_BOTH, _SILENT, ingress=("p0", "p2"))
_MACS = macs_of(_BALANCER)


def _packet(frame: bytes, *, in_port: str | None = "p0") -> PacketIn:
    return PacketIn(Match(in_port=in_port), frame)


def test_only_ipv6_addresses_with_a_mac_are_answered_for() -> None:
    assert {int(IPv6Address("2001:db8::80")): VIP_MAC} == _MACS


def test_the_answer_leaves_by_the_port_of_the_solicitation() -> None:
    out = answer(_packet(solicitation(), in_port="p2"), _MACS)
    assert isinstance(out, PacketOut)
    assert out.actions == (Output("p2"),)
    assert out.data[:12] == HOST_MAC + VIP_MAC


def test_other_packets_get_no_answer() -> None:
    assert answer(_packet(solicitation(target=ip_address("2001:db8::81").packed)), _MACS) is None
    assert answer(_packet(solicitation(hops=64)), _MACS) is None
    assert answer(_packet(solicitation(), in_port=None), _MACS) is None


def test_an_advertisement_is_not_answered() -> None:
    """Two controllers on one link do not answer each other for ever."""
    out = answer(_packet(solicitation()), _MACS)
    assert out is not None
    assert parse_solicitation(out.data) is None


def test_the_flows_send_only_packets_for_our_addresses_and_for_seconds_only() -> None:
    assert [render_flow(flow) for flow in answer_flows(_BALANCER)] == [
        f"cookie=0x786e000000000000, hard_timeout=10, priority=2001,icmp6,in_port={port},icmp_type=135,icmp_code=0,"
        "nd_target=2001:db8::80 actions=CONTROLLER:65535"
        for port in ("p0", "p2")
    ]


def test_no_flows_without_ipv6() -> None:
    assert list(answer_flows(balancer(service(claim(ip_address("192.0.2.80")))))) == []


def test_from_bytes_to_bytes() -> None:
    packet = decode_packet_in(packet_in(solicitation()), {1: "p0"})
    assert packet == _packet(solicitation())
    out = answer(packet, _MACS)
    assert out is not None
    sent = encode_packet_out(out, {"p0": 1}, xid=0)
    output = bytes.fromhex("0000001000000001 0000 000000000000")
    assert sent[8:24] == pack("!IIH6x", NO_BUFFER, CONTROLLER, len(output))
    assert sent[24:] == output + out.data
