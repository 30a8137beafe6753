"""The time of day jumps by decades, at each call: an agent starts, works, and starts again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import finish, start
from tests.ovs.dummy import DummyBridge
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.agent.control.paths import answers

pytestmark = pytest.mark.ovs

_JUMPING = """\
import itertools, time
_now, _years = time.time, itertools.cycle((0, -60, 10, -1))
time.time = lambda: _now() + next(_years) * 365.25 * 86400
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Python runs sitecustomize before all else (`site` of its library)."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(_JUMPING)
    return {"PYTHONPATH": f"{tmp_path / 'clock'}:{os.environ.get('PYTHONPATH', '')}"}


@contextmanager
def agent(bridge: DummyBridge, config: Path, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"
    process = start("agent", config, "--db", bridge.ovs.db, env=env)
    try:
        eventually(lambda: answers(path), "its socket")
        yield process, Client(path)
    finally:
        process.kill()
        process.communicate()


def test_an_agent_works_and_restarts_while_the_time_of_day_jumps(
    bridge: DummyBridge, config: Path, env: dict[str, str]
) -> None:
    with agent(bridge, config, env) as (_, client):
        eventually(lambda: len(bridge.dump_flows()) == 8, "its flows")
        for backend in ("fips2", "fips3"):
            assert client.ask("weight", {"service": "dns", "backend": backend, "weight": 50})["is_applied"]
        weights = [each["weight"] for each in client.ask("status")["snapshot"]["overrides"]]
    with agent(bridge, config, env) as (process, client):
        assert [each["weight"] for each in client.ask("status")["snapshot"]["overrides"]] == weights == [50, 50]
        assert "overrides are lost" not in [event["text"] for event in client.ask("events")["events"]]
        assert process.poll() is None


@pytest.mark.parametrize("command", ["plan", "status", "verify-offload"])
def test_commands_end_while_the_time_of_day_jumps(
    bridge: DummyBridge, config: Path, env: dict[str, str], command: str
) -> None:
    said = finish(start(command, config, "--db", bridge.ovs.db, env=env))
    assert said.status in (0, 2, 3)
    assert "Traceback" not in said.err
