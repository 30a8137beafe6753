"""The NIC holds rules and does not use them, or its driver counts packets that the NIC does not forward."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from ipaddress import IPv4Address
from typing import Any

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.recorded import BLOCKS

BEYOND_32_BITS = 5_760_767_000
"""Packets of each rule: 43 s at 100 million a second are more than 32 bits hold."""

_THIRD = "each third packet"
PHASES: Mapping[str, tuple[dict[str, str], bool]] = {
    "no fault": ({}, False),
    "never used": ({"skip": "1"}, True),
    "reset": ({"skip": "1"}, False),
    _THIRD: ({"skip": "3"}, False),
    "counted by the driver": ({"bypass": "Y"}, False),
    "counted twice": ({"recount": "Y"}, False),
    "no fault any more": ({}, True),
    "not refreshed": ({"stale": "Y"}, False),
    "beyond 32 bits": ({"head_start": str(BEYOND_32_BITS)}, True),
}
"""Faults by phase, and whether all megaflows are installed again with the fault."""


def faulty(bench: Bench) -> None:
    """One fault after the other, each judged while packets come."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before")
    with bench.streaming() as stream:
        for label, (faults, is_reinstalled) in PHASES.items():
            nic.set_faults(faults)
            if is_reinstalled:
                bench.purge()
                bench.wait_until(lambda: len(nic.rules().splitlines()) >= BLOCKS, "the rules are back")
            stream.go_on(100)
            stream.mark(f"{label}: begin")
            # Of the smallest block, too, some packets have to be each third one.
            with bench.between_samples(partial(stream.go_on, 500)) if label == _THIRD else nullcontext():
                bench.xenoovs("verify-offload", "dns", "--output", "json")
            stream.mark(f"{label}: end")
    nic.set_faults({})


COARSE_CLIENTS = 31 * 64
"""Packets in all, of the 64 clients equally often."""


def coarse(bench: Bench) -> None:
    """The NIC ignores the lowest two bits of masks: the first rule takes the packets of all blocks. Then it is slow."""
    bench.begin("dns")
    for block in re.findall(r"nw_src=([0-9.]+)/([0-9.]+)", bench.record.program):
        value, mask = (int(IPv4Address(text)) for text in block)
        bench.prime([next(client for client in CLIENTS if int(IPv4Address(client)) & mask == value)])
    bench.wait_until(lambda: _youngest_s(bench.filters()["p0"]) > _OLD_S, "no rule is new")
    bench.look("one packet of each block")
    bench.judge("dns", "verify-offload", recorded=True)
    nic.set_faults({"coarse": "2"})
    bench.send_frames([Kind().frame(client) for client in CLIENTS] * (COARSE_CLIENTS // len(CLIENTS)))
    bench.appctl("revalidator/wait", timeout_s=900.0)
    for output in ("json", "text"):
        bench.xenoovs("verify-offload", "dns", "--interval", "0s", "--output", output)
    bench.xenoovs("why", "dns", "--interval", "0s", "--listen", "0", "--output", "json")
    _install_slowly(bench)


STARTS = 8


def _install_slowly(bench: Bench) -> None:
    """Each rule takes 100 ms to install, and traffic starts between the two samples, time and again."""
    nic.set_faults({"install_ms": "100"})
    kept, frames = Kind(destination="10.3.10.46").frame(CLIENTS[0]), [Kind().frame(client) for client in CLIENTS]

    def start() -> None:
        bench.send_frames(frames)
        # Until the rules are in the NIC all packets go by the CPU, however fast this machine is.
        bench.wait_until(lambda: len(nic.rules().splitlines()) > BLOCKS, "the rules are in the NIC")
        bench.send_frames(frames * 8)

    for _ in range(STARTS):
        bench.purge()
        # Two samples are made only where the NIC holds a rule.
        bench.send_frames([kept])
        bench.wait_until(lambda: len(nic.rules().splitlines()) == 1, "the NIC holds a rule")
        with bench.between_samples(start):
            bench.xenoovs("verify-offload", "dns", "--output", "json")
    nic.set_faults({})


_OLD_S = 3


def _youngest_s(filters: list[dict[str, Any]]) -> int:
    rules = (row["options"]["actions"] for row in filters if "actions" in row.get("options", {}))
    return min((int(action.get("installed", 0)) for actions in rules for action in actions[-1:]), default=0)
