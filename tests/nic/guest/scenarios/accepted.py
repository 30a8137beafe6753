"""The NIC offloads everything."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import set_hw_tc_offload


def accepted(bench: Bench) -> None:
    """All blocks in hardware, all packets but the first of each counted there; answers in hardware and then not."""
    bench.begin("dns")
    bench.look("before traffic")
    bench.judge("dns", "verify-offload", "why")
    bench.prime()
    bench.look("primed")
    bench.send(packets_each=10)
    bench.look("no answers")
    bench.judge("dns", "verify-offload", "doctor")
    back = Kind(destination=CLIENTS[0], port=4000, source_port=53)
    bench.prime(["10.3.10.45"], kind=back, port="p1")
    bench.send(["10.3.10.45"], packets_each=20, kind=back, port="p1")
    bench.look("answers in hardware")
    bench.judge("dns", "verify-offload", recorded=True, simulated=True)
    set_hw_tc_offload("p1", "off")
    bench.purge()
    bench.prime()
    bench.prime(["10.3.10.45"], kind=back, port="p1")
    bench.send(packets_each=5)
    bench.send(["10.3.10.45"], packets_each=20, kind=back, port="p1")
    bench.look("answers in software")
    bench.judge("dns", recorded=True)


_OTHER_ACTIONS = """\
priority=3000,udp,in_port=p0,nw_dst=10.3.10.46 actions=mod_nw_dst:10.9.9.9,mod_tp_dst:5353,output:p1
priority=3000,udp,in_port=p0,nw_dst=10.3.10.47 actions=output:p1,output:pf0hpf
priority=3000,udp,in_port=p0,nw_dst=10.3.10.48 actions=drop
priority=3001,udp6,in_port=p0,ipv6_dst=2001:db8::45,ipv6_src=::1/::3 actions=mod_dl_dst:02:00:5e:10:00:07,output:p1
priority=3000,udp6,in_port=p0,ipv6_dst=2001:db8::45 actions=output:pf0hpf
"""
IPV6_CLIENTS = tuple(f"2001:db8:1::{host:x}" for host in range(64, 72))


def other_actions(bench: Bench) -> None:
    """What else this NIC can do, so that the other scenarios may rely on it: NAT, copies, drops, IPv6."""
    bench.begin("dns", extra_flows=_OTHER_ACTIONS)
    ipv4 = [Kind(destination=f"10.3.10.{host}") for host in (46, 47, 48)]
    ipv6 = Kind(destination="2001:db8::45")
    for kind in ipv4:
        bench.prime(CLIENTS[:8], kind=kind)
    bench.prime(IPV6_CLIENTS, kind=ipv6)
    bench.look("primed")
    for kind in ipv4:
        bench.send(CLIENTS[:8], packets_each=5, kind=kind)
    bench.send(IPV6_CLIENTS, packets_each=5, kind=ipv6)
    bench.look("after 5 packets of each client")
    bench.judge("dns", "verify-offload", recorded=True, simulated=True)
