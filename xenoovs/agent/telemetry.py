"""What makes an agent visible: offload samples, metrics and the status page, added to a running agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from xenoovs.agent.metrics.exposition import Timings, mount_metrics
from xenoovs.agent.metrics.metric import Detail
from xenoovs.agent.offload import OffloadWatch, WatchPace
from xenoovs.agent.web.page import mount_page

if TYPE_CHECKING:
    from xenoovs.agent.control.app import Mount
    from xenoovs.agent.daemon import Agent
    from xenoovs.agent.health import Check
    from xenoovs.agent.probe.target import ProbeResult


_LOOKED_AT = ("/", "/now", "/v1/status", "/v1/blocks")
"""Who asks for paths that end so looks on, so that numbers shall be fresh; a scrape comes by itself."""


class Eyes:
    """To be made before the agent runs. `is_always`: look at the hardware although nobody asks."""

    def __init__(self, agent: Agent, *, interval_s: float, detail: Detail, is_always: bool) -> None:
        engine = agent.engine
        self.watch = OffloadWatch(
            engine.switch,
            program=lambda: engine.program,
            clock=agent.clock,
            pace=WatchPace(interval_s),
            bridge=lambda: agent.bridge,
        )
        self.watch.is_always = is_always
        self.timings = Timings()
        self._agent, self._detail = agent, detail
        engine.timed.append(self._time)
        agent.scheduler.listeners.append(self._hear)
        agent.add_task(lambda: self.watch.forever(agent.show_offload))

    def mounts(self) -> tuple[Mount, ...]:
        """What is served beside the API."""
        glance = self._agent.glance
        return (self._mount_asked, mount_metrics(glance, self.timings, detail=self._detail), mount_page(glance))

    def _mount_asked(self, app: web.Application) -> None:
        async def prepared(request: web.Request, _: web.StreamResponse) -> None:
            if request.path.endswith(_LOOKED_AT):
                self.watch.asked()

        app.on_response_prepare.append(prepared)

    def _time(self, step: str, seconds: float) -> None:
        (self.timings.plan if step == "plan" else self.timings.apply)(seconds)

    def _hear(self, check: Check, result: ProbeResult) -> None:
        self.timings.probe(check.health.probe.value, ok=result.ok, seconds=result.latency_s)
