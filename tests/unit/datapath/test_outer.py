"""Outer headers of tunnels, as Open vSwitch prints them in matches and actions."""

from __future__ import annotations

import pytest

from tests.judged import assert_recorded
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.outer import encapsulations, parse_outer
from xenoovs.datapath.parse import parse_dump, parse_megaflow
from xenoovs.datapath.tunnel import TunnelPort, tunnel_owner, tunnel_port, tunnel_ports
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import BridgePorts

_REST = ",recirc_id(0),in_port(genev_sys_6081),eth(),eth_type(0x0800),ipv4(frag=no)"
_COUNTERS = ", packets:1, bytes:98, used:0.1s, offloaded:yes, dp:tc, actions:"


def _line(tunnel: str = "tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,flags(+key)", actions: str = "p0") -> str:
    return f"tunnel({tunnel}){_REST}{_COUNTERS}{actions}"


_IPV4 = (
    "eth(dst=02:00:00:00:00:02,src=02:00:00:00:00:01,dl_type=0x0800),"
    "ipv4(src=192.0.2.1,dst=192.0.2.12,proto={},tos=0,ttl=64,frag=0x4000)"
)
_IPV6 = "eth(dl_type=0x86dd),ipv6(src=2001:db8::1,dst=2001:db8::2,label=0,proto=17,tclass=0x0,hlimit=64)"
_PUSH = (
    f"tnl_push(tnl_port(vxlan_sys_4789),header(size=50,type=4,{_IPV4.format(17)},udp(src=0,dst=4789,csum=0x0),"
    "vxlan(flags=0x8000000,vni=0x7b)),out_port(br-ul))"
)
_SET = "set(tunnel(tun_id=0x{},dst=192.0.2.{},tp_dst=4789,flags(key))),vxlan_sys_4789"
SENT = {
    "set, Geneve": "set(tunnel(tun_id=0x1389,dst=192.0.2.12,ttl=64,tp_dst=6081,flags(key))),"
    "set(eth(dst=02:00:00:00:0d:02)),genev_sys_6081",
    "set, GRE": "set(tunnel(tun_id=0x7,src=192.0.2.1,dst=192.0.2.12,tos=0x1,ttl=64,flags(df|csum|key))),gre_sys",
    "pushed, VXLAN": f"{_PUSH},p1",
    # Bug: Open vSwitch before 3.0 clones each packet into a tunnel.
    "pushed in a clone": f"clone({_PUSH},u0)",
    "pushed, Geneve over IPv6": f"tnl_push(tnl_port(4),header(size=70,type=5,{_IPV6},udp(src=0,dst=6081,csum=0xffff),"
    "geneve(crit,vni=0x1c7,options({class=0xffff,type=0x80,len=4,0xa}))),out_port(100))",
    "pushed, GRE": f"tnl_push(tnl_port(3),header(size=42,type=3,{_IPV4.format(47)},"
    "gre((flags=0x2000,proto=0x6558),key=0x1e241)),out_port(1))",
    "two tunnels": f"{_SET.format(1, 12)},{_SET.format(2, 13)}",
}
HEADERS = {
    # Of OVN's plain switching: class 0x102 is OVN's, the data has the logical ports.
    "an option of OVN": "tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,ttl=0/0,tp_dst=6081,geneve({class=0x102,type=0x80,"
    "len=4,0x10002/0x7fffffff}{class=0xffff/0,type=0/0,len=8/0}),flags(-df+csum+key)",
    "IPv6, and attributes that no field has": "tun_id=0x7,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2,tos=0x1/0x3,"
    "vxlan(gbp(id=7)),new=1",
}


def test_outer_headers_and_where_packets_leave_in_a_tunnel(*, update_golden: bool) -> None:
    shown = {}
    for title, text in HEADERS.items():
        outer = parse_outer(text)
        fields = (f"{name}: {getattr(outer, name)!r}" for name in ("source", "destination", "is_ipv6", "geneve"))
        exact = (f"{name}: {outer.field(name)!r}, {outer.exact(name)}" for name in ("tun_id", "tp_dst", "ttl", "tos"))
        shown[title] = "\n".join([*fields, *exact])
    for title, actions in SENT.items():
        found = encapsulations(parse_megaflow(_line(actions=actions)).actions)
        shown[title] = "\n".join(map(repr, found))
    assert_recorded("parsed/outer.txt", shown, update=update_golden)


BAD = (
    *("tun_id=1z,src=192.0.2.2", "src=192.0.2.2,dst=192.0.2.256,flags(+key)", "src=192.0.2.2,ttl=300,flags(+key)"),
    *("src=192.0.2.2,src=192.0.2.3,flags(+key)", "src=192.0.2.2,flags(key+)", "src=192.0.2.2,stray,flags(+key)"),
    "geneve({class=0x1ffff,type=0x80,len=4,0x1}),flags()",
    "geneve({class=0x102,type=0x80,len=4,0x100000000}),flags()",
    *("geneve({class=0x102,type=0x80}),flags()", "geneve(class=0x102),flags()"),
)
BAD_ACTIONS = (
    *("set(tunnel(dst=1.2.3,flags(key))),genev_sys_6081", "p1,tnl_pop()", "tnl_push(tnl_port(4),out_port(1))"),
    "tnl_push(tnl_port(4),header(size=5,type=4,ipv4(src=1.1.1.1,dst=1.1.1,proto=17)),out_port(1))",
    "tnl_push(tnl_port(4),header(size=14,type=4,udp(src=0,dst=1)),out_port(1))",
)


