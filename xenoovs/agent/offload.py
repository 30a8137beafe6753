"""Samples hardware offload at intervals, and keeps counters that never decrease although megaflows come and go."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import uniform
from typing import Generic, TypeVar

from xenoovs.agent.state import OffloadSample, SamplesAsked
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import within
from xenoovs.compile.program import Program
from xenoovs.dataclass import replace
from xenoovs.datapath.host import PortPackets
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter
from xenoovs.decision.decision import BackendName
from xenoovs.errors import NotInOpenFlow, ParseError, SwitchError
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import (
    DatapathSample,
    Growth,
    PortGrowth,
    check_ports,
    merged_packets,
    port_finding,
    sample_of,
)
from xenoovs.judge.expected import ExpectedService, expected_services
from xenoovs.judge.findings import OffloadFindings
from xenoovs.judge.offload import check_dump
from xenoovs.judge.traffic import traffic_report
from xenoovs.openflow.flow import FlowKey, ObservedFlow
from xenoovs.regex import ASCII, MULTILINE, regex
from xenoovs.show.snapshot import Counted, Insertion, Rate, Traffic
from xenoovs.switch.api import Switch
from xenoovs.switch.devices import read_port_packets
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.tc import dump_filters
from xenoovs.switch.vswitchd import place_of, read_offload_counters

_BITS = 8


# Packets and bytes of backends by the counters of their flows, where megaflows cannot be read.


C = TypeVar("C", Counted, Traffic)
Sums = tuple[Mapping[BackendName, C], Mapping[BackendName, Rate]]
"""Totals since the first sample, and rates since the last one; no rates at the first sample."""


class Totals(Generic[C]):
    """Packets and bytes of each backend since the first sample. Bounded by the number of backends."""

    def __init__(self, nothing: C) -> None:
        self._nothing: C = nothing
        self._last_s: float | None = None
        self._totals: dict[BackendName, C] = {}

    def add(self, added: Mapping[BackendName, C], known: Iterable[BackendName], *, now_s: float) -> Sums[C]:
        """Add the counts since the last sample. The totals of backends that are not in `known` are dropped."""
        past_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s, nothing = now_s, self._nothing
        self._totals = {name: self._totals.get(name, nothing) + added.get(name, nothing) for name in known}
        rates = {name: _rate(added.get(name, nothing), past_s) for name in self._totals} if past_s else {}
        return self._totals, rates


def _rate(more: Counted | Traffic, past_s: float) -> Rate:
    if isinstance(more, Counted):
        return Rate(more.packets / past_s, None, more.bytes * _BITS / past_s)
    packets, size = more.hw_packets + more.sw_packets, more.hw_bytes + more.sw_bytes
    return Rate(packets / past_s, more.hw_packets / past_s, size * _BITS / past_s)


class FlowTotals:
    """Totals of flows that never decrease although flows are replaced. Bounded by the number of flows and backends."""

    def __init__(self) -> None:
        self._counters: dict[FlowKey, tuple[int, int]] = {}
        self._totals = Totals(Counted())

    def add(self, program: Program, observed: Iterable[ObservedFlow], *, now_s: float) -> Sums[Counted]:
        report = traffic_report(program, tuple(self._increments(observed)))
        added = {(row.service, row.backend): Counted(row.packets, row.bytes) for row in report.backends}
        return self._totals.add(added, added, now_s=now_s)

    def _increments(self, observed: Iterable[ObservedFlow]) -> Iterator[ObservedFlow]:
        """Yield the flows with the growth of their counters. A counter that has decreased belongs to a new flow."""
        now = dict[FlowKey, tuple[int, int]]()
        for each in observed:
            before = self._counters.get(each.flow.key, (0, 0))
            now[each.flow.key] = each.packets, each.bytes
            if each.packets < before[0] or each.bytes < before[1]:
                before = 0, 0
            yield replace(each, packets=each.packets - before[0], bytes=each.bytes - before[1])
        self._counters = now


# Counters of megaflows start at 0 when a megaflow is installed again; these totals never decrease.


_LINE = regex(r"(?:ufid:([0-9a-f-]{36}), )?(.*?), packets:([0-9]{1,20}), bytes:([0-9]{1,20})(.*)", ASCII)

_Count = tuple[int, int]
"""Packets and bytes of one megaflow."""


class MegaflowCounters:
    """The counters of the last dump, by ufid, or by match if the datapath has no ufids.

    A dump is no snapshot: the table changes while Open vSwitch walks it. So a dump may lack a megaflow, or have it
    twice. The counters of a missing megaflow are kept for one more dump. Bounded by two dumps.
    """

    def __init__(self) -> None:
        self._last: dict[str, _Count] = {}
        self._missing: dict[str, _Count] = {}

    def increments(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a dump with the growth of their counters since the dump before. Read the iterator to its
        end. A counter that has decreased belongs to a megaflow that was installed again."""
        now: dict[str, _Count] = {}
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                yield line
                continue
            key, packets, size = found[1] or found[2], int(found[3]), int(found[4])
            before = now.get(key) or self._last.get(key) or self._missing.get(key) or (0, 0)
            if _is_wrapped(before, packets, size):
                before = before[0] - _WRAP, before[1]
            elif packets < before[0] or size < before[1]:
                # Twice in one dump, it is the same megaflow, and the next dump is compared with the later line.
                before = (packets, size) if key in now else (0, 0)
            now[key] = packets, size
            more = f", packets:{packets - before[0]}, bytes:{size - before[1]}"
            yield f"{line[: found.end(2)]}{more}{found[5]}"
        # An empty dump is complete: the megaflows were flushed, or have all expired.
        self._missing = {key: count for key, count in self._last.items() if key not in now} if now else {}
        self._last = now


