"""Packets as input of ofproto/trace."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
from xenoovs.judge.trace import (
    enters_tunnel,
    parse_detrace,
    parse_trace,
    parse_visited,
    render_packet,
)
from xenoovs.model.address import Mac
from xenoovs.model.packet import Packet
from xenoovs.model.tunnel import RemoteEnd, SwitchTunnel, TunnelType
from xenoovs.openflow.flow import is_ours

HERE = Path(__file__).parent / "traces"
V4 = ("198.51.100.7", "192.0.2.10")
V6 = ("2001:db8::7", "2001:db8::10")

PACKETS = (
    *((V4, protocol, 8, 1) for protocol in (1, 17, 132)),
    # Bug: ICMP of version 6 was written with the fields of ICMP, as were other protocols.
    *((V6, protocol, 8, 1) for protocol in (6, 58)),
    *((V4, protocol, 0, 0) for protocol in (47, 58)),
    *((V6, protocol, 0, 0) for protocol in (1, 47)),
)
COUNTERS = "duration=12s, n_packets=1, n_bytes=98, n_offload_packets=1, n_offload_bytes=98, "
DETRACED = {
    "flows": f"ovsbr1\n  cookie=0x786f0100deadbeef, {COUNTERS}priority=936,ip,in_port=1,nw_dst=10.3.10.45,actions="
    f"set_field:0x5->reg0,resubmit(,1)\n  cookie=0x5678, table_id=1, {COUNTERS}priority=10,ip,"
    "nw_src=0.0.0.0/0.0.0.1,actions=output:2\n",
    # ovs-vswitchd leaves out a cookie of 0, so the most common foreign flows were not named.
    "flows without cookie and with the default priority": f"{COUNTERS}ip,nw_tos=184,actions=output:2\n"
    f"{COUNTERS},actions=NORMAL\n",
    "an error and a group": "UFID was not found for system@ovs-system\n"
    "group_id=1,type=select,bucket=weight:1,actions=output:2\n",
    "an error": "Cache was not found\n",
    "nothing": "",
}
INTO_TUNNEL = (HERE / "into_tunnel.txt").read_text()
TRACES = {
    # OVN has 7 flows before it, which write registers or nothing; what follows in the trace is the next link.
    "a link that is tracked ends at the flow with ct": (HERE / "tracked.txt").read_text(),
    "a link behind a hash goes on with the flow that hashed": (HERE / "hashed.txt").read_text(),
    "a link into a tunnel visits two bridges": INTO_TUNNEL,
    "flows behind another bridge are of the first one again": INTO_TUNNEL.replace(
        "40. priority 0\n    drop", "40. priority 0\n    output:7"
    ),
    **{
        f"no flows in {text!r}": text
        for text in ("", "Final flow: ip\n", "syntax error", "    drop\n", "\n=====================\n 0. x")
    },
}


def test_packets_of_traces_and_the_flows_that_they_visit(*, update_golden: bool) -> None:
    shown = {}
    for (source, destination), protocol, first, second in PACKETS:
        packet = Packet("p0", ip_address(source), ip_address(destination), protocol, first, second)
        shown[f"protocol {protocol} from {source}"] = render_packet(packet)
    for title, text in DETRACED.items():
        found = (f"{each}{' (ours)' * is_ours(int(each[7:].partition(',')[0], 16))}" for each in parse_detrace(text))
        shown[f"detrace: {title}"] = "\n".join(found) or "no flow"
    for title, text in TRACES.items():
        shown[title] = "\n".join(map(str, parse_visited(text))) or "no flow"
    assert_recorded("parsed/traces.txt", shown, update=update_golden)


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


@given(st.text(alphabet=' 0123.\n:(){}->abcdeprioytk,="#', max_size=200))
def test_any_text_is_read(text: str) -> None:
    parse_visited(text)
