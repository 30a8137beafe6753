"""The scenarios by name, in the order in which they run.

Those that last longest come first, so that all machines end at once. A new one: a function in `scenarios/`, and a line
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.nic.guest.bench import Bench
from tests.nic.guest.scenarios import (
    accepted,
    beside,
    draining,
    encrypted,
    failing_over,
    faulty,
    generated,
    restarting,
    setup,
    tunnels,
)

SCENARIOS: Mapping[str, Callable[[Bench], None]] = {
    "generated": generated.generated,
    "generated_more": partial(generated.generated, part="generated_more"),
    "failover": failing_over.failover,
    "tunnel_esp": encrypted.tunnel_esp,
    "faulty": faulty.faulty,
    "planned_restart": restarting.planned_restart,
    "fixed": setup.fixed,
    "nat": accepted.nat,
    "tunnel_paths": tunnels.tunnel_paths,
    "drain": draining.drain,
    "coarse": faulty.coarse,
    "accepted": accepted.accepted,
    "foreign": beside.foreign,
    "vlans": beside.vlans,
    "foreign_port": beside.foreign_port,
    "tunnel_ipsec": tunnels.tunnel_ipsec,
    "tunnels": tunnels.tunnels,
    "lost": beside.lost,
}

LONG = ("generated_more", "faulty")
"""In `make test-long`. The dumps of `tests/golden/verify/faulty` have the same faults."""

GENERATED = ("generated", "generated_more")

TUNNELS = ("tunnels", "tunnel_paths", "tunnel_ipsec")
"""Scenarios with flows of their own: no balancer of `balancers/` is judged in them."""

BALANCED = tuple(name for name in SCENARIOS if name not in (*TUNNELS, "nat", "tunnel_esp", "failover", "lost"))

JUDGED = ("failover", *(name for name in BALANCED if name not in (*GENERATED, "faulty", "planned_restart")))
"""Those with a look at which `verify-offload` judges (`bench.judge`)."""
