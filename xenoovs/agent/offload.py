"""Looks at the hardware from time to time, and keeps counters that never fall although megaflows come and go."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from random import uniform

from xenoovs.agent.snapshot import Counted, Rate, Traffic
from xenoovs.agent.store import Clock
from xenoovs.agent.view import Sighting
from xenoovs.compile.program import Program
from xenoovs.decision.decision import BackendName
from xenoovs.errors import NotTold, SwitchError
from xenoovs.openflow.flow import FlowKey, ObservedFlow
from xenoovs.switch.api import Switch
from xenoovs.verify.check import check_dump
from xenoovs.verify.expected import ExpectedService, expected_services
from xenoovs.verify.findings import OffloadFindings
from xenoovs.verify.traffic import traffic_report

# Packets and bytes of backends by the counters of their flows, where nobody can look at the datapath.


_BITS = 8


class FlowCounts:
    """Totals that only grow, although flows are replaced. Bounded by the flows and backends that there are."""

    def __init__(self) -> None:
        self._counters: dict[FlowKey, tuple[int, int]] = {}
        self._totals: dict[BackendName, Counted] = {}
        self._last_s: float | None = None

    def add(
        self, program: Program, observed: Iterable[ObservedFlow], *, now_s: float
    ) -> tuple[Mapping[BackendName, Counted], Mapping[BackendName, Rate]]:
        """The flows of the bridge. Returns totals since the first look, and rates since the last one."""
        report = traffic_report(program, tuple(self._grown(observed)))
        added = {(row.service, row.backend): Counted(row.packets, row.bytes) for row in report.backends}
        past_s = None if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        self._totals = {names: _counted_sum(self._totals.get(names, Counted()), more) for names, more in added.items()}
        return self._totals, {} if not past_s else {names: _counted_rate(more, past_s) for names, more in added.items()}

    def _grown(self, observed: Iterable[ObservedFlow]) -> Iterator[ObservedFlow]:
        """The same flows with what has been added. A counter below the one before is of a flow that was made anew."""
        now = dict[FlowKey, tuple[int, int]]()
        for seen in observed:
            before = self._counters.get(seen.flow.key, (0, 0))
            now[seen.flow.key] = seen.packets, seen.bytes
            if seen.packets < before[0] or seen.bytes < before[1]:
                before = 0, 0
            yield replace(seen, packets=seen.packets - before[0], bytes=seen.bytes - before[1])
        self._counters = now


def _counted_sum(one: Counted, other: Counted) -> Counted:
    return Counted(one.packets + other.packets, one.bytes + other.bytes)


def _counted_rate(more: Counted, past_s: float) -> Rate:
    return Rate(more.packets / past_s, None, more.bytes * _BITS / past_s)


# From counters of megaflows, which begin anew whenever a megaflow is made anew, to totals that only grow.


_LINE = re.compile(r"(?:ufid:([0-9a-f-]{36}), )?(.*?), packets:([0-9]{1,20}), bytes:([0-9]{1,20})(.*)", re.ASCII)

_Count = tuple[int, int]
"""Packets and bytes of one megaflow."""


class Counters:
    """The counters of the last dump, by ufid, or by the match where a datapath has no ufids.

    Dumps are no snapshots: Open vSwitch walks a table that changes meanwhile, so a megaflow may be missing from one, or
    stand in it twice. So one that is missing among others is remembered for one dump more. Bounded by two dumps.
    """

    def __init__(self) -> None:
        self._last: dict[str, _Count] = {}
        self._missing: dict[str, _Count] = {}

    def grown(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines of a dump with what their counters have grown by since the one before; to be read to the end.

        A counter that is less than before belongs to a megaflow that was made anew since.
        """
        now: dict[str, _Count] = {}
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                yield line
                continue
            key, packets, size = found[1] or found[2], int(found[3]), int(found[4])
            before = now.get(key) or self._last.get(key) or self._missing.get(key) or (0, 0)
            if packets < before[0] or size < before[1]:
                # Twice in one dump it is the same megaflow, and what was read later is what counts next time.
                before = (packets, size) if key in now else (0, 0)
            now[key] = packets, size
            more = f", packets:{packets - before[0]}, bytes:{size - before[1]}"
            yield f"{line[: found.end(2)]}{more}{found[5]}"
        # None at all is no torn dump: they were flushed, or all idled out.
        self._missing = {key: count for key, count in self._last.items() if key not in now} if now else {}
        self._last = now


