"""The NIC offloads everything."""

from __future__ import annotations

import json

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import set_hw_tc_offload
from tests.nic.guest.wire import remaining_frames


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


_OTHERS = """\
priority=3000,udp,in_port=p0,nw_dst=10.3.10.47 actions=output:p1,output:pf0hpf
priority=3000,udp,in_port=p0,nw_dst=10.3.10.48 actions=drop
priority=3001,udp6,in_port=p0,ipv6_dst=2001:db8::45,ipv6_src=::1/::3 actions=mod_dl_dst:02:00:5e:10:00:07,output:p1
priority=3000,udp6,in_port=p0,ipv6_dst=2001:db8::45 actions=drop
"""
IPV6_CLIENTS = tuple(f"2001:db8:1::{host:x}" for host in range(64, 72))
SERVERS = ("10.3.20.11", "10.3.20.12")
"""Addresses of balancers/nat.yaml."""
NAT_CLIENTS = ("10.9.0.4", "10.9.0.5", "10.9.0.7")
"""One of each block."""


def nat(bench: Bench) -> None:
    """NAT without connection tracking: clients send to the VIP, servers answer that know nothing of it.

    And what else this NIC can do, so that the other scenarios may rely on it: copies, drops, IPv6.
    """
    bench.begin("nat", extra_flows=_OTHERS, ports=("p0", "p1", "pf0hpf"))
    others = [(CLIENTS[:8], Kind(destination=f"10.3.10.{host}")) for host in (47, 48)]
    others.append((IPV6_CLIENTS, Kind(destination="2001:db8::45")))
    for sources, kind in others:
        bench.prime(sources, kind=kind)
    ways = [
        (port, sources, kind)
        for protocol in ("tcp", "udp")
        for port, sources, kind in (
            ("p0", NAT_CLIENTS, Kind(protocol=protocol, port=80)),
            ("p1", SERVERS, Kind(destination=NAT_CLIENTS[0], protocol=protocol, port=4000, source_port=8080)),
        )
    ]
    for port, sources, kind in ways:
        bench.prime(sources, kind=kind, port=port)
    bench.look("primed")
    for port, sources, kind in ways:
        bench.wires[port].send([kind.frame(source) for source in sources])
    frames = [(port, frame.hex()) for port, frame in remaining_frames(bench.wires)]
    bench.note(("translated",), json.dumps(frames))
    bench.look("translated")
    for sources, kind in others:
        bench.send(sources, packets_each=5, kind=kind)
    bench.look("others")
    bench.judge("nat", "verify-offload", recorded=True, simulated=True)
