"""Packets as input of ofproto/trace."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.judge.trace import (
    Origin,
    VisitedFlow,
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

V4 = ("198.51.100.7", "192.0.2.10")
V6 = ("2001:db8::7", "2001:db8::10")


@pytest.mark.parametrize(
    ("addresses", "protocol", "ports", "wanted"),
    [
        (V4, 17, (8, 1), ["udp", "udp_src=8", "udp_dst=1"]),
        (V6, 6, (8, 1), ["tcp6", "tcp_src=8", "tcp_dst=1"]),
        (V4, 132, (8, 1), ["sctp", "sctp_src=8", "sctp_dst=1"]),
        (V4, 1, (8, 1), ["icmp", "icmp_type=8", "icmp_code=1"]),
        # Bug: it was written with the fields of ICMP, as were other protocols.
        (V6, 58, (8, 1), ["icmp6", "icmpv6_type=8", "icmpv6_code=1"]),
        (V4, 47, (0, 0), ["ip", "nw_proto=47"]),
        (V6, 47, (0, 0), ["ipv6", "nw_proto=47"]),
        (V4, 58, (0, 0), ["ip", "nw_proto=58"]),
        (V6, 1, (0, 0), ["ipv6", "nw_proto=1"]),
    ],
)
def test_protocols_by_name(
    addresses: tuple[str, str], protocol: int, ports: tuple[int, int], wanted: list[str]
) -> None:
    packet = Packet("p0", ip_address(addresses[0]), ip_address(addresses[1]), protocol, *ports)
    parts = render_packet(packet).split(",")[3:]
    assert [part for part in parts if not part.endswith(addresses) and part != "nw_ttl=64"] == wanted


ANSWER = """ovsbr1
  cookie=0x786f0100deadbeef, duration=12s, n_packets=1, n_bytes=98, n_offload_packets=1, n_offload_bytes=98, priority=936,ip,in_port=1,nw_dst=10.3.10.45,actions=set_field:0x5->reg0,resubmit(,1)
  cookie=0x5678, table_id=1, duration=12s, n_packets=1, n_bytes=98, priority=10,ip,nw_src=0.0.0.0/0.0.0.1,actions=output:2
"""  # noqa: E501


def test_flows_have_cookie_table_and_text() -> None:
    ours, theirs = parse_detrace(ANSWER)
    assert (is_ours(ours.cookie), ours.table) == (True, 0)
    assert ours.text.startswith("priority=936,ip,in_port=1")
    assert theirs == Origin(0x5678, 1, "priority=10,ip,nw_src=0.0.0.0/0.0.0.1,actions=output:2")
    assert str(theirs).startswith("cookie=0x5678, table=1, priority=10")


@pytest.mark.parametrize(
    "text",
    [
        "UFID was not found for system@ovs-system\ngroup_id=1,type=select,bucket=weight:1,actions=output:2\n",
        "Cache was not found\n",
        "",
    ],
)
def test_errors_and_groups_are_no_flows(text: str) -> None:
    assert parse_detrace(text) == ()


def test_a_flow_without_cookie_and_with_the_default_priority_is_foreign() -> None:
    """ovs-vswitchd leaves out a cookie of 0, so the most common foreign flows were not named."""
    counters = "duration=4s, n_packets=1, n_bytes=98, n_offload_packets=0, n_offload_bytes=0, "
    (first, second) = parse_detrace(f"{counters}ip,nw_tos=184,actions=output:2\n{counters},actions=NORMAL\n")
    assert first == Origin(0, 0, "ip,nw_tos=184,actions=output:2")
    assert second == Origin(0, 0, "actions=NORMAL")
    assert not is_ours(first.cookie)


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


HERE = Path(__file__).parent / "traces"
OUTPUT = VisitedFlow("br-int", 39, 0xBE4FB783, "reg15=0x1,metadata=0x1, priority 100", ("output:2",))


def _visited(name: str) -> tuple[VisitedFlow, ...]:
    return parse_visited((HERE / f"{name}.txt").read_text())


def test_a_link_that_is_tracked_ends_at_the_flow_with_ct() -> None:
    """OVN has 7 flows before it, which write registers or nothing; what follows in the trace is the next link."""
    match = "udp,reg0=0x4/0x4,metadata=0x1,nw_dst=10.0.0.100,tp_dst=80, priority 120"
    ct = "ct(table=15,zone=NXM_NX_REG13[0..15],nat)"
    assert _visited("tracked") == (VisitedFlow("br-int", 14, 0x909874A2, match, (ct,)),)


def test_a_link_behind_a_hash_goes_on_with_the_flow_that_hashed() -> None:
    (flow,) = _visited("hashed")
    assert (flow.bridge, flow.table, flow.cookie) == ("br-int", 20, 0x9CF9475E)
    assert [action.partition("(")[0] for action in flow.actions] == ["group:1", "ct"]


def test_a_link_into_a_tunnel_visits_two_bridges() -> None:
    assert _visited("into_tunnel") == (OUTPUT, VisitedFlow("br-ul", 0, 0, "priority 0", ("NORMAL",)))


def test_flows_behind_another_bridge_are_of_the_first_one_again() -> None:
    text = (HERE / "into_tunnel.txt").read_text().replace("40. priority 0\n    drop", "40. priority 0\n    output:7")
    assert parse_visited(text)[-1] == VisitedFlow("br-int", 40, 0, "priority 0", ("output:7",))


@pytest.mark.parametrize(
    "text", ["", "Final flow: ip\n", "syntax error", "    drop\n", "\n=====================\n 0. x"]
)
def test_a_text_without_flows_has_none(text: str) -> None:
    assert parse_visited(text) == ()


@given(st.text(alphabet=' 0123.\n:(){}->abcdeprioytk,="#', max_size=200))
def test_any_text_is_read(text: str) -> None:
    parse_visited(text)