class Totals:
    """Packets and bytes of each backend since the first look. Bounded by the backends that there are."""

    def __init__(self) -> None:
        self._traffic: dict[BackendName, Traffic] = {}
        self._last_s: float | None = None

    def add(
        self, findings: OffloadFindings, known: Iterable[BackendName], *, now_s: float
    ) -> tuple[Mapping[BackendName, Traffic], Mapping[BackendName, Rate]]:
        """Findings whose counters are what has been added since the last look. Returns totals and rates by backend.

        known: the backends that there are, also those that have no block now; others begin anew should they come back.
        """
        added = _by_backend(findings)
        past_s = None if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        nothing = Traffic()
        self._traffic = {
            names: _traffic_sum(self._traffic.get(names, nothing), added.get(names, nothing)) for names in known
        }
        if not past_s:
            return self._traffic, {}
        return self._traffic, {names: _traffic_rate(added.get(names, nothing), past_s) for names in self._traffic}

    def rest(self, *, now_s: float) -> tuple[Mapping[BackendName, Traffic], Mapping[BackendName, Rate]]:
        """As `add`, where there is no megaflow, for the backends of the last look."""
        self._last_s = now_s
        return self._traffic, dict.fromkeys(self._traffic, Rate(0.0, 0.0, 0.0))


def _by_backend(findings: OffloadFindings) -> dict[BackendName, Traffic]:
    counts = defaultdict[BackendName, list[int]](lambda: [0, 0, 0, 0])
    for block in findings.blocks:
        count = counts[block.block.service, block.block.backend]
        if block.packets or block.bytes:
            count[0] += block.hw_packets
            count[1] += block.hw_bytes
            count[2] += block.packets - block.hw_packets
            count[3] += block.bytes - block.hw_bytes
    return {names: Traffic(*count) for names, count in counts.items()}


def _traffic_sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        one.hw_packets + other.hw_packets,
        one.hw_bytes + other.hw_bytes,
        one.sw_packets + other.sw_packets,
        one.sw_bytes + other.sw_bytes,
    )


def _traffic_rate(more: Traffic, past_s: float) -> Rate:
    packets, size = more.hw_packets + more.sw_packets, more.hw_bytes + more.sw_bytes
    return Rate(packets / past_s, more.hw_packets / past_s, size * _BITS / past_s)


# Looks at the hardware every now and then, and keeps counters that never fall although megaflows come and go.


_WATCHED_S = 5.0
"""For how long after a question somebody is taken to be looking."""

_SPREAD = 0.1
"""By which part of itself a pause may be shorter."""

_IN_PORT = re.compile(r"in_port\(([^)]+)\)")


@dataclass(frozen=True, slots=True)
class WatchPace:
    """Seconds between two looks, and the part of the time, 0..1, that looks may take at most.

    Open vSwitch reads the counters of hardware every 2 s (offloaded-stats-delay): more looks than that show nothing.
    """

    interval_s: float = 10.0
    watched_interval_s: float = 2.0
    share: float = 0.005
    watched_share: float = 0.05


