"""Packets and bytes of backends by the counters of their flows, where nobody can look at the datapath."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from xenoovs.agent.snapshot import Counted, Rate
from xenoovs.compile.program import Program
from xenoovs.decision.desired import BackendName
from xenoovs.openflow.flow import FlowKey, ObservedFlow
from xenoovs.verify.traffic import traffic_report

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
        self._totals = {names: _sum(self._totals.get(names, Counted()), more) for names, more in added.items()}
        return self._totals, {} if not past_s else {names: _rate(more, past_s) for names, more in added.items()}

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


def _sum(one: Counted, other: Counted) -> Counted:
    return Counted(one.packets + other.packets, one.bytes + other.bytes)


def _rate(more: Counted, past_s: float) -> Rate:
    return Rate(more.packets / past_s, None, more.bytes * _BITS / past_s)
