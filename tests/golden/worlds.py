"""The worlds in which outputs are recorded: an agent whose clock stands still, and recorded answers of agents."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from typing import Any
from urllib.parse import unquote_plus

import pytest

from tests.agent_support import Scene
from tests.fake_switch import fake_bridge
from tests.faked_datapath import FakedDatapath
from tests.patience import eventually
from tests.snapshots import NOW_S
from xenoovs.agent.control.app import Mount
from xenoovs.agent.daemon import Agent
from xenoovs.agent.offload import SamplePace
from xenoovs.agent.probe.target import ProbeResult, Target, TcpTarget
from xenoovs.agent.telemetry import Telemetry
from xenoovs.datapath.megaflow import Verdict

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
_PACE = SamplePace(interval_s=10, watched_interval_s=10, share=1, watched_share=1)
_STEP_S = 20.0
_WORLDS = Path(__file__).parent / "worlds"


class StillClock:
    """The time of an agent and the date, which only a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elapsed_s = 0.0
        monkeypatch.setattr(time, "time", lambda: NOW_S + self.elapsed_s)
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()

    def now_s(self) -> float:
        return 1000.0 + self.elapsed_s


async def _all_but_one(target: Target, *, timeout_s: float) -> ProbeResult:
    assert isinstance(target, TcpTarget)
    is_well = str(target.address) != _DEAD
    return ProbeResult(ok=is_well, latency_s=0.001, reason="answered" if is_well else "connection refused")


@contextmanager
def running_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent at `agent.sock` of the working directory that has one backend down, and two samples of its datapath."""
    clock, switch = StillClock(monkeypatch), FakedDatapath(fake_bridge("ovsbr1", ["p0", "p1"]))
    switch.verdict = lambda service, backend, number: _VERDICTS[(number + len(backend)) % len(_VERDICTS)]
    scene = Scene(Path(), switch)
    scene.config.write_text(CONFIG)

    def mounts(agent: Agent) -> tuple[Mount, ...]:
        switch.program = lambda: agent.engine.program
        return Telemetry(agent, pace=_PACE, with_blocks=True, is_always=True).mounts()

    with scene.agent(probe=_all_but_one, mounts=mounts, resync_s=10_000, clock=clock) as (agent, client):
        reset = {"service": "web", "backend": "web1"}
        # The answer comes after a round that begins now, so the time of no earlier one is moved.
        client.ask("reset", reset)
        for _ in range(2):
            clock.elapsed_s += _STEP_S
            agent.request_offload()
            eventually(lambda: agent.offload is not None and agent.offload.sampled_s == time.time(), "a sample")
        client.ask("reset", reset)
        yield


@contextmanager
def served(world: str) -> Iterator[dict[str, Any]]:
    """What an agent answers, by address, from a file of tests/golden/worlds; at `agent.sock` too."""
    answers: dict[str, Any] = json.loads((_WORLDS / f"{world}.json").read_text())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = unquote_plus(self.path).removesuffix("&after=0")
            document = answers.get(address, answers.get(address.partition("?")[0]))
            data = json.dumps(document).encode()
            self.send_response(404 if document is None else 200)
            self.end_headers()
            self.wfile.write(data)

        def address_string(self) -> str:
            return ""

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingUnixStreamServer("agent.sock", Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield answers
        finally:
            server.shutdown()
            thread.join()
    Path("agent.sock").unlink()