_WRAP = 1 << 32
"""Before it used TCA_STATS_PKT64, Open vSwitch read the packets of tc filters in 32 bits (lib/tc.c)."""
_LEAST_BYTES = 46
"""Least size of a frame without its Ethernet header (IEEE 802.3, 3.2.7)."""


def _is_wrapped(before: _Count, packets: int, size: int) -> bool:
    """Return whether a packet counter of 32 bits has wrapped, by the growth of the byte counter of 64 bits."""
    grown = packets + _WRAP - before[0]
    return 0 < grown < _WRAP and before[0] < _WRAP and size - before[1] >= grown * _LEAST_BYTES


def _by_backend(findings: OffloadFindings) -> dict[BackendName, Traffic]:
    counts = defaultdict[BackendName, Traffic](Traffic)
    for block in findings.blocks:
        if block.packets or block.bytes:
            packets, size = block.packets - block.hw_packets, block.bytes - block.hw_bytes
            counts[block.block.service, block.block.backend] += Traffic(block.hw_packets, block.hw_bytes, packets, size)
    return counts


# When samples are taken.


_WATCHED_S = 5.0
"""How long after a request samples are taken more often."""

_COSTS = 2
"""The next sample is expected to take as long as the quickest of this many last ones."""

_JITTER = 0.1
"""A pause is shorter by a random part, up to this."""

_IN_PORT = regex(r"in_port\(([^)]+)\)")


INTERVAL_S = 10.0
WATCHED_INTERVAL_S = 2.0
"""Open vSwitch reads the counters of hardware every 2 s (offloaded-stats-delay): more samples show nothing new."""
SHARE, WATCHED_SHARE = 0.005, 0.05
"""The largest parts of the time that samples may take."""


