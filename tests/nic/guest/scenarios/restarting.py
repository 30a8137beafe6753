"""A planned restart under traffic: what the NIC forwards meanwhile, and what is lost."""

from __future__ import annotations

from tests.nic.guest.bench import Bench
from tests.nic.guest.nic import rules
from tests.nic.guest.ovs import end_vswitchd
from tests.nic.guest.stream import RATE_PPS, Stream
from xenoovs.lab.private_ovs import start_vswitchd_again

_AWAY_S = 2
"""How long there is no ovs-vswitchd: longer than any real restart leaves none, so that something enters then."""


def planned_restart(bench: Bench) -> None:
    """As `restart-ovs` does it; each step of the restart is a mark in the stream."""
    bench.begin("dns")
    bench.prime()
    entries = _entries()
    with bench.streaming() as stream:
        bench.restart_as_planned(lambda: _restart(bench, stream))
        stream.mark("flows are back")
        bench.wait_until(lambda: _entries() >= entries, "the rules are back")
        stream.mark("rules are back")
        stream.go_on(RATE_PPS)
    bench.send(packets_each=5)
    bench.look("after")
    bench.send(packets_each=5)
    bench.look("later")
    bench.judge("dns", "verify-offload", recorded=True)


def _restart(bench: Bench, stream: Stream) -> None:
    stream.mark("ordered to end")
    end_vswitchd(bench.ovs)
    stream.mark("gone")
    stream.go_on(_AWAY_S * RATE_PPS)
    stream.mark("restarted")
    start_vswitchd_again(bench.ovs)
    stream.mark("runs")


def _entries() -> int:
    return len(rules().splitlines())
