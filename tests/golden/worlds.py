"""The worlds in which outputs are recorded: an agent whose clock stands still, and recorded answers of agents."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from aiohttp.web import RouteDef

from tests.agent_support import Scene
from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled
from tests.fake_switch import fake_bridge
from tests.faked_datapath import FakedDatapath
from tests.fleet_support import EMPTY, committed, settled
from tests.patience import eventually
from tests.snapshots import NOW_S
from tests.unit.judge.doctor.facts import DATABASE, HOST
from tests.unix_http import answering
from xenoovs.agent.daemon import Agent
from xenoovs.agent.offload import OffloadSampler, RuleUse
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.state import SamplesAsked
from xenoovs.agent.telemetry import telemetry
from xenoovs.datapath.megaflow import Verdict
from xenoovs.fleet.commands import client
from xenoovs.log import LOGGER
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Flow
from xenoovs.store.client import CommitOutcome, StoreConnection
from xenoovs.store.view import Changes, DpuStatus, FleetView
from xenoovs.switch.endpoint import Endpoint

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 1000s, timeout: 1s, fall: 1, rise: 1, jitter: 0%}
services:
  - name: web
    vip: 192.0.2.80
    protocol: tcp
    ports: [443]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:02, address: 198.51.100.2, weight: 4}
      - {name: web2, mac: 02:00:5e:10:00:03, address: 198.51.100.3, weight: 3}
      - {name: web3, mac: 02:00:5e:10:00:04, address: 198.51.100.4, weight: 1}
  - name: dns
    vip: 192.0.2.53
    protocol: udp
    ports: [53]
    health: {probe: none}
    backends:
      - {name: dns1, mac: 02:00:5e:10:00:02, address: 198.51.100.2, weight: 1}
      - {name: dns2, mac: 02:00:5e:10:00:05, weight: 1}
"""
_DEAD = "198.51.100.3"
_VERDICTS = (Verdict.HW, Verdict.TC_SW, Verdict.HW, Verdict.SW, Verdict.ABSENT, Verdict.PARTIAL)
_STEP_S = 20.0
WORLDS = Path(__file__).parent / "worlds"


class StillClock:
    """The time of an agent and the date, which only a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed_s = 0.0
        monkeypatch.setattr(time, "time", lambda: NOW_S + self.elapsed_s)
        # Records of logging ask it since Python 3.13.
        monkeypatch.setattr(time, "time_ns", lambda: int((NOW_S + self.elapsed_s) * 1e9))
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()

    def now_s(self) -> float:
        return 1000.0 + self.elapsed_s


async def _all_but_one(check: Check, *, timeout_s: float) -> ProbeResult:
    is_well = str(check.address) != _DEAD
    return ProbeResult(ok=is_well, latency_s=0.001, reason="answered" if is_well else "connection refused")


@contextmanager
def running_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent at `agent.sock` of the working directory that has one backend down, and two samples of its datapath."""
    # An earlier test of this process may have let it write to standard error.
    monkeypatch.setattr(logging.getLogger(LOGGER), "handlers", [logging.NullHandler()])
    for name, value in {"WATCHED_INTERVAL_S": 10.0, "SHARE": 1.0, "WATCHED_SHARE": 1.0}.items():
        monkeypatch.setattr(f"xenoovs.agent.offload.{name}", value)
    clock, switch = StillClock(monkeypatch), FakedDatapath(fake_bridge("ovsbr1", ["p0", "p1"]))
    switch.verdict = lambda service, backend, number: _VERDICTS[(number + len(backend)) % len(_VERDICTS)]
    scene = Scene(Path(), switch)
    scene.config.write_text(CONFIG)

    def routes(agent: Agent) -> list[RouteDef]:
        switch.program = lambda: agent.engine.program
        apart = RuleUse(lambda ports, is_brief: {}, lambda _: {})
        agent.add_task(OffloadSampler(agent.store, agent.engine.switch, apart, interval_s=10.0, is_always=True).run)
        return telemetry(agent, with_blocks=True)

    with scene.agent(probe=_all_but_one, routes=routes, resync_s=10_000, now_s=clock.now_s) as (agent, client):
        reset = {"service": "web", "backend": "web1"}
        # The answer comes after a round that begins now, so the time of no earlier one is moved.
        client.ask("reset", reset)
        for _ in range(2):
            clock.elapsed_s += _STEP_S
            agent.store.publish(SamplesAsked())
            eventually(lambda: agent.state.offload.sampled_s == time.time(), "a sample")
        client.ask("reset", reset)
        yield


