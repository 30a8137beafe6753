"""Others use the same bridge: foreign flows, rules of traffic control, ports beside the NIC, tags."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.nic.guest import ovs as switch
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import limit
from xenoovs.switch.process import run

# Of packets that stay in software every single one may cost an upcall and lines of log.
_FEW = CLIENTS[:3]
_FOREIGN = """\
priority=3000,icmp,in_port=p0,nw_dst=10.3.10.45,icmp_type=8 actions=output:p1
priority=3000,udp,in_port=p0,nw_dst=10.3.10.46 actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1
priority=3000,udp,in_port=p0,nw_dst=10.3.10.47 actions=output:LOCAL
priority=3000,udp,in_port=p0,nw_dst=10.3.10.48 actions=output(port=p1,max_len=64)
priority=3000,udp,in_port=p0,nw_dst=10.3.10.49 actions=ct(table=9)
table=9,priority=1,ct_state=+new+trk,ip actions=ct(commit),output:pf0hpf
table=9,priority=1,ct_state=-new+trk,ip actions=output:pf0hpf
"""
_GROUP = "group_id=1,type=select,bucket=output:p1,bucket=output:pf0hpf"
_OF_GROUP = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.50 actions=group:1\n"


def foreign(bench: Bench) -> None:
    """What this NIC refuses: the ICMP type, the local port, here also a tag; and what OVS does not even ask for.

    A truncated output, connection tracking (Debian's kernel cannot offload recirculation: no CONFIG_NET_TC_SKB_EXT),
    and a select group (dp_hash and recirculation, which TC has no words for).
    """
    limit(vlan="N")
    bench.begin("dns", extra_flows=_FOREIGN)
    bench.explain()
    run(["ovs-ofctl", "-O", "OpenFlow14", "add-group", switch.management(bench.ovs), _GROUP], env=bench.ovs.env)
    bench.add_flows(_OF_GROUP)
    kinds = [Kind(protocol="icmp"), *(Kind(destination=f"10.3.10.{host}") for host in range(46, 51))]
    bench.prime()
    for kind in kinds:
        bench.prime(_FEW, kind=kind)
    bench.look("primed")
    bench.send(packets_each=5)
    for kind in kinds:
        bench.send(_FEW, packets_each=2, kind=kind)
    bench.look("after 5 packets of each client, 2 of a few to foreign flows")
    bench.judge("dns", recorded=True, simulated=True)


def foreign_port(bench: Bench) -> None:
    """One backend is behind a veth, which is not on the eSwitch; traffic also enters there."""
    bench.add_veth("x0")
    from_veth = "priority=3000,udp,in_port=x0 actions=output:p1\n"
    bench.begin("foreign_port", extra_flows=from_veth, ports=("p0", "p1", "x0"))
    bench.prime()
    bench.prime(port="x0")
    bench.look("primed")
    bench.send(packets_each=5)
    bench.send(packets_each=3, port="x0")
    bench.look("after 5 packets of each client by p0 and 3 by x0")
    bench.judge("foreign_port", recorded=True, simulated=True)


def lost(bench: Bench) -> None:
    """A rule of another program, before those of OVS, drops packets of a block; then the port of the backends goes."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    drop = ("flower", "ip_proto", "udp", "src_ip", CLIENTS[0], "action", "drop")
    run(["tc", "filter", "add", "dev", "p0", "ingress", "protocol", "ip", "pref", "1", *drop])
    bench.send(CLIENTS[:4], packets_each=9)
    bench.xenoovs("verify-offload", "dns", "--output", "json")
    bench.xenoovs("verify-offload", "dns")
    bench.xenoovs("doctor", "dns", "--output", "json")
    run(["tc", "filter", "del", "dev", "p0", "ingress", "protocol", "ip", "pref", "1"])
    bench.ovs.vsctl("del-port", "p1")
    bench.purge()
    blocks = bench.record.program.count("table=1, priority=")

    def is_seen() -> bool:
        # Again and again: a revalidator may still remove megaflows of before, which had the port.
        bench.send_frames([Kind().frame(client) for client in CLIENTS])
        return bench.megaflows >= blocks

    bench.wait_until(is_seen, "each block has a megaflow")
    bench.xenoovs("verify-offload", "dns", "--interval", "0s", "--output", "json")


_ADDRESSES_BYTES = 12
"""Of Ethernet, before the tag."""
_ETH_P_8021Q = 0x8100


@dataclass(frozen=True, slots=True)
class Tagged(Kind):
    """Packets in the VLAN `vlan`, with priority `pcp`."""

    vlan: int = 100
    pcp: int = 0

    def frame(self, source: str) -> bytes:
        plain = Kind.frame(self, source)
        tag = struct.pack("!HH", _ETH_P_8021Q, self.pcp << 13 | self.vlan)
        return plain[:_ADDRESSES_BYTES] + tag + plain[_ADDRESSES_BYTES:]


def vlans(bench: Bench) -> None:
    """A service in a VLAN and one without: tags are kept, changed, removed and added; then a NIC that knows no tags."""
    bench.begin("vlan")
    for kind in (blue := Tagged(), plain := Kind(destination="10.3.10.46")):
        bench.prime(kind=kind)
    for kind in (blue, plain):
        bench.send(packets_each=5, kind=kind)
    bench.look("four ways")
    bench.judge("vlan", recorded=True, simulated=True)
    for _ in range(2):
        bench.send(kind=Tagged(pcp=5))
    bench.look("a priority")
    bench.judge("vlan", "verify-offload")
    limit(vlan="N")
    bench.purge()
    for kind in (blue, plain):
        bench.prime(kind=kind)
        bench.send(packets_each=5, kind=kind)
    bench.look("without VLANs")
    bench.judge("vlan", "verify-offload", "why")