class OffloadSampler:
    """Checks megaflows as `verify-offload` does. It reads traffic control only if port counters contradict them."""

    def __init__(
        self,
        store: StateStore,
        switch: Switch,
        rule_use: RuleUse,
        *,
        interval_s: float = INTERVAL_S,
        is_always: bool = False,
    ) -> None:
        """Bind it to an agent. `is_always`: take samples although no client requests them, because the counters are
        scraped."""
        self._store, self._switch, self._rule_use, self._now_s = store, switch, rule_use, store.now_s
        self._longest_s, self._is_always, self._flow_totals = interval_s, is_always, FlowTotals()
        self._requested_s: float | None = None
        self._costs_s = deque[float](maxlen=_COSTS)
        self._requested = asyncio.Event()
        self._counters, self._totals = MegaflowCounters(), Totals(Traffic())
        self._expected: tuple[Program, tuple[ExpectedService, ...]] | None = None
        self._empty: OffloadFindings | None = None
        store.subscribe(SamplesAsked, self._request)

    def _request(self, _: SamplesAsked) -> None:
        self._requested_s = self._now_s()
        self._requested.set()

    async def run(self) -> None:
        """Take samples until cancelled. Failures of the switch are not reported here, but by rounds."""
        while True:
            if not (self._is_always or self._is_watched()):
                self._requested.clear()
                await self._requested.wait()
            begun_s = self._now_s()
            with suppress(SwitchError):
                sample = await asyncio.to_thread(self.sample)
                self._costs_s.append(self._now_s() - begun_s)
                if sample is not None:
                    self._store.dispatch(sample)
            # A failed sample, or one that waited for a switch that hung, does not show what samples cost.
            await self._pause(min(self._costs_s) if len(self._costs_s) == _COSTS else 0.0)

    def sample(self) -> OffloadSample | None:
        """Take one sample; None if there are no services. Blocks. Raises SwitchError."""
        program = self._store.state.round.program
        if program is None or not program.services:
            return None
        services = self._services(program)
        self._rule_use.begin()
        sampled_s = time.time()
        try:
            dump = self._switch.dump_megaflows()
        except NotInOpenFlow:
            return self._count_flows(program)
        lines = list(_entering(dump, services))
        now_s = self._now_s()
        increments = tuple(self._counters.increments(lines))
        known = ((made.service.name, backend.name) for made in program.services for backend in made.service.backends)
        if not lines and self._empty is not None:
            # Without megaflows the findings are always the same, and thousands of blocks take long.
            return OffloadSample(self._empty, sampled_s, *self._totals.add({}, known, now_s=now_s))
        findings = check_dump(services, increments, self._rule_use.evidence(lines, increments))
        self._empty = None if lines else findings
        sample = OffloadSample(findings, sampled_s, *self._totals.add(_by_backend(findings), known, now_s=now_s))
        return replace(sample, insertion=self._rule_use.insertion(lines))

    def _count_flows(self, program: Program) -> OffloadSample:
        observed = self._switch.dump_flows(self._store.state.balancer.uplinks.bridge)
        counted, rates = self._flow_totals.add(program, observed, now_s=self._now_s())
        return OffloadSample(None, time.time(), rates=rates, counted=counted)

    def _services(self, program: Program) -> tuple[ExpectedService, ...]:
        if self._expected is None or self._expected[0] is not program:
            self._expected, self._empty = (program, expected_services(program)), None
        return self._expected[1]

    def _is_watched(self) -> bool:
        return self._requested_s is not None and self._now_s() < self._requested_s + _WATCHED_S

    async def _pause(self, cost_s: float) -> None:
        # Agents that were started together must not always read the datapath at the same time.
        begun_s, part = self._now_s(), uniform(1 - _JITTER, 1)  # noqa: S311
        while (left_s := begun_s + self._interval_s(cost_s) * part - self._now_s()) > 0:
            self._requested.clear()
            with suppress(asyncio.TimeoutError):
                await within(left_s, self._requested.wait())

    def _interval_s(self, cost_s: float) -> float:
        if self._is_watched():
            return max(min(self._longest_s, WATCHED_INTERVAL_S), cost_s / WATCHED_SHARE)
        return max(self._longest_s, cost_s / SHARE)


def _entering(dump: str, services: Iterable[ExpectedService]) -> Iterable[str]:
    """Yield the megaflows of packets that enter at an ingress port of a service. The dump is of all bridges."""
    ports = {match.in_port for service in services for match in service.entries}
    for line in dump.splitlines():
        found = _IN_PORT.search(line)
        if found is not None and (found[1] in ports or None in ports):
            yield line


# Checks whether the NIC uses its rules, with one process for each sample. The packets that the CPU received from ports
# are compared with those of the megaflows in software. Only if they are more, the filters of traffic control are read
# too, as `verify-offload` does: they show which rules the NIC does not use.


_PORT_LINE = regex(r"in_port\(([^)]+)\).*, packets:([0-9]{1,20}), bytes:([0-9]{1,20}),(.*?), actions:", ASCII)


_OF_USERSPACE = ", dp-extra-info:"
_STATISTIC = regex(r"^ *Total +([A-Za-z][A-Za-z ()-]*): +([0-9]{1,20})$", ASCII | MULTILINE)
_EVENT = regex(r"^([a-z_0-9]+) +[0-9].* total: ([0-9]{1,20})$", ASCII | MULTILINE)


def parse_insertion(statistics: str, coverage: str) -> Insertion:
    """Return the counters of ovs-vswitchd for rules in the NIC; None for each that this version does not have.

    Names: dpctl_offload_stats_show() of lib/dpctl.c, up to 3.6 and in NVIDIA's fork, and COVERAGE_DEFINE of
    lib/dpif-netdev.c and of the fork. `coverage/show` leaves out events that never happened.
    """
    counts = {name: int(count) for name, count in _STATISTIC.findall(statistics)}
    events = {name: int(count) for name, count in _EVENT.findall(coverage)}
    latency_us = counts.get("Exponential Average latency (us)")
    return Insertion(
        counts.get("Enqueued offloads"),
        counts.get("Inserted offloads"),
        None if latency_us is None else latency_us / 1e6,
        events.get("doca_pipe_resize", 0),
        sum(count for name, count in events.items() if name.endswith("datapath_drop_upcall_error")),
    )


