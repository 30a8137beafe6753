"""The scheduler limits concurrent probes; a shortage of this host is no failure of a backend."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from tests.patience import PATIENCE_S
from xenoovs.agent import scheduler as module
from xenoovs.agent.log import LOGGER
from xenoovs.agent.probe.target import ProbeResult, ResourceShortage, Target
from xenoovs.agent.scheduler import Probe, ProbeScheduler, max_probes
from xenoovs.agent.state import AgentState, ConfigFollowed
from xenoovs.agent.store import Store
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.model.load import parse_config

BACKENDS = 20
CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, port: 80, interval: 50ms, timeout: 40ms, jitter: 0%}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    backends:
""" + "".join(
    f"      - {{name: b{i}, mac: 02:00:5e:10:00:{i:02x}, weight: 1, address: 198.51.100.{1 + i}}}\n"
    for i in range(BACKENDS)
)


class Scheduled:
    """A running scheduler and the state that it changes."""

    def __init__(self, probe: Probe, config: str = CONFIG, max_running: int = sys.maxsize) -> None:
        balancer = parse_config(config, file="c.yaml")
        self.tasks = BackgroundTasks()
        self.store = Store(AgentState(balancer, balancer))
        self.scheduler = ProbeScheduler(probe, self.store, self.tasks, max_running)

    async def run(self, until: Callable[[], bool]) -> None:
        self.tasks.start(self.scheduler.run())
        # Only now: new checks wake a scheduler that has nothing to do.
        await asyncio.sleep(0)
        self.store.dispatch(ConfigFollowed(self.store.state.balancer))
        try:
            await asyncio.wait_for(self._reach(until), PATIENCE_S)
        finally:
            await self.tasks.stop()

    async def _reach(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)


def answered() -> ProbeResult:
    return ProbeResult(ok=True, latency_s=0.0, reason="answered")


def test_an_interval_shorter_than_any_pause_is_met() -> None:
    """While the only probe is on its way nothing is due: its result sets the next time."""
    asked = []

    async def probe(target: Target, *, timeout_s: float) -> ProbeResult:
        asked.append(target)
        return answered()

    one = CONFIG.partition("      - {name: b1")[0].replace(
        "interval: 50ms, timeout: 40ms", "interval: 5ms, timeout: 5ms"
    )
    asyncio.run(Scheduled(probe, one).run(lambda: len(asked) >= 300))


def test_no_more_probes_run_than_there_are_descriptors_for() -> None:
    running, most, done = 0, 0, 0

    async def probe(target: Target, *, timeout_s: float) -> ProbeResult:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1
        return answered()

    scheduled = Scheduled(probe, max_running=3)
    asyncio.run(scheduled.run(lambda: done >= 5 * BACKENDS))
    assert most == 3
    assert scheduled.store.state.tracker.is_settled


def test_a_shortage_of_this_host_is_no_failure_of_a_backend() -> None:
    calls = 0

    async def probe(target: Target, *, timeout_s: float) -> ProbeResult:
        nonlocal calls
        calls += 1
        if calls <= 2 * BACKENDS:
            raise ResourceShortage("too many open files")
        return answered()

    scheduled = Scheduled(probe)
    asyncio.run(scheduled.run(lambda: calls >= 5 * BACKENDS))
    health = scheduled.store.state.tracker.health.values()
    assert {(each.is_up, each.transitions, each.failed_s) for each in health} == {(True, 0, ())}


def test_lateness_is_logged_with_its_reason_and_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_LATE_S", 0.3), ("_SUSTAINED_S", 0.3)):
        monkeypatch.setattr(module, name, seconds)
    is_short = True

    async def probe(target: Target, *, timeout_s: float) -> ProbeResult:
        if is_short:
            raise ResourceShortage("too many open files")
        return answered()

    scheduled = Scheduled(probe)

    async def main() -> None:
        nonlocal is_short

        def is_late() -> bool:
            nonlocal is_short
            is_short = is_short and not scheduled.scheduler.late_s
            return not is_short and not scheduled.scheduler.late_s

        await scheduled.run(is_late)

    with caplog.at_level("INFO", logger=LOGGER):
        asyncio.run(main())
    late, on_time = caplog.records
    assert (late.message, on_time.message) == ("health checks are late", "health checks are on time again")
    assert late.__dict__["facts"]["reason"] == "too many open files"


@pytest.mark.parametrize(("descriptors", "probes"), [(1024, 768), (4096, 3840), (256, 16), (1 << 20, (1 << 20) - 256)])
def test_some_descriptors_are_reserved(descriptors: int, probes: int) -> None:
    assert max_probes(descriptors) == probes
