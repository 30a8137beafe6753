"""The NIC takes everything: what a good day looks like."""

from __future__ import annotations

from tests.nic.guest.bench import Bench


def accepted(bench: Bench) -> None:
    """All blocks in hardware, all packets but the first of each counted there."""
    bench.begin("dns")
    bench.look("before traffic")
    bench.prime()
    bench.look("primed")
    bench.send(packets_each=10)
    bench.look("after 10 packets of each client")


def foreign_prefix(bench: Bench) -> None:
    """A /24 of somebody else's flow widens the masks of ours: more entries, all of them in hardware."""
    bench.begin("dns", extra_flows="priority=3000,ip,in_port=p0,nw_src=203.0.113.0/24 actions=output:pf0hpf\n")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
