"""What must agree: packets that came out, packets that the CPU saw, the counters of the driver, and our report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.hardware.wire import Seen
from xenoovs.datapath.tc import TcFilter

MACS = {"one": "02:00:5e:10:00:02", "two": "02:00:5e:10:00:03", "three": "02:00:5e:10:00:04"}


@dataclass(frozen=True, slots=True)
class Burst:
    """Packets that were sent, those that came out at the server's end, and those that the CPU saw at p0."""

    sent: int
    delivered: Counter[Seen]
    woken: Counter[Seen]


@dataclass(frozen=True, slots=True)
class Look:
    """The report of xenoovs (`verify-offload -o json`), and the filters of traffic control at p0 for the service."""

    exit_code: int
    report: Any
    filters: tuple[TcFilter, ...]

    @property
    def nic_packets(self) -> int:
        """Packets of the service that traffic control has from the driver."""
        return sum(entry.counters.hw_packets or 0 for entry in self.filters if entry.counters)


def assert_all_in_hardware(before: Look, burst: Burst, after: Look) -> None:
    """All packets arrived, the CPU received none, and xenoovs reports exactly these numbers."""
    assert burst.delivered.total() == burst.sent
    assert burst.woken == Counter()
    assert (after.exit_code, verdicts(after) - {"ABSENT"}) == (0, {"HW"})
    assert [entry.in_hw for entry in after.filters] == [True] * len(after.filters)
    assert after.nic_packets - before.nic_packets == burst.sent
    total = after.report["blocks_total"]
    assert total["hw_packets"] - before.report["blocks_total"]["hw_packets"] == burst.sent
    assert total["sw_packets"] == before.report["blocks_total"]["sw_packets"]
    for name, mac in MACS.items():
        arrived = sum(count for seen, count in burst.delivered.items() if seen.mac == mac)
        assert packets(after)[name] - packets(before)[name] == arrived


def verdicts(found: Look) -> set[str]:
    """Of all blocks."""
    return {block["verdict"] for block in found.report["blocks"]}


def packets(found: Look) -> dict[str, int]:
    """By backend."""
    return {row["backend"]: row["packets"] for row in found.report["backends"]}
