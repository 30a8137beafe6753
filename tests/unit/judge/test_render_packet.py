"""Packets as input of ofproto/trace."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.judge.trace import render_packet
from xenoovs.model.packet import Packet

V4 = ("198.51.100.7", "192.0.2.10")
V6 = ("2001:db8::7", "2001:db8::10")


def _ending(addresses: tuple[str, str], protocol: int, sport: int = 0, dport: int = 0) -> list[str]:
    """The parts of the text from the protocol on, without the addresses and the TTL."""
    packet = Packet("p0", ip_address(addresses[0]), ip_address(addresses[1]), protocol, sport, dport)
    parts = render_packet(packet).split(",")[3:]
    return [part for part in parts if not part.endswith(addresses) and part != "nw_ttl=64"]


@pytest.mark.parametrize(
    ("addresses", "protocol", "wanted"),
    [
        (V4, 17, ["udp", "udp_src=8", "udp_dst=1"]),
        (V6, 6, ["tcp6", "tcp_src=8", "tcp_dst=1"]),
        (V4, 132, ["sctp", "sctp_src=8", "sctp_dst=1"]),
        (V4, 1, ["icmp", "icmp_type=8", "icmp_code=1"]),
    ],
)
def test_protocols_by_name(addresses: tuple[str, str], protocol: int, wanted: list[str]) -> None:
    assert _ending(addresses, protocol, 8, 1) == wanted


def test_bug_icmpv6_was_written_with_the_fields_of_icmp() -> None:
    assert _ending(V6, 58, 128) == ["icmp6", "icmpv6_type=128", "icmpv6_code=0"]


@pytest.mark.parametrize(
    ("addresses", "protocol", "wanted"),
    [
        (V4, 47, ["ip", "nw_proto=47"]),
        (V6, 47, ["ipv6", "nw_proto=47"]),
        (V4, 58, ["ip", "nw_proto=58"]),
        (V6, 1, ["ipv6", "nw_proto=1"]),
    ],
)
def test_bug_other_protocols_were_written_as_icmp(addresses: tuple[str, str], protocol: int, wanted: list[str]) -> None:
    assert _ending(addresses, protocol) == wanted