def test_bad_tunnels_are_refused_with_their_place(*, update_golden: bool) -> None:
    shown = {}
    lines = {text: _line(text) for text in BAD} | {actions: _line(actions=actions) for actions in BAD_ACTIONS}
    for text, line in lines.items():
        with pytest.raises(ParseError) as caught:
            list(parse_dump(f"\n{line}\n"))
        shown[text] = str(caught.value)
    assert_recorded("parsed/bad_tunnels.txt", shown, update=update_golden)


_OVN = PortState("ovn-hv2-0", type="geneve", options={"remote_ip": "192.0.2.2", "key": "flow", "csum": "true"})
_OURS = PortState("gnv0", type="geneve", options={"remote_ip": "flow", "key": "flow", "local_ip": "192.0.2.1"})
_BRIDGES = (BridgeState("br-int", (_OVN,)), BridgeState("ovsbr1", (_OURS,)))


def _megaflow(tunnel: str, in_port: str = "genev_sys_6081") -> str:
    keys = f"tunnel({tunnel}),recirc_id(0),in_port({in_port}),eth(),eth_type(0x0800),ipv4(frag=no)"
    return f"{keys}, packets:1, bytes:98, used:0.1s, offloaded:yes, dp:tc, actions:p0"


_BY_KEY = PortState("keyed", type="vxlan", options={"remote_ip": "flow", "key": "7"})
_FIXED = PortState("fixed", type="vxlan", options={"remote_ip": "192.0.2.2", "key": "flow"})
_FLOW_KEY = {"remote_ip": "192.0.2.2", "key": "flow"}
_SENT = "src=192.0.2.2,dst=192.0.2.1"
_SENT6 = "tun_id=0x5,ipv6_src=2001:db8::{},ipv6_dst=2001:db8::1"


def _port(**options: str) -> PortState:
    return PortState("a", type="geneve", options=options)


@pytest.mark.parametrize(
    ("tunnel", "ports", "owner"),
    [
        # The fixed remote counts before remote_ip=flow.
        (f"tun_id=0x1,{_SENT},geneve({{class=0x102,type=0x80,len=4,0x20001}}),flags(+key)", (), "br-int"),
        ("tun_id=0x1389,src=192.0.2.12,dst=192.0.2.1,ttl=0/0,tp_dst=6081,geneve(),flags(+key)", (), "ovsbr1"),
        ("tun_id=0x1389,src=192.0.2.12,dst=192.0.2.99,tp_dst=6081,flags(+key)", (), None),
        ("tun_id=0x1389,dst=192.0.2.1,tp_dst=6081,flags(+key)", (), "ovsbr1"),
        # A key counts before the addresses.
        (f"tun_id=0x7,{_SENT},flags(+key)", (_BY_KEY, _FIXED), "br-keyed"),
        (f"tun_id=0x8,{_SENT},flags(+key)", (_BY_KEY, _FIXED), "br-fixed"),
        # Without a key a port takes key 0 alone.
        (f"tun_id=0x0,{_SENT}", (_port(remote_ip="192.0.2.2"),), "br-a"),
        (f"tun_id=0x5,{_SENT}", (_port(remote_ip="192.0.2.2"),), None),
        # Another type, and another UDP port.
        (f"tun_id=0x5,{_SENT},flags(+key)", (PortState("a", type="vxlan", options=_FLOW_KEY),), None),
        (f"tun_id=0x5,{_SENT}", (_port(**_FLOW_KEY, dst_port="6082"),), None),
        (_SENT6.format(2), (_port(remote_ip="2001:db8::2", key="flow"),), "br-a"),
        (_SENT6.format(3), (_port(remote_ip="2001:db8::2", key="flow"),), None),
    ],
)
def test_the_bridge_whose_port_a_packet_enters_by(tunnel: str, ports: tuple[PortState, ...], owner: str | None) -> None:
    bridges = [BridgeState(f"br-{port.name}", (port,)) for port in ports] or _BRIDGES
    device = "vxlan_sys_4789" if _BY_KEY in ports else "genev_sys_6081"
    assert tunnel_owner(parse_megaflow(_megaflow(tunnel, device)), tunnel_ports(bridges)) == owner


def test_a_bridge_has_the_megaflows_of_its_own_tunnels() -> None:
    line = _megaflow("tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,tp_dst=6081,flags(+key)")
    names = [
        state.name
        for state in _BRIDGES
        if BridgePorts(frozenset(), frozenset({"geneve"}), tunnel_ports(_BRIDGES), state.name).has(parse_megaflow(line))
    ]
    assert names == ["br-int"]


@pytest.mark.parametrize(
    ("options", "key"), [({"remote_ip": "host.example"}, 0), ({"key": "x"}, None), ({"local_ip": "1.2.3"}, 0), ({}, 0)]
)
def test_what_cannot_be_read_of_options_is_any(options: dict[str, str], key: int | None) -> None:
    assert tunnel_port("geneve", options) == TunnelPort("genev_sys_", None, None, key)
    assert tunnel_port("system", options) is None