class RuleUse:
    """Checks whether the NIC uses its rules, by two samples. Bounded by the ports, and by one dump with its filters."""

    def __init__(
        self,
        read_ports: Callable[..., Mapping[str, PortPackets]],
        read_filters: Callable[[Iterable[str]], Mapping[str, TcFilter]],
        read_counters: Callable[[], tuple[str, ...]] = lambda: ("", ""),
    ) -> None:
        self._read_ports, self._read_filters, self._read_counters = read_ports, read_filters, read_counters
        self._ports: tuple[str, ...] = ()
        self._now: Mapping[str, PortPackets] = {}
        self._after: Mapping[str, PortPackets] = {}
        self._last: tuple[Mapping[str, TcFilter], DatapathSample] | None = None

    @classmethod
    def at(cls, endpoint: Endpoint) -> RuleUse:
        """Return a RuleUse that reads in the network namespace of ovs-vswitchd, which it looks up each time."""
        return cls(
            lambda ports, *, is_brief: read_port_packets(ports, place_of(endpoint), is_brief=is_brief),
            lambda devices: dump_filters(devices, place_of(endpoint)).by_cookie,
            lambda: read_offload_counters(endpoint),
        )

    def insertion(self, lines: Sequence[str]) -> Insertion | None:
        """Return the counts of rule insertion into the NIC; None for the kernel's datapath, which has none."""
        is_userspace = any(_OF_USERSPACE in line for line in lines[:1])
        return parse_insertion(*self._read_counters()) if is_userspace else None

    def begin(self) -> None:
        """Read the ports. Call it just before a dump of megaflows."""
        self._now = self._read_ports(self._ports, is_brief=self._last is None)

    def evidence(self, lines: Sequence[str], increments: Sequence[str]) -> Evidence:
        """Return the evidence of ports and traffic control for a dump. `increments`: the dump with the growth of its
        counters since the sample before."""
        held = _sums(lines)
        before, self._after = self._after, self._read_ports(held, is_brief=self._last is None)
        self._ports = tuple(held)
        is_suspicious = any(
            port_finding(
                port, before[port], self._now[port], replace(growth, held=held[port].growth.hw_packets)
            ).is_contradicted
            for port, growth in _sums(increments).items()
            if port in held and port in before and port in self._now
        )
        last, self._last = self._last, None
        if is_suspicious:
            with suppress(SwitchError):
                self._last = self._sample(lines)
        if last is None or self._last is None:
            # Which rules the NIC does not use is known from the next sample on.
            return Evidence(has_totals=False)
        (filters, now), (earlier, sample) = self._last, last
        started = {key: replace(each, packets=0, bytes=0, hw_packets=0) for key, each in now.megaflows.items()}
        return Evidence(
            filters={cookie: _grown(each, earlier.get(cookie)) for cookie, each in filters.items()},
            before=DatapathSample(started),
            port_checks=check_ports(sample, now),
            has_totals=False,
        )

    def _sample(self, lines: Sequence[str]) -> tuple[Mapping[str, TcFilter], DatapathSample]:
        filters = self._read_filters(self._ports)
        megaflows = (each for each in scan_dump(lines) if not isinstance(each, ParseError))
        return filters, DatapathSample(sample_of(megaflows, filters), self._now, self._after)


def _sums(lines: Iterable[str]) -> dict[str, PortGrowth]:
    """Return the sums of the counters in a dump, by port, only of ports with megaflows that tc has in hardware."""
    sums, held = defaultdict[str, PortGrowth](PortGrowth), set[str]()
    for line in lines:
        if (found := _PORT_LINE.search(line)) is None:
            continue
        port, packets, size, where = found[1], int(found[2]), int(found[3]), found[4]
        is_hw, before = "offloaded:yes" in where, sums[port]
        if is_hw and "dp:tc" in where:
            held.add(port)
        merged = merged_packets(packets, size) if "dp:ovs" in where else 0
        growth = before.growth + Growth(packets, packets if is_hw else 0)
        sums[port] = PortGrowth(growth, before.merged + merged)
    return {port: growth for port, growth in sums.items() if port in held}


def _grown(now: TcFilter, before: TcFilter | None) -> TcFilter:
    """Return a filter with the growth of its counters, or with their values if they restarted."""
    counters, earlier = now.counters, before.counters if before else None
    if counters is None or earlier is None or counters.hw_packets is None or earlier.hw_packets is None:
        return now
    if counters.packets < earlier.packets or counters.hw_packets < earlier.hw_packets:
        return now
    grown = TcCounters(
        counters.packets - earlier.packets,
        max(counters.bytes - earlier.bytes, 0),
        counters.hw_packets - earlier.hw_packets,
        max(counters.hw_bytes - earlier.hw_bytes, 0),
    )
    return replace(now, counters=grown)
