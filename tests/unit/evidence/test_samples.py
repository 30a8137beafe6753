"""Packets that ports delivered to the CPU between two samples, compared with those of megaflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.evidence.samples import (
    DatapathSample,
    Growth,
    MegaflowId,
    PortFinding,
    PortGrowth,
    SampledMegaflow,
    check_ports,
    port_finding,
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


@pytest.mark.parametrize(
    ("hw", "sw", "received", "more", "is_contradicted"),
    [
        (1000, 0, 0, None, False),
        (1000, 0, 10, None, False),
        (1000, 0, 11, None, True),
        (1000, 500, 500, None, False),
        (1000, 500, 515, None, False),
        (1000, 500, 530, None, True),
        (0, 0, 96, None, True),
        (0, 0, 11, None, True),
        # The first packets of new megaflows, and segments that the kernel merged.
        (0, 0, 11, SampledMegaflow("p0", "tc", 0, 0, 0, is_active=False), False),
        (0, 0, 414, SampledMegaflow("p0", "ovs", 10, 600_000, 0, is_active=True), False),
    ],
)
def test_more_packets_for_the_cpu_than_megaflows_explain_contradict_them(
    hw: int, sw: int, received: int, more: SampledMegaflow | None, is_contradicted: bool
) -> None:
    found = _check(hw, sw, received, more=more)
    assert (found.is_contradicted, found.received) == (is_contradicted, received)
    assert more is not None or found.explained == sw


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


@pytest.mark.parametrize(
    ("sw", "hw", "entered", "more", "is_contradicted"),
    [
        (220, 220, 220, {}, True),
        (220, 220, 224, {}, True),
        # Ports are read between the readings of filters.
        (220, 220, 190, {}, True),
        # Two processes read what entered and what the CPU got: 22 packets came between them on a busy machine.
        (220, 220, 242, {}, True),
        # The NIC forwards half; the counter of hardware lags by an earlier burst.
        (220, 220, 440, {}, False),
        (0, 5000, 12, {}, False),
        (5, 5, 5, {}, False),
        (220, 220, 190, {"counter": CpuCounter.ALL}, False),
        # Each link of a chain counts the packet.
        (220, 220, 220, {"is_first": False}, False),
    ],
)
def test_packets_that_the_cpu_forwards_and_the_driver_counts_too_contradict_it(
    sw: int, hw: int, entered: int, more: dict[str, Any], is_contradicted: bool
) -> None:
    """Both counters of the rule grew by each packet: "the NIC forwards only a part" [confirmed], half in hardware."""
    assert _counted_twice(sw=sw, hw=hw, entered=entered, **more).is_contradicted is is_contradicted


def test_numbers_are_shown() -> None:
    shown = str(_counted_twice(sw=220, hw=219, entered=221))
    assert shown.startswith("221 packets entered p0 between two samples (`ethtool -S p0`), and the CPU got as many")
    assert shown.endswith("the driver counts 219 that the CPU forwarded as the NIC's too")
    text = "p0 gave 960 packets to the CPU between two samples (rx); the megaflows that are not in hardware explain 0"
    assert text in str(_check(960, 0, 960))


def test_a_start_of_traffic_contradicts_nothing_in_samples() -> None:
    """8 rules that were not there at the first sample: 408 packets by the NIC, 118 while they were installed."""
    rule = SampledMegaflow("p0", "tc", 51, 5_100, 51, is_active=True, is_held=True)
    new: dict[MegaflowId, SampledMegaflow] = {(str(number), ("p1",)): rule for number in range(8)}
    first, last = ({"p0": PortPackets(packets, CpuCounter.CPU, "rx")} for packets in (1000, 1118))
    [found] = check_ports(DatapathSample(HELD, first, first), DatapathSample({**HELD, **new}, last, last))
    assert (found.received, found.is_contradicted) == (118, False)


def test_a_counter_that_may_include_hardware_proves_nothing() -> None:
    found = _check(1000, 0, 1000, counter=CpuCounter.ALL)
    assert not found.is_contradicted
    assert "may also count what the NIC forwards itself" in str(found)


@pytest.mark.parametrize(
    ("hw", "received", "first"),
    # Less than hardware forwarded meanwhile, more than all there was, or less than hardware ever forwarded.
    [(60, 36, 1_000_000), (1000, 2000, 1_000_000), (1000, 1000, 100)],
)
def test_a_counter_that_cannot_include_hardware_proves_it(hw: int, received: int, first: int) -> None:
    assert _check(hw, 0, received, counter=CpuCounter.ALL, first=first).is_contradicted


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


def test_expired_megaflows_give_no_verdict() -> None:
    assert "1 megaflow with recent packets expired or changed" in str(_samples(SW, None))
    assert "expired or changed" in str(_samples(SW, replace(SW, packets=3)))
    assert _samples(replace(SW, is_active=False), None).is_contradicted


def test_packets_that_another_program_takes_before_any_rule_is_used_are_noticed() -> None:
    unused = replace(HW, packets=0, bytes=0, hw_packets=0)
    assert _samples(unused, unused, {}).is_contradicted


def test_without_a_counter_there_is_no_verdict() -> None:
    sample = DatapathSample(HELD)
    [found] = check_ports(sample, sample)
    assert (found.is_contradicted, found.silence) == (False, "it has no counter of them")
    ports = [{"p0": PortPackets(packets, CpuCounter.CPU, "rx")} for packets in (9, 5)]
    [found] = check_ports(replace(sample, ports_after=ports[0]), replace(sample, ports_before=ports[1]))
    assert found.silence == "their counter restarted"


def test_ports_without_rules_in_hardware_are_not_checked() -> None:
    sample = DatapathSample({("sw", ("p1",)): SW})
    assert check_ports(sample, sample) == ()


@pytest.mark.parametrize(
    ("received", "new_packets", "is_contradicted"), [(118, 408, False), (118, 0, True), (600, 408, True)]
)
def test_packets_that_came_before_new_rules_were_in_the_nic_contradict_nothing(
    received: int,
    new_packets: int,
    is_contradicted: bool,
) -> None:
    """8 rules took 50 ms each to install, and 118 packets came meanwhile: 19 were tolerated."""
    first, last = (PortPackets(number, CpuCounter.CPU, "cpu_hit") for number in (1000, 1000 + received))
    found = port_finding("p0", first, last, PortGrowth(Growth(408, 408), 0, 8, 408, new_packets))
    assert found.is_contradicted is is_contradicted
