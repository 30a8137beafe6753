"""Adds offload samples, metrics and the status page to an agent."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from xenoovs.agent.control.limits import run_beside
from xenoovs.agent.offload import OffloadSampler, RuleUse, SamplePace
from xenoovs.agent.state import Observed, Probed, SamplesAsked
from xenoovs.agent.tasks import call_each
from xenoovs.agent.web.page import agent_json, mount_page
from xenoovs.show.agent import HISTOGRAMS, TABLES, LazySnapshot
from xenoovs.show.metrics import CONTENT_TYPE, OPEN_METRICS_TYPE, Timings, exposition, open_metrics

if TYPE_CHECKING:
    from xenoovs.agent.control.app import Mount
    from xenoovs.agent.daemon import Agent

_SHOWS_SAMPLES = ("/", "/now", "/api", "/v1/status", "/v1/blocks")
"""Paths whose clients show offload samples, which are taken more often then. A scrape comes at its own interval."""


_LEVEL = 1
"""Of gzip. It makes a scrape of 16,000 backends 20 times smaller; higher levels cost more than they save."""


def mount_metrics(moment: Callable[[], Callable[[], bytes]]) -> Mount:
    """Return what adds `/metrics`. `moment`: called in the event loop; returns what makes the text in a thread."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
        is_open = OPEN_METRICS_TYPE.partition(";")[0] in request.headers.get("Accept", "")
        headers = {"Content-Type": OPEN_METRICS_TYPE if is_open else CONTENT_TYPE}
        headers |= {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        render = moment()

        def body() -> bytes:
            text = open_metrics(render()) if is_open else render()
            return gzip.compress(text, _LEVEL, mtime=0) if is_packed else text

        # With many backends this takes long, and the event loop sends health checks.
        return web.Response(body=await run_beside(request.app, body), headers=headers)

    def mount(app: web.Application) -> None:
        app.router.add_get("/metrics", answer)

    return mount


def telemetry(
    agent: Agent, *, pace: SamplePace, with_blocks: bool = False, is_always: bool, rule_use: RuleUse | None = None
) -> tuple[Mount, ...]:
    """Add offload samples to an agent that does not run yet. Return what adds the routes of its metrics and its page.

    `with_blocks`: metrics of blocks too. `is_always`: take samples although no client requests them.
    """
    engine, store, timings = agent.engine, agent.store, Timings(HISTOGRAMS)
    sampler = OffloadSampler(
        engine.switch,
        program=lambda: engine.program,
        clock=agent.clock,
        pace=pace,
        bridge=lambda: agent.bridge,
        rule_use=rule_use,
        is_always=is_always,
    )

    def count_probe(probed: Probed) -> None:
        check, result = probed.check, probed.result
        kind = check.health.probe.value if check.min_change is None else "agent"
        timings.count("probe", result.latency_s, kind, "ok" if result.ok else "failed")

    def metrics(at: LazySnapshot) -> bytes:
        snapshot = at.snapshot()
        tables = [table for table in TABLES if with_blocks or not table.is_optional]
        return exposition(tables, replace(at, snapshot=lambda: snapshot)) + timings.text()

    async def prepared(request: web.Request, _: web.StreamResponse) -> None:
        if request.path.endswith(_SHOWS_SAMPLES):
            store.dispatch(SamplesAsked())

    store.subscribe(SamplesAsked, lambda _: sampler.request())
    store.subscribe(Probed, count_probe)
    engine.on_timed(lambda step, seconds: call_each((timings.count,), step, seconds))
    agent.add_task(lambda: sampler.run(lambda sample: store.dispatch(Observed(sample))))
    return (
        lambda app: app.on_response_prepare.append(prepared),
        mount_metrics(lambda: partial(metrics, agent.lazy_snapshot())),
        mount_page("agent.js", lambda: partial(agent_json, agent.lazy_snapshot())),
    )
