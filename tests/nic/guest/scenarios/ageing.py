"""Megaflows come and go: silence is no failure, and no success."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench


def idle(bench: Bench) -> None:
    """Nothing is sent for longer than max-idle: the megaflows leave OVS and the NIC."""
    bench.begin("dns")
    bench.send()
    bench.look("just sent")
    bench.configure("max-idle=10000")
    bench.wait_until(lambda: bench.megaflows == 0, "the megaflows idle out")
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
    bench.prime()
    bench.send(packets_each=3)
    bench.look("after 3 packets of each client")
    bench.judge("dns")
    bench.record_settings()
