"""The scheduler probes at the times of its checks."""

from __future__ import annotations

import asyncio

from tests.patience import PATIENCE_S
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.scheduler import ProbeScheduler
from xenoovs.agent.state import AgentState, ConfigFollowed
from xenoovs.agent.store import MonotonicClock, Store
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.model.load import parse_config

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 5ms, timeout: 5ms, jitter: 0%}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    backends: [{name: one, mac: 02:00:5e:10:00:02, weight: 1, address: 198.51.100.1}]
"""
RESULTS = 300


def test_an_interval_shorter_than_any_pause_is_met() -> None:
    """While the only probe is on its way nothing is due: its result sets the next time."""
    balancer, workers, done = parse_config(CONFIG, file="c.yaml"), BackgroundTasks(lambda: None), asyncio.Event()
    store = Store(AgentState(balancer, balancer), MonotonicClock())
    asked = []

    async def answers(target: Target, *, timeout_s: float) -> ProbeResult:
        asked.append(target)
        if len(asked) == RESULTS:
            done.set()
        await asyncio.sleep(0)
        return ProbeResult(ok=True, latency_s=0.0, reason="answered")

    async def main() -> None:
        workers.start(ProbeScheduler(answers, store, workers).run())
        # Only now: new checks wake a scheduler that has nothing to do.
        await asyncio.sleep(0)
        store.dispatch(ConfigFollowed(balancer))
        try:
            await asyncio.wait_for(done.wait(), PATIENCE_S)
        finally:
            await workers.stop()

    asyncio.run(main())
    assert len(asked) >= RESULTS
