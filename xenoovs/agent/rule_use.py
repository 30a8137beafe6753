"""Whether the NIC uses the rules that it holds, at the cost of one process in each sample.

The packets that ports give to the CPU are compared with the megaflows in software. Only if they are more, the filters
of traffic control are read too, as `verify-offload` does: they show which rules the NIC does not use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import PortPackets
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter
from xenoovs.errors import ParseError, SwitchError
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
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.netns import HERE, Netns
from xenoovs.switch.port_counters import read_port_packets
from xenoovs.switch.tc import dump_filters
from xenoovs.switch.vswitchd import netns_of

_LINE = re.compile(r"in_port\(([^)]+)\).*, packets:([0-9]{1,20}), bytes:([0-9]{1,20}),(.*?), actions:", re.ASCII)

FilterReader = Callable[[Iterable[str]], Mapping[str, TcFilter]]


class PortReader(Protocol):
    """`read_port_packets`, or what a test has in its place."""

    def __call__(self, ports: Iterable[str], *, is_brief: bool) -> Mapping[str, PortPackets]: ...


def _read_filters(devices: Iterable[str], place: Netns = HERE) -> Mapping[str, TcFilter]:
    return dump_filters(devices, place).by_cookie


class RuleUse:
    """Compares each sample with the one before. Bounded by the number of ports, and by one dump with its filters."""

    def __init__(self, read_ports: PortReader = read_port_packets, read_filters: FilterReader = _read_filters) -> None:
        self._read_ports, self._read_filters = read_ports, read_filters
        self._ports: tuple[str, ...] = ()
        self._now: Mapping[str, PortPackets] = {}
        self._after: Mapping[str, PortPackets] = {}
        self._last: tuple[Mapping[str, TcFilter], DatapathSample] | None = None

    @classmethod
    def at(cls, endpoint: Endpoint) -> RuleUse:
        """Return one that reads in the network namespace of ovs-vswitchd, whatever process that is by then."""

        def place() -> Netns:
            found = netns_of(endpoint)
            return HERE if isinstance(found, Unknown) else found

        def read_ports(ports: Iterable[str], *, is_brief: bool) -> Mapping[str, PortPackets]:
            return read_port_packets(ports, place(), is_brief=is_brief)

        return cls(read_ports, lambda devices: _read_filters(devices, place()))

    def begin(self) -> None:
        """Read the ports. Call it just before a dump of megaflows."""
        self._now = self._read_ports(self._ports, is_brief=self._last is None)

    def evidence(self, lines: Sequence[str], increments: Sequence[str]) -> Evidence:
        """Return what ports and traffic control show beside a dump, by what grew since the sample before.

        Args:
            lines: The dump.
            increments: The dump with what its counters grew by.
        """
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
    """Return the sums of the counters in a dump, by port; only of ports with megaflows of tc in hardware."""
    sums, held = defaultdict[str, PortGrowth](PortGrowth), set[str]()
    for line in lines:
        if (found := _LINE.search(line)) is None:
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
    """Return a filter with what its counters grew by; with all they have if they restarted."""
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
