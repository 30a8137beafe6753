"""Megaflows come and go: silence is no failure, and no success."""

from __future__ import annotations

import time

from tests.nic.guest.bench import Bench

_IDLE_MS = 4000


def idle(bench: Bench) -> None:
    """Nothing is sent for longer than max-idle: the megaflows leave OVS and the NIC."""
    bench.begin("dns", settings=[f"max-idle={_IDLE_MS}"])
    bench.send()
    bench.look("just sent")
    time.sleep(_IDLE_MS / 1000 + 3.0)
    bench.look("idled out")


def evicted(bench: Bench) -> None:
    """More megaflows than OVS's flow limit allows: it removes them while traffic goes on."""
    bench.begin("dns")
    bench.prime()
    bench.look("primed")
    bench.ovs.appctl("upcall/set-flow-limit", "2")
    time.sleep(3.0)
    bench.look("flow limit 2")
    bench.send(packets_each=3)
    bench.look("flow limit 2, after 3 packets of each client")
