"""Tunnels of several bridges share a device: which port a packet enters by, as tnl_find() of Open vSwitch has it."""

from __future__ import annotations

import pytest

from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tunnel import tunnel_owner, tunnel_port, tunnel_ports
from xenoovs.evidence.evidence import BridgePorts

_OVN = PortState("ovn-hv2-0", type="geneve", options={"remote_ip": "192.0.2.2", "key": "flow", "csum": "true"})
_OURS = PortState("gnv0", type="geneve", options={"remote_ip": "flow", "key": "flow", "local_ip": "192.0.2.1"})
_BRIDGES = (BridgeState("br-int", (_OVN,)), BridgeState("ovsbr1", (_OURS,)))


def _megaflow(tunnel: str, in_port: str = "genev_sys_6081") -> str:
    keys = f"tunnel({tunnel}),recirc_id(0),in_port({in_port}),eth(),eth_type(0x0800),ipv4(frag=no)"
    return f"{keys}, packets:1, bytes:98, used:0.1s, offloaded:yes, dp:tc, actions:p0"


def _owner(tunnel: str, *ports: PortState, in_port: str = "genev_sys_6081") -> str | None:
    bridges = [BridgeState(f"br-{port.name}", (port,)) for port in ports] or _BRIDGES
    return tunnel_owner(parse_megaflow(_megaflow(tunnel, in_port)), tunnel_ports(bridges))


@pytest.mark.parametrize(
    ("tunnel", "owner"),
    [
        (
            "tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,geneve({class=0x102,type=0x80,len=4,0x20001}),flags(+key)",
            "br-int",
        ),
        ("tun_id=0x1389,src=192.0.2.12,dst=192.0.2.1,ttl=0/0,tp_dst=6081,geneve(),flags(+key)", "ovsbr1"),
        ("tun_id=0x1389,src=192.0.2.12,dst=192.0.2.99,tp_dst=6081,flags(+key)", None),
        ("tun_id=0x1389,dst=192.0.2.1,tp_dst=6081,flags(+key)", "ovsbr1"),
    ],
)
def test_two_bridges_with_geneve(tunnel: str, owner: str | None) -> None:
    """The fixed remote counts before remote_ip=flow."""
    assert _owner(tunnel) == owner


def test_a_key_counts_before_the_addresses() -> None:
    keyed = PortState("keyed", type="vxlan", options={"remote_ip": "flow", "key": "7"})
    fixed = PortState("fixed", type="vxlan", options={"remote_ip": "192.0.2.2", "key": "flow"})
    tunnel = "src=192.0.2.2,dst=192.0.2.1,flags(+key)"
    assert _owner(f"tun_id=0x7,{tunnel}", keyed, fixed, in_port="vxlan_sys_4789") == "br-keyed"
    assert _owner(f"tun_id=0x8,{tunnel}", keyed, fixed, in_port="vxlan_sys_4789") == "br-fixed"


def test_without_a_key_a_port_takes_key_0_alone() -> None:
    port = PortState("a", type="geneve", options={"remote_ip": "192.0.2.2"})
    assert _owner("tun_id=0x0,src=192.0.2.2,dst=192.0.2.1", port) == "br-a"
    assert _owner("tun_id=0x5,src=192.0.2.2,dst=192.0.2.1", port) is None


def test_ports_of_another_type_or_udp_port_take_nothing() -> None:
    options = {"remote_ip": "192.0.2.2", "key": "flow"}
    tunnel = "tun_id=0x5,src=192.0.2.2,dst=192.0.2.1"
    assert _owner(tunnel, PortState("a", type="vxlan", options=options)) is None
    assert _owner(tunnel, PortState("a", type="geneve", options={**options, "dst_port": "6082"})) is None
    assert tunnel_port("system", options) is None


def test_tunnels_over_ipv6() -> None:
    port = PortState("a", type="geneve", options={"remote_ip": "2001:db8::2", "key": "flow"})
    assert _owner("tun_id=0x5,ipv6_src=2001:db8::2,ipv6_dst=2001:db8::1", port) == "br-a"
    assert _owner("tun_id=0x5,ipv6_src=2001:db8::3,ipv6_dst=2001:db8::1", port) is None


def test_a_bridge_has_the_megaflows_of_its_own_tunnels() -> None:
    line = _megaflow("tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,tp_dst=6081,flags(+key)")
    names = [
        state.name
        for state in _BRIDGES
        if BridgePorts(frozenset(), ("genev_sys_",), tunnel_ports(_BRIDGES), state.name).has(parse_megaflow(line))
    ]
    assert names == ["br-int"]


@pytest.mark.parametrize("options", [{"remote_ip": "host.example"}, {"key": "x"}, {"local_ip": "1.2.3"}, {}])
def test_any_options_are_read(options: dict[str, str]) -> None:
    assert tunnel_port("geneve", options) is not None
