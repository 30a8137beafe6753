"""Megaflows come and go: silence is no failure, and no success."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench


def ageing(bench: Bench) -> None:
    """OVS forgets all megaflows, as when it is pressed for room; half of the clients come back; they idle out.

    other_config:flow-limit is less than the number of blocks.
    """
    bench.begin("dns", settings=["flow-limit=4"])
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before")
    bench.purge()
    bench.look("evicted")
    bench.prime(CLIENTS[::2])
    bench.send(CLIENTS[::2], packets_each=3)
    bench.look("half of the clients are back")
    bench.judge("dns", "verify-offload", "doctor", recorded=True)
    bench.configure("max-idle=10000")
    bench.wait_until(lambda: bench.megaflows == 0, "the megaflows idle out")
    bench.look("idled out")
    bench.judge("dns", "verify-offload", "why", recorded=True)
    bench.record_settings()
