"""Megaflows come and go: silence is no failure, and no success."""

from __future__ import annotations

import time

from tests.nic.guest.bench import CLIENTS, Bench

_IDLE_MS = 12000


def idle(bench: Bench) -> None:
    """Nothing is sent for longer than max-idle: the megaflows leave OVS and the NIC."""
    bench.begin("dns", settings=[f"max-idle={_IDLE_MS}"])
    bench.send()
    bench.look("just sent")
    time.sleep(_IDLE_MS / 1000 + 4.0)
    bench.look("idled out")
    bench.judge("dns")


def evicted(bench: Bench) -> None:
    """OVS forgets all megaflows, as when it is pressed for room; then half of the clients come back."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before")
    bench.purge()
    bench.look("evicted")
    bench.prime(CLIENTS[::2])
    bench.send(CLIENTS[::2], packets_each=3)
    bench.look("half of the clients are back")
    bench.judge("dns")


def flow_limit(bench: Bench) -> None:
    """other_config:flow-limit is less than the number of blocks."""
    bench.begin("dns", settings=["flow-limit=4"])
    bench.send()
    time.sleep(3.0)
    bench.send(packets_each=3)
    bench.look("after 3 packets of each client")
    bench.judge("dns")
