"""Where a megaflow runs, from one line of `dpctl/dump-flows -m` alone."""

from __future__ import annotations

from enum import Enum

from xenoovs.datapath.megaflow import Megaflow, Offloaded


class Verdict(Enum):
    """From best to worst; ABSENT is neither good nor bad: no megaflow, so nothing to judge.

    HW:      the NIC forwards it (`offloaded:yes`, whatever the layer but `dummy`).
    PARTIAL: the NIC matches and marks, the CPU acts (`offloaded:partial`).
    TC_SW:   in the kernel's traffic control, which the driver did not take (`dp:tc` without `offloaded`).
    SW:      in the software of the datapath itself; also `dp:dummy`, the pretended NIC of OVS in tests.
    ABSENT:  no packet yet, or none for longer than max-idle (ovs-vswitchd.conf.db(5)).
    """

    HW = "HW"
    PARTIAL = "PARTIAL"
    TC_SW = "TC_SW"
    SW = "SW"
    ABSENT = "ABSENT"

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves.
    __hash__ = object.__hash__

    @property
    def badness(self) -> int:
        """0: nothing to say (ABSENT), then higher is worse."""
        order = (Verdict.ABSENT, Verdict.HW, Verdict.PARTIAL, Verdict.TC_SW, Verdict.SW)
        return order.index(self)


def verdict_of(megaflow: Megaflow) -> Verdict | None:
    """Never ABSENT. None: the dump was made without `-m`, which hides where a megaflow runs."""
    if megaflow.layer == "dummy":
        return Verdict.SW
    if megaflow.offloaded is Offloaded.YES:
        return Verdict.HW
    if megaflow.offloaded is Offloaded.PARTIAL:
        return Verdict.PARTIAL
    if megaflow.layer is None:
        return None
    return Verdict.TC_SW if megaflow.layer == "tc" else Verdict.SW
