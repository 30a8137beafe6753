"""An agent with more silent backends than descriptors: it goes on, and no backend is down because of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import XENOOVS
from tests.ovs.dummy import DummyBridge
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.agent.control.paths import answers
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

BACKENDS = 600


@pytest.fixture
def silent_network() -> Iterator[str]:
    """A namespace with a network without any other machine: without ARP all packets go to a MAC that none has."""
    name = f"silent{os.getpid()}"
    run(["ip", "netns", "add", name])
    try:
        run(["ip", "-n", name, "link", "add", "d0", "type", "veth", "peer", "name", "d1"])
        run(["ip", "-n", name, "addr", "add", "198.18.0.1/15", "dev", "d0"])
        run(["ip", "-n", name, "link", "set", "d0", "up", "arp", "off"])
        run(["ip", "-n", name, "link", "set", "d1", "up"])
        yield name
    finally:
        run(["ip", "netns", "del", name])


@pytest.fixture
def many(tmp_path: Path, silent_network: str) -> Path:
    """A config of very many backends, none of which answers."""
    path = tmp_path / "many.yaml"
    backends = "".join(
        f"      - {{name: b{i}, mac: 02:00:5e:10:{i >> 8:02x}:{i & 255:02x}, weight: 1,"
        f" address: 198.18.{1 + (i >> 8)}.{i & 255}}}\n"
        for i in range(BACKENDS)
    )
    path.write_text(
        "version: 1\n"
        "switch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"
        f"health: {{probe: tcp, port: 80, netns: {silent_network}, interval: 2s, timeout: 1500ms, fall: 2}}\n"
        "services:\n"
        "  - name: web\n    vip: 10.3.10.45\n    protocol: tcp\n    ports: [80]\n    tolerance: 80%\n"
        "    backends:\n" + backends
    )
    return path


@contextmanager
def agent(bridge: DummyBridge, config: Path, *, soft: int, hard: int) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"
    limit = f"--nofile={soft}:{hard}"
    command = ["prlimit", limit, str(XENOOVS), "agent", str(config), "--db", bridge.ovs.db]
    with subprocess.Popen(command, text=True) as process:
        try:
            eventually(lambda: answers(path), "its socket")
            yield process, Client(path)
        finally:
            process.kill()


def backends(client: Client) -> list[dict[str, Any]]:
    (service,) = client.ask("status")["snapshot"]["services"]
    found: list[dict[str, Any]] = service["backends"]
    return found


def texts(client: Client) -> list[str]:
    return [event["text"] for event in client.ask("events")["events"]]


def test_the_soft_limit_of_descriptors_is_raised(bridge: DummyBridge, many: Path) -> None:
    with agent(bridge, many, soft=256, hard=4096) as (process, client):
        eventually(lambda: all(each["state"] == "down" for each in backends(client)), "all are down")
        assert {each["reason"] for each in backends(client)} == {"no answer within 1.5s"}
        assert process.poll() is None


def test_too_few_descriptors_make_health_checks_late_and_no_backend_down(bridge: DummyBridge, many: Path) -> None:
    with agent(bridge, many, soft=320, hard=320) as (process, client):
        eventually(lambda: client.ask("status")["snapshot"]["probes_late_s"] > 0, "health checks are late")
        eventually(lambda: all(each["state"] == "down" for each in backends(client)), "all are down")
        assert {each["reason"] for each in backends(client)} == {"no answer within 1.5s"}
        eventually(lambda: "health checks are late" in texts(client), "the event")
        assert process.poll() is None
