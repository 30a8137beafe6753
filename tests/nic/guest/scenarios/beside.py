"""Foreign flows on the same bridge that no NIC of this kind offloads; those of xenoovs stay in hardware."""

from __future__ import annotations

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