class OffloadWatch:
    """Judges megaflows as `verify-offload` does, less its cross-check with traffic control, which costs too much.

    bridge:    whose flows are counted where the way to the switch cannot tell megaflows.
    is_always: look although nobody asks, because something reads the counters.
    """

    def __init__(
        self,
        switch: Switch,
        *,
        program: Callable[[], Program | None],
        clock: Clock,
        pace: WatchPace,
        bridge: Callable[[], str] = lambda: "",
    ) -> None:
        self._switch, self._program, self._clock, self._pace = switch, program, clock, pace
        self._bridge, self._counts = bridge, FlowCounts()
        self.is_always = False
        self._asked_s: float | None = None
        self._question = asyncio.Event()
        self._counters, self._totals = Counters(), Totals()
        self._expected: tuple[Program, tuple[ExpectedService, ...]] | None = None
        self._empty: OffloadFindings | None = None

    def asked(self) -> None:
        """Somebody looks at what is shown: look more often for a while. To be called in the event loop of `forever`."""
        self._asked_s = self._clock.now_s()
        self._question.set()

    async def forever(self, show: Callable[[Sighting], None]) -> None:
        """Look again and again, until cancelled. A switch that cannot be asked is for the rounds to complain about."""
        while True:
            if not (self.is_always or self._is_watched()):
                self._question.clear()
                await self._question.wait()
            begun_s = self._clock.now_s()
            with suppress(SwitchError):
                sighting = await asyncio.to_thread(self.look)
                if sighting is not None:
                    show(sighting)
            await self._pause(self._clock.now_s() - begun_s)

    def look(self) -> Sighting | None:
        """Look once; it blocks. None: there is nothing to look for. Raises SwitchError."""
        program = self._program()
        if program is None or not program.services:
            return None
        services = self._services(program)
        try:
            dump = self._switch.dump_megaflows()
        except NotTold:
            return self._count(program)
        lines = list(_entering(dump, services))
        now_s = self._clock.now_s()
        grown = self._counters.grown(lines)
        if not lines and self._empty is not None:
            # The answer is always the same then, and thousands of blocks need not be gone through.
            tuple(grown)
            return Sighting(self._empty, time.time(), *self._totals.rest(now_s=now_s))
        findings = check_dump(services, grown)
        self._empty = None if lines else findings
        known = ((made.service.name, one.name) for made in program.services for one in made.service.backends)
        return Sighting(findings, time.time(), *self._totals.add(findings, known, now_s=now_s))

    def _count(self, program: Program) -> Sighting:
        observed = self._switch.dump_flows(self._bridge())
        counted, rates = self._counts.add(program, observed, now_s=self._clock.now_s())
        return Sighting(None, time.time(), rates=rates, counted=counted)

    def _services(self, program: Program) -> tuple[ExpectedService, ...]:
        if self._expected is None or self._expected[0] is not program:
            self._expected, self._empty = (program, expected_services(program)), None
        return self._expected[1]

    def _is_watched(self) -> bool:
        return self._asked_s is not None and self._clock.now_s() < self._asked_s + _WATCHED_S

    async def _pause(self, cost_s: float) -> None:
        """A look that took long is made up for by a long pause; a question may shorten it."""
        # Agents that were started together shall not all ask at once for ever.
        begun_s, part = self._clock.now_s(), uniform(1 - _SPREAD, 1)  # noqa: S311
        while (left_s := begun_s + self._interval_s(cost_s) * part - self._clock.now_s()) > 0:
            self._question.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._question.wait(), left_s)

    def _interval_s(self, cost_s: float) -> float:
        pace = self._pace
        if self._is_watched():
            return max(min(pace.interval_s, pace.watched_interval_s), cost_s / pace.watched_share)
        return max(pace.interval_s, cost_s / pace.share)


def _entering(dump: str, services: Iterable[ExpectedService]) -> Iterable[str]:
    """The megaflows of packets that enter where a service has its entries: one datapath serves all bridges."""
    ports = {match.in_port for service in services for match in service.entries}
    for line in dump.splitlines():
        found = _IN_PORT.search(line)
        if found is not None and (found[1] in ports or None in ports):
            yield line
