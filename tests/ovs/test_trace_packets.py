"""A real ofproto/trace reads every packet that is asked about, and takes it for the packet that was meant."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.ovs.dummy import DummyBridge
from xenoovs.judge.trace import parse_trace, render_packet
from xenoovs.model.packet import Packet

pytestmark = pytest.mark.ovs


@pytest.mark.parametrize(
    ("addresses", "protocol", "l4", "condition"),
    [
        (("198.51.100.7", "192.0.2.10"), 17, (4000, 53), "udp,tp_dst=53"),
        (("198.51.100.7", "192.0.2.10"), 132, (4000, 53), "sctp,tp_dst=53"),
        (("198.51.100.7", "192.0.2.10"), 1, (8, 0), "icmp,icmp_type=8"),
        (("198.51.100.7", "192.0.2.10"), 47, (0, 0), "ip,nw_proto=47"),
        (("198.51.100.7", "192.0.2.10"), 58, (0, 0), "ip,nw_proto=58"),
        (("2001:db8::7", "2001:db8::10"), 6, (4000, 80), "tcp6,tp_dst=80"),
        (("2001:db8::7", "2001:db8::10"), 58, (128, 0), "icmp6,icmpv6_type=128"),
        (("2001:db8::7", "2001:db8::10"), 1, (0, 0), "ipv6,nw_proto=1"),
        (("2001:db8::7", "2001:db8::10"), 89, (0, 0), "ipv6,nw_proto=89"),
    ],
)
def test_bug_icmpv6_and_rare_protocols_could_not_be_traced(
    bridge: DummyBridge, addresses: tuple[str, str], protocol: int, l4: tuple[int, int], condition: str
) -> None:
    bridge.add_flows(f"priority=9,{condition} actions=output:p1\n")
    packet = Packet("p0", ip_address(addresses[0]), ip_address(addresses[1]), protocol, *l4)
    assert parse_trace(bridge.trace(render_packet(packet))).ports == ("p1",)
