"""Foreign flows on the same bridge that no NIC of this kind offloads; those of xenoovs stay in hardware."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.nic.guest import ovs as switch
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from xenoovs.switch.process import run

_ELSEWHERE = Kind(destination="10.3.10.46")
_CONNTRACK = """\
priority=3000,udp,in_port=p0,nw_dst=10.3.10.46 actions=ct(table=9)
table=9,priority=1,ct_state=+new+trk,ip actions=ct(commit),output:pf0hpf
table=9,priority=1,ct_state=-new+trk,ip actions=output:pf0hpf
"""
_ADDRESSES_BYTES = 12
"""Of Ethernet, before the tag."""
_ETH_P_8021Q, _ETH_P_8021AD = 0x8100, 0x88A8
_GROUP = "group_id=1,type=select,bucket=output:p1,bucket=output:pf0hpf"


def conntrack(bench: Bench) -> None:
    """A stateful service on the bridge; Debian's kernel cannot offload recirculation (no CONFIG_NET_TC_SKB_EXT)."""
    bench.begin("dns", extra_flows=_CONNTRACK)
    bench.explain()
    bench.prime()
    bench.send(CLIENTS[:8], packets_each=2, kind=_ELSEWHERE)
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def foreign_rule(bench: Bench) -> None:
    """A rule of another program in traffic control, before those of Open vSwitch: it drops packets of a block."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before the rule")
    bench.judge("dns")
    drop = ("flower", "ip_proto", "udp", "src_ip", CLIENTS[0], "action", "drop")
    run(["tc", "filter", "add", "dev", "p0", "ingress", "protocol", "ip", "pref", "1", *drop])
    bench.send(CLIENTS[:4], packets_each=9)
    bench.xenoovs("verify-offload", "dns", "--output", "json")
    bench.xenoovs("verify-offload", "dns")
    bench.xenoovs("doctor", "dns", "--output", "json")
    run(["tc", "filter", "del", "dev", "p0", "ingress", "protocol", "ip", "pref", "1"])


def exporting(bench: Bench) -> None:
    """The bridge exports samples of packets by sFlow: every megaflow has an action that TC does not have."""
    bench.begin("dns")
    bench.explain()
    sampling = ("agent=127.0.0.1", 'target="127.0.0.1:6343"', "sampling=10")
    bench.ovs.vsctl("--", "--id=@s", "create", "sFlow", *sampling, "--", "set", "Bridge", switch.BRIDGE, "sflow=@s")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def mirrored(bench: Bench) -> None:
    """A mirror copies all packets to a veth, which is not on the eSwitch, so the NIC refuses every block."""
    bench.add_veth("x0")
    bench.begin("dns", ports=("p0", "p1", "pf0hpf", "x0"))
    copy = ("--id=@m", "create", "Mirror", "name=m0", "select-all=true", "output-port=@p")
    bench.ovs.vsctl(
        *("--", "--id=@p", "get", "Port", "x0", "--", *copy, "--", "set", "Bridge", switch.BRIDGE, "mirrors=@m")
    )
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def overriding(bench: Bench) -> None:
    """A foreign flow takes the packets of all blocks and tags them, which the NIC refuses; no client is served."""
    tag = "actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1"
    bench.begin("dns", extra_flows=f"priority=3000,udp,in_port=p0,nw_dst=10.3.10.45 {tag}\n")
    bench.prime(CLIENTS[:1])
    bench.send(CLIENTS[:1], packets_each=5)
    bench.look("one client")
    bench.judge("dns")
    bench.xenoovs("why", "dns", "--probe-driver", "--listen", "0", "--output", "json")


@dataclass(frozen=True, slots=True)
class Tagged(Kind):
    """Packets in the VLAN `vlan`, with priority 0, and in the provider's VLAN `outer` if it is not 0."""

    vlan: int = 5
    outer: int = 0

    def frame(self, source: str) -> bytes:
        plain = Kind.frame(self, source)
        tags = struct.pack("!HH", _ETH_P_8021AD, self.outer) if self.outer else b""
        tags += struct.pack("!HH", _ETH_P_8021Q, self.vlan)
        return plain[:_ADDRESSES_BYTES] + tags + plain[_ADDRESSES_BYTES:]


def tagged(bench: Bench) -> None:
    """A client is in two VLANs: flows match no tag, the megaflow that both share does, and this NIC matches none."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    for vlan in (5, 6):
        bench.prime(CLIENTS[:1], kind=Tagged(vlan=vlan))
        bench.send(CLIENTS[:1], packets_each=3, kind=Tagged(vlan=vlan))
    bench.look("after 5 packets of each client, and 3 of one in each of two VLANs")
    bench.judge("dns")


def tagged_twice(bench: Bench) -> None:
    """A client has two tags, and Open vSwitch looks behind both."""
    bench.begin("dns", settings=["vlan-limit=2"])
    bench.prime()
    bench.send(packets_each=5)
    bench.prime(CLIENTS[:1], kind=Tagged(outer=7))
    bench.send(CLIENTS[:1], packets_each=3, kind=Tagged(outer=7))
    bench.look("after 5 packets of each client, and 3 of one with two tags")
    bench.judge("dns")


def select_group(bench: Bench) -> None:
    """A select group beside our blocks: dp_hash and recirculation, which TC has no words for."""
    bench.begin("dns")
    bench.explain()
    run(["ovs-ofctl", "-O", "OpenFlow14", "add-group", switch.management(bench.ovs), _GROUP], env=bench.ovs.env)
    bench.add_flows("priority=3000,udp,in_port=p0,nw_dst=10.3.10.46 actions=group:1\n")
    bench.prime()
    bench.send(CLIENTS[:8], packets_each=2, kind=_ELSEWHERE)
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")
