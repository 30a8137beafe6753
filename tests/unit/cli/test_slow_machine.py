"""Commands on a slow machine: late, but not wrong. Time passes only where a test advances it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, cast

import pytest

from tests.command_line import CommandLine
from tests.compiled import compiled
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.agent.daemon import Agent
from xenoovs.agent.runtime_file import render_runtime
from xenoovs.agent.state import Runtime
from xenoovs.cli import apply_rollback, run_agents, status
from xenoovs.cli.apply_rollback import require_offload
from xenoovs.compile.read import is_block
from xenoovs.controller.mastership import Mastership
from xenoovs.diagnosis.offload import check_recorded_dump
from xenoovs.errors import CommandTimeout
from xenoovs.judge.findings import OffloadFindings
from xenoovs.model.load import load_config
from xenoovs.openflow.flow import OURS, Cookies, ObservedFlow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.watchdog import RollbackWatchdog

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG = GOLDEN / "dns.yaml"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self.pass_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class SlowSwitch(FakeSwitch):
    """Forwards 100 packets a second by one block, and takes three seconds for each dump of its flows."""

    DUMP_S = 3.0

    def __init__(self, clock: Clock) -> None:
        super().__init__(fake_bridge("ovsbr1", ("p0", "p1")))
        self.install("ovsbr1", compiled(load_config(CONFIG)).flows)
        self.endpoint = Endpoint("unix:/nonexistent/db.sock", Path("/nonexistent"))
        self._clock, self._counted_s = clock, clock.now_s

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        self._clock.pass_s(self.DUMP_S)
        block = next(flow for flow in self.all_flows(bridge).values() if is_block(flow.flow))
        packets = round(100 * (self._clock.now_s - self._counted_s))
        self.count(bridge, {block.flow.key: packets})
        self._counted_s = self._clock.now_s
        return super().dump_flows(bridge, only=only)


def test_rates_are_over_the_time_between_two_reads(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, xenoovs: CommandLine
) -> None:
    """They were computed over the interval without the time of the reads: 250 packets a second here."""
    switch = SlowSwitch(clock)
    monkeypatch.setattr(status, "reach", lambda *_: switch)
    result = xenoovs("status", CONFIG, "--from-bridge", "--interval", "2s", "-o", "json")
    rates = [row["rate_pps"] for row in json.loads(result.out)["backends"]]
    assert sum(rates) == 100, result.out


class _Guard:
    """A watchdog that would roll back after `limit_s`."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.rolls_back_s = clock, 0.0

    def limit(self, seconds: float) -> None:
        self.rolls_back_s = self._clock.now_s + seconds


class _SlowChecker:
    """Each dump of the datapath takes a minute, which is what one may take; the first one is not answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.dumps = clock, 0

    def check(self, **_: bool) -> OffloadFindings:
        self.dumps += 1
        if self.dumps == 1:
            raise CommandTimeout(argv=("ovs-appctl", "dpctl/dump-flows"), timeout_s=60.0)
        self._clock.pass_s(60.0)
        return check_recorded_dump(load_config(CONFIG), GOLDEN / "in_hardware.dump", None)


def test_a_slow_dump_of_the_datapath_rolls_nothing_back(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--rollback-unless-offloaded` rolled back if one dump took five seconds longer than its time, or failed once."""
    checker, guard = _SlowChecker(clock), _Guard(clock)
    monkeypatch.setattr(apply_rollback, "block_checker", lambda *_: checker)
    switch, watchdog = cast(ManagementSwitch, object()), cast(RollbackWatchdog, guard)
    text = require_offload(load_config(CONFIG), switch, watchdog, within_s=10.0)
    assert text == "7 blocks with traffic, all in hardware"
    assert (checker.dumps, clock.now_s < guard.rolls_back_s) == (2, True)


class _Standby:
    """An agent that needs some time to adopt a state, and whose round hangs."""

    bridge = "ovsbr1"

    def __init__(self) -> None:
        self.adopted: Runtime | None = None
        self.check_request: Any = None

    async def adopt(self, runtime: Runtime) -> None:
        for _ in range(5):
            await asyncio.sleep(0.02)
        self.adopted = runtime

    async def next_round(self) -> None:
        await asyncio.Event().wait()


class _Lease:
    """A mastership that hands on what another controller published."""

    def share(self, _name: str, adopt: Any) -> None:
        self.adopt = adopt


def test_a_controller_takes_over_with_the_state_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the state of the earlier master took longer to adopt than a round may take, a round ignored its drains."""
    monkeypatch.setattr(run_agents, "_ROUND_TIMEOUT_S", 0.01)
    agent, lease, state = _Standby(), _Lease(), Runtime(is_paused=True)

    async def take_over() -> Runtime | None:
        run_agents.share_runtime(cast(Agent, agent), cast(Mastership, lease), control=None)
        await asyncio.to_thread(lease.adopt, render_runtime(state).encode())
        return agent.adopted

    assert asyncio.run(take_over()) == state
