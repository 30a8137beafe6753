"""Two samples of the datapath: the growth of megaflows, and whether ports gave the CPU more packets.

A table shows the rules of a NIC, growth shows its work. Counters of packets that a port gave to the CPU are independent
of megaflows and traffic control, so they show what both miss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow, Verdict, verdict_of
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.errors import counted


@dataclass(frozen=True, slots=True)
class Growth:
    """Packets between two samples, and how many of them the NIC forwarded."""

    packets: int = 0
    hw_packets: int = 0

    def __add__(self, other: Growth) -> Growth:
        return Growth(self.packets + other.packets, self.hw_packets + other.hw_packets)

    @property
    def sw_packets(self) -> int:
        return self.packets - self.hw_packets


NO_GROWTH = Growth()


MegaflowId = tuple[str | None, tuple[str, ...]]
"""The ufid and the actions, as Open vSwitch reuses a ufid for another megaflow."""


def id_of(megaflow: Megaflow) -> MegaflowId:
    return megaflow.ufid, megaflow.actions


@dataclass(frozen=True, slots=True)
class SampledMegaflow:
    """The counters of one megaflow. `packets`: of its tc filter if it has one. `is_active`: whether its last packet is
    so recent that it does not expire before the next sample. `is_held`: whether it is in the NIC by a rule of traffic
    control. `is_first`: whether its packets come directly from the port, not from another megaflow."""

    in_port: str
    layer: str | None
    packets: int
    bytes: int
    hw_packets: int
    is_active: bool
    is_held: bool = False
    is_first: bool = True

    def since(self, before: SampledMegaflow | None) -> Growth | None:
        """Return the growth since an earlier sample; None if that had no such megaflow, or the counters restarted."""
        if before is None or self.packets < before.packets or self.hw_packets < before.hw_packets:
            return None
        return Growth(self.packets - before.packets, self.hw_packets - before.hw_packets)


EXPIRING = 0.8
"""Fraction of max-idle. The rest is 2 s by default, by which hardware counters may lag (offloaded-stats-delay)."""


def sampled(megaflow: Megaflow, counters: TcCounters | None, *, max_idle_s: float = MAX_IDLE_S) -> SampledMegaflow:
    """Return the counters of a megaflow. `counters`: of its tc filter, if it has one."""
    is_active = megaflow.used_s is not None and megaflow.used_s < EXPIRING * max_idle_s
    place = megaflow.in_port or "", megaflow.layer
    is_hw = verdict_of(megaflow) is Verdict.HW
    signs = is_active, is_hw and megaflow.layer == "tc", not megaflow.recirc_id
    if counters is not None and megaflow.layer == "tc":
        return SampledMegaflow(*place, counters.packets, counters.bytes, counters.hw_packets or 0, *signs)
    return SampledMegaflow(*place, megaflow.packets, megaflow.bytes, megaflow.packets if is_hw else 0, *signs)


def filter_of(megaflow: Megaflow, filters: Mapping[str, TcFilter] | None) -> TcFilter | None:
    """Return the tc filter of a megaflow: the one with its ufid as cookie."""
    if not filters or megaflow.layer != "tc" or not megaflow.ufid:
        return None
    return filters.get(cookie_of_ufid(megaflow.ufid) or "")


@dataclass(frozen=True, slots=True)
class DatapathSample:
    """The counters at one time. `megaflows`: by identity. `ports_before`: packets for the CPU by port, read before the
    megaflows, without ports that have no such counter. `ports_after`: the same, read after the megaflows."""

    megaflows: Mapping[MegaflowId, SampledMegaflow]
    ports_before: Mapping[str, PortPackets] = field(default_factory=dict)
    ports_after: Mapping[str, PortPackets] = field(default_factory=dict)


def sample_of(
    megaflows: Iterable[Megaflow], filters: Mapping[str, TcFilter] | None, *, max_idle_s: float = MAX_IDLE_S
) -> dict[MegaflowId, SampledMegaflow]:
    """Return the counters of all megaflows of a dump, with those of their tc filters."""
    found = dict[MegaflowId, SampledMegaflow]()
    for megaflow in megaflows:
        tc = filter_of(megaflow, filters)
        found[id_of(megaflow)] = sampled(megaflow, tc.counters if tc else None, max_idle_s=max_idle_s)
    return found


@dataclass(frozen=True, slots=True)
class PortFinding:
    """The packets that one port gave to the CPU between two samples, compared with its megaflows. `received`: by the
    counter `source` of the port, from the end of the first sample to the begin of the second. `explained`: most packets
    that megaflows outside of hardware explain. `tolerance`: further packets that prove nothing: those before a new rule
    was in the NIC, and those that no megaflow counts. `silence`: why there is no verdict. `entered`: all packets that
    entered the port, if the CPU got all of them. `twice`: packets that traffic control forwarded in software and the
    driver counted as the NIC's too."""

    port: str
    received: int = 0
    explained: int = 0
    tolerance: int = 0
    silence: str = ""
    source: str = ""
    entered: int = 0
    twice: int = 0

    @property
    def is_contradicted(self) -> bool:
        """Return whether the CPU got packets of megaflows that are reported as forwarded by the NIC."""
        return bool(self.twice) or (not self.silence and self.received > self.explained + self.tolerance)

    def __str__(self) -> str:
        if self.twice:
            return (
                f"{counted(self.entered, 'packet')} entered {self.port} between two samples (`ethtool -S {self.port}`),"
                f" and the CPU got as many; the driver counts {self.twice} that the CPU forwarded as the NIC's too"
            )
        if self.silence:
            return f"the packets that {self.port} gave to the CPU prove nothing: {self.silence}"
        return (
            f"{self.port} gave {counted(self.received, 'packet')} to the CPU between two samples ({self.source}); the "
            f"megaflows that are not in hardware explain {self.explained} of them, and {self.tolerance} more would "
            "prove nothing"
        )


