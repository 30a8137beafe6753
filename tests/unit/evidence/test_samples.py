"""Packets that ports delivered to the CPU between two samples, compared with those of megaflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.judged import assert_recorded
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.evidence.samples import (
    DatapathSample,
    MegaflowId,
    PortFinding,
    SampledMegaflow,
    check_ports,
)

HW = SampledMegaflow("p0", "tc", 1000, 100_000, 1000, is_active=True, is_held=True)
SW = SampledMegaflow("p0", "ovs", 50, 5_000, 0, is_active=True)

HELD: dict[MegaflowId, SampledMegaflow] = {("hw", ("p1",)): HW}


def _check(
    hw: int,
    sw: int,
    received: int,
    *,
    counter: CpuCounter = CpuCounter.CPU,
    first: int = 1_000_000,
    more: SampledMegaflow | None = None,
) -> PortFinding:
    """Return the check of p0 after `hw` packets in hardware, `sw` in software, and `received` by the CPU."""
    before: dict[MegaflowId, SampledMegaflow] = {**HELD, ("sw", ("p1",)): SW}
    now: dict[MegaflowId, SampledMegaflow] = {
        ("hw", ("p1",)): replace(HW, packets=1000 + hw, hw_packets=1000 + hw),
        ("sw", ("p1",)): replace(SW, packets=50 + sw, bytes=5_000 + 86 * sw),
    }
    ports = [{"p0": PortPackets(packets, counter, "rx")} for packets in (first, first + received)]
    later = {**now, ("new", ("p1",)): more} if more else now
    [found] = check_ports(DatapathSample(before, ports_after=ports[0]), DatapathSample(later, ports_before=ports[1]))
    return found


def _counted_twice(
    *, sw: int, hw: int, entered: int, is_first: bool = True, counter: CpuCounter = CpuCounter.CPU
) -> PortFinding:
    """Return the check of p0 after these packets of one rule; the CPU got all that entered, or those in software."""
    key: MegaflowId = ("hw", ("p1",))
    rule = replace(HW, is_first=is_first)
    later = replace(rule, packets=1000 + sw + hw, hw_packets=1000 + hw)
    received = min(sw, entered)
    begin, end = ({"p0": PortPackets(9 + n, counter, "rx", 50 + m)} for n, m in ((0, 0), (received, entered)))
    [found] = check_ports(DatapathSample({key: rule}, begin, begin), DatapathSample({key: later}, end, end))
    return found


def _samples(
    before: SampledMegaflow, now: SampledMegaflow | None, others: Mapping[MegaflowId, SampledMegaflow] = HELD
) -> PortFinding:
    key: MegaflowId = ("x", ("p1",))
    ports = [{"p0": PortPackets(packets, CpuCounter.CPU, "rx")} for packets in (0, 500)]
    later = {**others, key: now} if now else dict(others)
    [found] = check_ports(
        DatapathSample({**others, key: before}, ports_after=ports[0]), DatapathSample(later, ports_before=ports[1])
    )
    return found


def _started(received: int, *, is_new: bool = True) -> PortFinding:
    """408 packets by 8 rules in the NIC; new ones came after the first sample, and took 50 ms each to install."""
    rule = SampledMegaflow("p0", "tc", 51, 5_100, 51, is_active=True, is_held=True)
    rules: dict[MegaflowId, SampledMegaflow] = {(str(number), ("p1",)): rule for number in range(8)}
    before = {} if is_new else {key: replace(rule, packets=0, bytes=0, hw_packets=0) for key in rules}
    first, last = ({"p0": PortPackets(packets, CpuCounter.CPU, "rx")} for packets in (1000, 1000 + received))
    [found] = check_ports(
        DatapathSample({**HELD, **before}, first, first), DatapathSample({**HELD, **rules}, last, last)
    )
    return found


def _without_counter(*packets: int) -> PortFinding:
    """The counter at both samples; none if nothing is given."""
    first, last = ({"p0": PortPackets(each, CpuCounter.CPU, "rx")} for each in packets) if packets else ({}, {})
    [found] = check_ports(DatapathSample(HELD, ports_after=first), DatapathSample(HELD, ports_before=last))
    return found


def _findings() -> dict[str, PortFinding]:
    unused = replace(HW, packets=0, bytes=0, hw_packets=0)
    new_in_nic = SampledMegaflow("p0", "tc", 0, 0, 0, is_active=False)
    merged = SampledMegaflow("p0", "ovs", 10, 600_000, 0, is_active=True)
    return {
        **{f"1000 in the NIC, {got} for the CPU": _check(1000, 0, got) for got in (0, 10, 11)},
        **{f"1000 in the NIC, 500 in software, {got} for the CPU": _check(1000, 500, got) for got in (500, 515, 530)},
        **{f"none, {got} for the CPU": _check(0, 0, got) for got in (11, 96)},
        "none, 11 for the CPU: the first packets of new megaflows": _check(0, 0, 11, more=new_in_nic),
        "none, 414 for the CPU: segments that the kernel merged": _check(0, 0, 414, more=merged),
        # Both counters of the rule grew by each packet: "the NIC forwards only a part", half in hardware.
        "counted twice": _counted_twice(sw=220, hw=219, entered=221),
        "counted twice, a few more entered": _counted_twice(sw=220, hw=220, entered=224),
        # Ports are read between the readings of filters.
        "counted twice, ports read before": _counted_twice(sw=220, hw=220, entered=190),
        # Two processes read what entered and what the CPU got: 22 packets came between them on a busy machine.
        "counted twice, ports read by two processes": _counted_twice(sw=220, hw=220, entered=242),
        # The counter of hardware lags by an earlier burst.
        "the NIC forwards half": _counted_twice(sw=220, hw=220, entered=440),
        "the counter of hardware lags": _counted_twice(sw=0, hw=5000, entered=12),
        "counted twice, too few": _counted_twice(sw=5, hw=5, entered=5),
        "counted twice, the counter may include hardware": _counted_twice(
            sw=220, hw=220, entered=190, counter=CpuCounter.ALL
        ),
        "each link of a chain counts the packet": _counted_twice(sw=220, hw=220, entered=220, is_first=False),
        "a start of traffic": _started(118),
        "a start of traffic, too many": _started(600),
        "rules that were there": _started(118, is_new=False),
        "a counter that may include hardware": _check(1000, 0, 1000, counter=CpuCounter.ALL),
        # Less than hardware forwarded meanwhile, more than all there was, or less than hardware ever forwarded.
        "less than in hardware": _check(60, 0, 36, counter=CpuCounter.ALL),
        "more than all": _check(1000, 0, 2000, counter=CpuCounter.ALL),
        "less than hardware ever forwarded": _check(1000, 0, 1000, counter=CpuCounter.ALL, first=100),
        "a megaflow with packets expired": _samples(SW, None),
        "a megaflow with packets changed": _samples(SW, replace(SW, packets=3)),
        "a megaflow without packets expired": _samples(replace(SW, is_active=False), None),
        "another program takes packets before any rule is used": _samples(unused, unused, {}),
        "no counter": _without_counter(),
        "a counter that restarted": _without_counter(9, 5),
    }


def test_packets_for_the_cpu_contradict_megaflows_that_do_not_explain_them(*, update_golden: bool) -> None:
    shown = {
        title: f"{'contradicted' if found.is_contradicted else 'not contradicted'}: {found}"
        for title, found in _findings().items()
    }
    assert_recorded("judged/port_checks.txt", shown, update=update_golden)


def test_ports_without_rules_in_hardware_are_not_checked() -> None:
    sample = DatapathSample({("sw", ("p1",)): SW})
    assert check_ports(sample, sample) == ()
