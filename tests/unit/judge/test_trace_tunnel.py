"""The output of ofproto/trace for packets to backends behind tunnels."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from xenoovs.judge.trace import enters_tunnel, parse_trace
from xenoovs.model.address import Mac
from xenoovs.model.packet import Packet
from xenoovs.model.tunnel import RemoteEnd, SwitchTunnel, TunnelType

PACKET = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 17, 40000, 53)
TUNNEL = SwitchTunnel("gnv0", TunnelType.GENEVE, IPv4Address("192.168.77.1"))
END = RemoteEnd(TUNNEL, "gnv0", IPv4Address("192.168.77.11"), 5001, Mac(0x020000000D01))
KERNEL = (
    "set(tunnel(tun_id=0x1389,src=192.168.77.1,dst=192.168.77.11,ttl=64,tp_dst=6081,flags(df|key))),"
    "set(eth(dst=02:00:00:00:0d:01)),genev_sys_6081"
)
USERSPACE = (
    "set(eth(dst=02:00:00:00:0d:01)),tnl_push(tnl_port(genev_sys_6081),header(size=50,type=5,"
    "eth(dst=02:78:6f:00:00:09,src=02:78:6f:00:00:0d,dl_type=0x0800),ipv4(src=192.168.77.1,dst=192.168.77.11,"
    "proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=6081,csum=0x0),geneve(vni=0x1389)),out_port(xo-br-ul)),xo-ul"
)


@pytest.mark.parametrize("actions", [KERNEL, USERSPACE])
@pytest.mark.parametrize(
    ("before", "after", "agrees"),
    [
        ("0x1389", "0x1389", True),
        ("0x1389", "0x138a", False),
        ("192.168.77.11", "192.168.77.12", False),
        ("192.168.77.1,", "192.168.77.2,", False),
        ("02:00:00:00:0d:01", "02:00:00:00:0d:02", False),
    ],
)
def test_bug_a_trace_into_a_tunnel_differed_as_the_datapath_names_another_port(
    actions: str, before: str, after: str, agrees: bool
) -> None:
    text = f"Megaflow: recirc_id=0\nDatapath actions: {actions.replace(before, after)}\n"
    assert enters_tunnel(PACKET, END, parse_trace(text)) is agrees
