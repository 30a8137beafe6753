"""The asker keeps the times of its checks, also where they are shorter than its own looks."""

from __future__ import annotations

import asyncio

from xenoovs.agent.asking import Asker
from xenoovs.agent.clock import MonotonicClock
from xenoovs.agent.probe.result import ProbeResult
from xenoovs.agent.probe.target import Target
from xenoovs.agent.watch import Watch
from xenoovs.agent.workers import Workers
from xenoovs.config.load import parse_config

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
RESULTS, PATIENCE_S = 300, 20.0


def test_an_interval_shorter_than_a_look_is_kept() -> None:
    """While the only probe is on its way nothing is due; looking again after 0.2 s would take a minute here."""
    clock, watch, workers, done = MonotonicClock(), Watch(), Workers(lambda: None), asyncio.Event()
    watch.follow(parse_config(CONFIG, file="c.yaml"), {}, now_s=clock.now_s())
    asked = []

    async def answers(target: Target, *, timeout_s: float) -> ProbeResult:
        asked.append(target)
        if len(asked) == RESULTS:
            done.set()
        await asyncio.sleep(0)
        return ProbeResult(ok=True, latency_s=0.0, reason="answered")

    async def main() -> None:
        workers.start(Asker(answers, watch, clock, workers, changed=lambda: None).forever())
        try:
            await asyncio.wait_for(done.wait(), PATIENCE_S)
        finally:
            await workers.stop()

    asyncio.run(main())
    assert len(asked) >= RESULTS
