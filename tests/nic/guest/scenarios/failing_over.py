"""The representor of a backend's port goes down: the switch moves its clients by itself."""

from __future__ import annotations

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.stream import Stream

CONFIG, PLAIN = "failover", "failover_by_agent"
PORT = "pf0hpf"
DOWN = "down"


def failover(bench: Bench) -> None:
    """The port goes down and comes back, each time beside a stream of all clients."""
    bench.begin()
    for balancer in (PLAIN, CONFIG):
        bench.xenoovs("apply", balancer, "--yes")
        bench.purge()
        bench.prime()
        bench.send(packets_each=2)
        bench.look(balancer)
    with bench.streaming() as stream:
        stream.go_on(len(CLIENTS))
        _set_link(bench, stream, DOWN)
    bench.look(DOWN, is_changed=True)
    bench.judge(CONFIG, "verify-offload", recorded=True, simulated=True)
    with bench.streaming() as stream:
        stream.go_on(len(CLIENTS))
        _set_link(bench, stream, "up")


def _set_link(bench: Bench, stream: Stream, state: str) -> None:
    """Return when no packet is on its way to the other port any more, and each client has sent one since."""
    stream.mark(state)
    nic.ip_batch(f"link set {PORT} {state}")
    is_up = state == "up"
    bench.wait_until(lambda: (f"redirect:{PORT}" in nic.rules()) == is_up, "the NIC's new rules", shown=nic.rules)
    bench.wait_until_revalidated()
    stream.mark("moved")
    stream.go_on(len(CLIENTS))
