"""`apply --confirm` and drains: one goes on while nobody has confirmed yet; the way back leaves others alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import Command, finish, running
from tests.compiled import moves_of
from tests.ovs.dummy import DummyBridge
from tests.patience import eventually
from xenoovs.decision.decision import BlockMove, Phase
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.model.load import parse_config
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 60s, idle_timeout: 60s}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
  - name: mail
    vip: 10.3.10.46
    protocol: tcp
    ports: [25]
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""
WEB, MAIL = CONFIG.split("  - name: mail")
WITHOUT_ONE = f"{WEB.replace('00:02, weight: 1', '00:02, weight: 0')}  - name: mail{MAIL}"
BOTH_WITHOUT_ONE = CONFIG.replace("00:02, weight: 1", "00:02, weight: 0")


@pytest.fixture
def before(on_bridge: Command, bridge: DummyBridge, config: Path) -> list[str]:
    """The flows of CONFIG; the file takes backend one out of web then."""
    assert on_bridge("apply", config, "--yes").status == 0
    config.write_text(WITHOUT_ONE)
    return sorted(bridge.dump_flows())


def switch_of(bridge: DummyBridge) -> ManagementSwitch:
    return ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory))


def moving(bridge: DummyBridge) -> tuple[tuple[int, BlockMove], ...]:
    return moves_of(switch_of(bridge).dump_flows(bridge.name))


def has_settled(bridge: DummyBridge) -> bool:
    return all(move.phase is Phase.OPEN for _, move in moving(bridge))


@contextmanager
def applying(config: Path, bridge: DummyBridge, *options: str) -> Iterator[subprocess.Popen[str]]:
    """An `apply` that has begun a drain; it is ended by the test or killed."""
    with running("apply", config, "--db", bridge.ovs.db, "--yes", *options) as process:
        eventually(lambda: bool(moving(bridge)), "the drain")
        yield process


def confirm(on_bridge: Command, bridge: DummyBridge) -> int:
    return on_bridge("confirm", "--bridge", bridge.name).status


def test_a_drain_goes_on_while_nobody_has_confirmed(
    on_bridge: Command, bridge: DummyBridge, config: Path, before: list[str]
) -> None:
    """New connections go to the new backend: a change that is to be judged has to be there."""
    config.write_text(WITHOUT_ONE.replace("timeout: 60s, idle_timeout: 60s", "timeout: 4s, idle_timeout: 4s"))
    with applying(config, bridge, "--confirm", "60s") as process:
        eventually(lambda: has_settled(bridge), "new connections that go on")
        eventually(lambda: not moving(bridge), "the end of the drain")
        assert confirm(on_bridge, bridge) == 0
        said = finish(process)
    assert (said.status, "drained: all blocks have moved" in said.out) == (0, True), said.err
    assert sorted(bridge.dump_flows()) != before


def test_the_way_back_ends_the_drain_that_it_began(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    with applying(config, bridge, "--confirm", "4s") as process:
        eventually(lambda: has_settled(bridge), "new connections that go on")
        said = finish(process)
    assert said.status == 1
    assert "the change was not confirmed within 4s" in said.err
    assert sorted(bridge.dump_flows()) == before


def test_the_way_back_leaves_the_drain_of_another_service(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    """It was ended with the change: all flows were put back as they had been.

    An agent begins the other drain; a second `apply` is refused meanwhile.
    """
    with applying(config, bridge, "--confirm", "10m") as process:
        engine = Engine(switch_of(bridge))
        engine.apply(engine.plan(parse_config(BOTH_WITHOUT_ONE, file="other.yaml"), PlanOptions()))
        assert len({service for service, _ in moving(bridge)}) == 2
        process.terminate()
        assert finish(process).status == 1
    (left,) = {each[0] for each in moving(bridge)}
    web = [line for line in before if f"{left:#x}" not in line]
    assert [line for line in sorted(bridge.dump_flows()) if f"{left:#x}" not in line] == web
