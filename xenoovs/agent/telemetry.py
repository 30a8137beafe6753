"""Adds offload samples, metrics and the status page to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from xenoovs.agent.metrics.exposition import Timings, mount_metrics
from xenoovs.agent.metrics.metric import Detail
from xenoovs.agent.offload import OffloadSampler, SamplePace
from xenoovs.agent.web.page import mount_page

if TYPE_CHECKING:
    from xenoovs.agent.control.app import Mount
    from xenoovs.agent.daemon import Agent
    from xenoovs.agent.health import Check
    from xenoovs.agent.probe.target import ProbeResult


_SHOWS_SAMPLES = ("/", "/now", "/api", "/v1/status", "/v1/blocks")
"""Paths whose clients show offload samples, which are taken more often then. A scrape comes at its own interval."""


class Telemetry:
    """Offload samples, metrics and the status page of one agent, which must not run yet."""

    def __init__(self, agent: Agent, *, pace: SamplePace, detail: Detail, is_always: bool) -> None:
        """`is_always`: take samples although no client requests them."""
        engine = agent.engine
        self.sampler = OffloadSampler(
            engine.switch,
            program=lambda: engine.program,
            clock=agent.clock,
            pace=pace,
            bridge=lambda: agent.bridge,
        )
        self.sampler.is_always = is_always
        agent.request_offload = self.sampler.request
        self.timings = Timings()
        self._agent, self._detail = agent, detail
        engine.timed.append(self._time)
        agent.scheduler.listeners.append(self._count_probe)
        agent.add_task(lambda: self.sampler.run(agent.show_offload))

    def mounts(self) -> tuple[Mount, ...]:
        """Return what adds the routes of the metrics and of the page."""
        lazy_snapshot = self._agent.lazy_snapshot
        return (
            self._mount_requests,
            mount_metrics(lazy_snapshot, self.timings, detail=self._detail),
            mount_page(lazy_snapshot),
        )

    def _mount_requests(self, app: web.Application) -> None:
        async def prepared(request: web.Request, _: web.StreamResponse) -> None:
            if request.path.endswith(_SHOWS_SAMPLES):
                self.sampler.request()

        app.on_response_prepare.append(prepared)

    def _time(self, step: str, seconds: float) -> None:
        (self.timings.plan if step == "plan" else self.timings.apply)(seconds)

    def _count_probe(self, check: Check, result: ProbeResult) -> None:
        kind = check.health.probe.value if check.min_change is None else "agent"
        self.timings.probe(kind, ok=result.ok, seconds=result.latency_s)
