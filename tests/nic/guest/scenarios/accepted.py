"""The NIC takes everything: what a good day looks like."""

from __future__ import annotations

from tests.nic.guest.bench import Bench

# From all over the address space, near the foreign prefix 203.0.113.0/24 and far from it.
SCATTERED = tuple(
    f"{first}.{second}.113.{16 * i + i}"
    for i, (first, second) in enumerate(
        [(10, 1), (100, 64), (150, 7), (180, 1), (196, 9), (200, 3), (202, 5), (203, 128), (203, 2), (203, 1), (203, 0)]
    )
)


def accepted(bench: Bench) -> None:
    """All blocks in hardware, all packets but the first of each counted there."""
    bench.begin("dns")
    bench.look("before traffic")
    bench.prime()
    bench.look("primed")
    bench.send(packets_each=10)
    bench.look("after 10 packets of each client")
    bench.xenoovs("verify-offload", "dns", "--output", "json")


def foreign_prefix(bench: Bench) -> None:
    """A /24 of somebody else's flow widens the masks of ours: more entries, all of them in hardware."""
    bench.begin("dns", extra_flows="priority=3000,ip,in_port=p0,nw_src=203.0.113.0/24 actions=output:pf0hpf\n")
    bench.prime(SCATTERED)
    bench.send(SCATTERED, packets_each=5)
    bench.look("after 5 packets of each client")
