"""Looks at the hardware every now and then, and keeps counters that never fall although megaflows come and go."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import uniform

from xenoovs.agent.clock import Clock
from xenoovs.agent.flow_counts import FlowCounts
from xenoovs.agent.offload_totals import Counters, Totals
from xenoovs.agent.sighting import Sighting
from xenoovs.compile.program import Program
from xenoovs.errors import NotTold, SwitchError
from xenoovs.switch.api import Switch
from xenoovs.verify.expected import ExpectedService, expected_services
from xenoovs.verify.findings import OffloadFindings
from xenoovs.verify.offload import check_dump

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
            with suppress(TimeoutError):
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