_LEAST_SEGMENT = 536
"""Bytes. The kernel merges TCP segments (GRO) before Open vSwitch's own datapath counts them; hardly any are smaller
than the default maximum segment size (RFC 9293, 3.7.1)."""

_ALWAYS_TOLERATED = 10
_TOLERATED = 0.01
"""Part of the received packets. Those before the rule of a megaflow, and from ovs-vswitchd, count nowhere."""


def check_ports(before: DatapathSample, now: DatapathSample) -> tuple[PortFinding, ...]:
    """Compare, for each port with megaflows in hardware, the packets for the CPU with those that megaflows explain.

    The counters of a port are read between the readings of megaflows. So megaflows have counted all packets that the
    port counted, if they count them at all.
    """
    ports = dict.fromkeys(each.in_port for each in now.megaflows.values() if each.is_held)
    lost = Counter(
        each.in_port
        for key, each in before.megaflows.items()
        if each.is_active and ((later := now.megaflows.get(key)) is None or later.since(each) is None)
    )
    return tuple(_check_port(port, before, now, lost=lost[port]) for port in ports)


def _check_port(port: str, before: DatapathSample, now: DatapathSample, *, lost: int) -> PortFinding:
    first, last = before.ports_after.get(port), now.ports_before.get(port)
    if first is None or last is None:
        return PortFinding(port, silence="it has no counter of them")
    if lost:
        megaflows = counted(lost, "megaflow")
        return PortFinding(port, silence=f"{megaflows} with recent packets expired or changed between the two samples")
    growth, merged, new, held, new_packets, twice = NO_GROWTH, 0, 0, 0, 0, 0
    for key, each in now.megaflows.items():
        if each.in_port == port:
            earlier = before.megaflows.get(key)
            known = each.since(earlier)
            more = known or Growth(each.packets, each.hw_packets)
            growth += more
            held += each.hw_packets
            new += known is None
            new_packets += more.hw_packets if known is None else 0
            if each.layer == "ovs":
                merged += merged_packets(more.packets, each.bytes - (earlier.bytes if earlier else 0))
            elif known is not None and each.is_first:
                twice += min(known.sw_packets, known.hw_packets)
    return port_finding(port, first, last, PortGrowth(growth, merged, new, held, new_packets, twice))


def merged_packets(packets: int, size: int) -> int:
    """Return how many more packets than counted these bytes may be, as the kernel merges segments of TCP."""
    return max(0, size // _LEAST_SEGMENT - packets)


@dataclass(frozen=True, slots=True)
class PortGrowth:
    """The growth of the megaflows of one port between two samples. `merged`: further packets that they may have had
    (`merged_packets`). `new`: number of new megaflows; `new_packets`: their packets. `held`: packets that the NIC
    counted for all of them since their installation. `twice`: packets that their rules may have counted in software and
    in hardware."""

    growth: Growth = NO_GROWTH
    merged: int = 0
    new: int = 0
    held: int = 0
    new_packets: int = 0
    twice: int = 0


def port_finding(port: str, first: PortPackets, last: PortPackets, megaflows: PortGrowth) -> PortFinding:
    """Compare the packets that a port gave to the CPU between two readings with the growth of its megaflows."""
    if last.packets < first.packets or first.source != last.source:
        return PortFinding(port, silence="their counter restarted")
    received = last.packets - first.packets
    explained, hardware = megaflows.growth.sw_packets + megaflows.merged, megaflows.growth.hw_packets
    # Until its rule is in the NIC, a flow comes at the rate that it has then: no more, if that takes half of the time.
    before_rule = max(megaflows.new, megaflows.new_packets)
    tolerance = _ALWAYS_TOLERATED + before_rule + int(received * _TOLERATED)
    found = PortFinding(port, received, explained, tolerance, source=last.source)
    if last.counter is CpuCounter.CPU and first.entered is not None and last.entered is not None:
        # The CPU got all that entered, which another process reads. A counter that lags does not grow beside another.
        entered, least = last.entered - first.entered, _ALWAYS_TOLERATED + int(received * _TOLERATED)
        if entered >= 0 and max(least, 2 * (entered - received)) < megaflows.twice:
            return replace(found, entered=entered, twice=megaflows.twice)
    # A counter that is less than what hardware forwarded cannot include it.
    is_cpu_only = last.counter is CpuCounter.CPU or received < hardware or last.packets < megaflows.held
    is_all = received <= explained + hardware + tolerance
    if found.is_contradicted and is_all and not is_cpu_only:
        text = f"{last.source} may also count what the NIC forwards itself"
        return PortFinding(port, received, explained, tolerance, text, last.source)
    return found