@contextmanager
def served(world: str) -> Iterator[dict[str, Any]]:
    """What an agent answers, by address, from a file of tests/golden/worlds; at `agent.sock` too."""
    answers: dict[str, Any] = json.loads((WORLDS / f"{world}.json").read_text())

    def answer(target: str, _: object) -> object:
        address = unquote_plus(target).removesuffix("&after=0")
        return answers.get(address, answers.get(address.partition("?")[0]))

    with answering("agent.sock", answer):
        yield answers


def in_memory_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands reach a switch with a datapath, on a host where one setting is wrong; write configs for them."""
    StillClock(monkeypatch)
    switch = FakedDatapath(fake_bridge("ovsbr1", ["p0", "p1"]))
    switch.verdict = lambda service, backend, number: _VERDICTS[number % len(_VERDICTS)]
    switch.program = lambda: (
        compiled(parse_config(SMALL_CONFIG, file="my.yaml"), installed=flows()) if flows() else None
    )

    def flows() -> list[Flow]:
        return [seen.flow for seen in switch.dump_flows("ovsbr1")]

    endpoint = Endpoint("unix:db.sock", Path("run"))
    switch.endpoint = endpoint  # type: ignore[attr-defined]
    switch.dump_foreign_flows = lambda _: ()  # type: ignore[attr-defined]
    host = replace(HOST, database=replace(DATABASE, config={"hw-offload": "false"}))
    monkeypatch.setenv("SUDO_USER", "operator")
    monkeypatch.setattr("xenoovs.terminal.reach.find_endpoint", lambda **_: endpoint)
    monkeypatch.setattr("xenoovs.switch.management.ManagementSwitch", lambda _: switch)
    monkeypatch.setattr("xenoovs.terminal.reach.require_answers", lambda _: None)
    monkeypatch.setattr("xenoovs.cli.doctor.check_reachable", lambda _: None)
    monkeypatch.setattr("xenoovs.diagnosis.host.gather", lambda *_, **__: host)
    _write_configs()


def _write_configs() -> None:
    Path("my.yaml").write_text(SMALL_CONFIG)
    Path("heavier.yaml").write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))


class _FleetInMemory:
    """The two databases of a fleet, with a controller that decides at once. The DPU `dpu2` has a problem.

    Who waits moves the clock, and the date stands still.
    """

    connection = StoreConnection(is_connected=True, remote="unix:fleet.sock", since_s=NOW_S, is_leader=True)

    def __init__(self) -> None:
        self._view, self.elapsed_s = EMPTY, 0.0

    def monotonic(self) -> float:
        return self.elapsed_s

    def sleep(self, time_s: float) -> None:
        self.elapsed_s += time_s

    def view(self) -> FleetView:
        return self._view

    def wait_changed(self, before: FleetView | None, *, timeout_s: float) -> FleetView | None:
        if before is self._view:
            self.sleep(timeout_s)
        return self._view

    def commit(self, generation: int, changes: Changes, **_: object) -> CommitOutcome:
        self._view = settled(committed(self._view, changes))
        return CommitOutcome.COMMITTED

    def statuses(self) -> dict[str, DpuStatus]:
        seen_ms, newest = int(NOW_S * 1000) - 4000, self._view.generation
        good = DpuStatus("dpu1", applied=newest, seen_ms=seen_ms, verdicts={"HW": 9, "SW": 1})
        bad = replace(good, name="dpu2", applied=max(0, newest - 1), error="port p9 is not on bridge ovsbr1")
        return {"dpu1": good, "dpu2": bad}


def in_memory_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands about a fleet find this one, and write configs for them."""
    StillClock(monkeypatch)
    fleet: Any = _FleetInMemory()
    monkeypatch.setattr(time, "monotonic", fleet.monotonic)
    monkeypatch.setattr(time, "sleep", fleet.sleep)
    monkeypatch.setenv("SUDO_USER", "operator")
    monkeypatch.setattr(socket, "gethostname", lambda: "store1")
    monkeypatch.setattr(client, "fleet_store", lambda *_: nullcontext(client.FleetStore(fleet, fleet, Path("fleet"))))
    _write_configs()


def in_directory_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Link configs, dumps and measured runs into the working directory."""
    tests = Path(__file__).parents[1]
    for draw, drawn in (("svg_of", ""), ("png_of", b"")):
        # Pictures take half a minute, and are no text.
        monkeypatch.setattr(f"xenoovs.measure.pictures.{draw}", lambda *_, drawn=drawn: drawn)
    for folder in ("../flows", "golden/why", "golden/verify", "unit/measure/recorded"):
        Path(Path(folder).name).symlink_to(tests / folder)
    each = (tests / "../flows/tunnel-each/config.yaml").read_text()
    Path("bfd.yaml").write_text(each.replace("ports: each", "bfd: {interval: 300ms, multiplier: 5}"))
    Path("clients").write_text("".join(f"198.51.{n // 250}.{n * 37 % 251} {n % 9 + 1}\n" for n in range(500)))
