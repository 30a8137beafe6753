"""A backend is drained: what that takes of the NIC meanwhile, and that it gives everything back."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import SYN, Kind
from tests.nic.guest.nic import limit
from tests.nic.guest.ovs import KEEPS_IDLE

_BEFORE, _AFTER = "web", "web_without_fips4"
OPEN = Kind(protocol="tcp", port=80)
"""Packets of connections that are open when the drain begins."""
NEW_PORTS = (5000, 6000)
"""Source ports of connections that are opened while it lasts, at first and later."""
NEW_CLIENTS = CLIENTS[:32]


def drain(bench: Bench) -> None:
    """Each connection of moving blocks has an entry of its own, if the NIC can match the flags of TCP."""
    bench.begin(_BEFORE, settings=[KEEPS_IDLE])
    bench.prime(kind=OPEN)
    bench.send(packets_each=20, kind=OPEN)
    bench.look("before")
    bench.xenoovs("plan", _AFTER, "--output", "json")
    with bench.beside("apply", _AFTER, "--yes"):
        _wait_until_settled(bench)
    bench.wait_until_revalidated()
    _meanwhile(bench, "while it lasts", new_port=NEW_PORTS[0])
    bench.judge(_AFTER, "verify-offload")
    limit(tcp_flags="N")
    bench.purge()
    _meanwhile(bench, "without flags of TCP", new_port=NEW_PORTS[1])
    bench.judge(_AFTER, "verify-offload", "why", recorded=True, simulated=True)
    limit(tcp_flags="Y")
    bench.xenoovs("apply", _AFTER, "--yes", "--no-drain")
    bench.send(NEW_CLIENTS, kind=OPEN)
    bench.look("after it")
    # As if all of them had been idle for a while.
    bench.purge()
    bench.prime(NEW_CLIENTS, kind=OPEN)
    bench.send(NEW_CLIENTS, packets_each=3, kind=OPEN)
    bench.look("after it, all idle once")
    bench.xenoovs("verify-offload", _AFTER, "--output", "json")


def _meanwhile(bench: Bench, label: str, *, new_port: int) -> None:
    bench.prime(kind=OPEN)
    bench.prime(NEW_CLIENTS, kind=replace(OPEN, source_port=new_port, flags=SYN))
    new = replace(OPEN, source_port=new_port)
    bench.prime(NEW_CLIENTS, kind=new)
    bench.send(packets_each=5, kind=OPEN)
    bench.send(NEW_CLIENTS, packets_each=5, kind=new)
    bench.look(label)


def _wait_until_settled(bench: Bench) -> None:
    def is_settled() -> bool:
        # The plan says what an apply would do now: it has to be done, too.
        plan = bench.xenoovs("plan", _AFTER, "--output", "json")
        drains = json.loads(plan.stdout)["drains"]
        return plan.exit_code == 0 and bool(drains) and not any(drain["is_settling"] for drain in drains)

    bench.wait_until(is_settled, "the drain settles")
