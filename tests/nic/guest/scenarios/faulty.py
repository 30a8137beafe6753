"""The NIC holds the rules and does not use them, or its driver counts what the NIC does not do."""

from __future__ import annotations

from collections.abc import Mapping

from tests.nic.guest import nic
from tests.nic.guest.bench import Bench

BEYOND_32_BITS = 5_760_767_000
"""Packets of each rule: 43 s at 100 million a second are more than 32 bits hold."""

PHASES: Mapping[str, tuple[dict[str, str], bool]] = {
    "no fault": ({}, False),
    "never used": ({"skip": "1"}, True),
    "reset": ({"skip": "1"}, False),
    "each third packet": ({"skip": "3"}, False),
    "counted by the driver": ({"bypass": "Y"}, False),
    "no fault any more": ({}, False),
    "beyond 32 bits": ({"head_start": str(BEYOND_32_BITS)}, True),
}
"""Faults by phase, and whether all megaflows are installed again with the fault."""


def faulty(bench: Bench) -> None:
    """One fault after the other, each judged while packets come."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before")
    bench.judge("dns")
    with bench.streaming() as stream:
        for label, (faults, is_reinstalled) in PHASES.items():
            nic.set_faults(faults)
            if is_reinstalled:
                bench.purge()
                bench.wait_until(lambda: bench.megaflows >= BLOCKS, "the megaflows are back")
            stream.go_on(100)
            bench.dump(f"{label}: begin")
            stream.mark(f"{label}: begin")
            bench.xenoovs("verify-offload", "dns", "--output", "json")
            stream.mark(f"{label}: end")
            bench.dump(f"{label}: end")
    nic.set_faults({})


BLOCKS = 7
"""Flows of balancers/dns.yaml."""
