"""Two bridges of a host with a config each, on a real ovs-vswitchd: one agent, and commands that answer for both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, Command, finish, running, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually

LEFT = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
include: services.yaml
"""
RIGHT = """\
version: 1
switch: {{bridge: ovsbr2, ingress: [q0], egress: q1}}
include: services.yaml
services:
  - name: web
    vip: 10.3.10.80
    health: {{probe: exec, command: [{program}], interval: 200ms, fast_interval: 50ms, rise: 1, fall: 2}}
    backends:
      - {{name: fips4, mac: 02:00:5e:10:00:04, address: 192.0.2.4, weight: 1}}
      - {{name: fips5, mac: 02:00:5e:10:00:05, address: 192.0.2.5, weight: 1}}
"""
SERVICES = f"services:{SMALL_CONFIG.partition('services:')[2]}"


@pytest.fixture
def second(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("ovsbr2", ports=("q0", "q1")) as made:
        yield made


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A config for each bridge, with services in a third file, and one service on the second alone."""
    left, right, program = (tmp_path / name for name in ("left.yaml", "right.yaml", "probe"))
    left.write_text(LEFT)
    right.write_text(RIGHT.format(program=program))
    (tmp_path / "services.yaml").write_text(SERVICES)
    program.write_text(f"#!/bin/sh\n! test -e {tmp_path}/dead-$XENOOVS_ADDRESS\n")
    program.chmod(0o755)
    return left, right


def _serves(bridge: DummyBridge, mac: str) -> bool:
    """Return whether clients come to a backend now."""
    return any("table=1," in flow and mac in flow for flow in bridge.ours())


def test_a_backend_that_dies_on_one_bridge_changes_nothing_on_the_other(
    on_bridge: Command, bridge: DummyBridge, second: DummyBridge, files: tuple[Path, Path], tmp_path: Path
) -> None:
    with running("agent", *files, "--db", bridge.ovs.db, "--allow-exec"):
        eventually(lambda: _serves(second, "02:00:5e:10:00:05"), "both backends of web")
        eventually(lambda: len(bridge.ours()) == 8, "the flows of the other bridge")
        before = bridge.ours()
        (tmp_path / "dead-192.0.2.5").touch()
        eventually(lambda: not _serves(second, "02:00:5e:10:00:05"), "fips5 is ejected")
        assert _serves(second, "02:00:5e:10:00:04")
        assert bridge.ours() == before
        shown = on_bridge("status")
        assert shown.out.index("bridge ovsbr1\n") < shown.out.index("dns ") < shown.out.index("bridge ovsbr2\n")
        assert (shown.status, "down: ended with status 1" in shown.out) == (0, True)
        assert "bridge ovsbr2\n\nagent up " in shown.out
        assert shown.out.count("bridge ovsbr1") == shown.out.count("bridge ovsbr2") == 1
        found = json.loads(on_bridge("status", "-o", "json").out)["bridges"]
        assert [(each["bridge"], each["from"]) for each in found] == [("ovsbr1", "agent"), ("ovsbr2", "agent")]
        other = on_bridge("status", files[0], "--bridge", "ovsbr2")
        assert (other.status, f"--bridge ovsbr2: {files[0]} is about bridge ovsbr1." in other.err) == (64, True)
        refused = on_bridge("drain", "dns", "fips2")
        assert (refused.status, "(ovsbr1, ovsbr2): choose one with --bridge" in refused.err) == (64, True)
        assert on_bridge("drain", "dns", "fips2", "--bridge", "ovsbr1").status == 0
        for words in ((), (files[0],), ("--bridge", "ovsbr1")):
            undrain = f"; `xenoovs reset dns/fips2 --bridge ovsbr1 --db {bridge.ovs.db}` reverts it"
            assert undrain in on_bridge("status", *words).out
        paused = on_bridge("pause", "--bridge", "ovsbr1")
        assert f"until `xenoovs resume --bridge ovsbr1 --db {bridge.ovs.db}`" in paused.out
        asked = on_bridge("apply", files[0], "--yes", "--rebalance")
        assert (asked.status, "An agent reconciles bridge ovsbr1" in asked.err) == (64, True)


def test_a_mistake_in_one_file_and_a_bridge_that_is_missing_do_not_hold_up_the_other(
    dummy_ovs: DummyOvs, bridge: DummyBridge, files: tuple[Path, Path], tmp_path: Path
) -> None:
    with running("agent", *files, "--db", bridge.ovs.db, "--allow-exec"):
        eventually(lambda: len(bridge.ours()) == 8, "the flows of the first")
        with dummy_ovs.bridge("ovsbr2", ports=("q0", "q1")) as second:
            eventually(lambda: _serves(second, "02:00:5e:10:00:05"), "the flows of the second, once it is there")
            before = second.ours()
            files[1].write_text(files[1].read_text().replace("weight: 1}", "weight: -1}"))
            (tmp_path / "services.yaml").write_text(SERVICES.replace("ports: [53]", "ports: [54]"))
            eventually(lambda: "tp_dst=54" in "".join(bridge.ours()), "the new port")
            assert second.ours() == before


def test_history_answers_for_each_bridge(
    on_bridge: Command, bridge: DummyBridge, second: DummyBridge, files: tuple[Path, Path]
) -> None:
    for file in files:
        assert on_bridge("apply", file, "--yes").status == 0
    history = json.loads(on_bridge("history", "-o", "json").out)
    assert [(each["bridge"], each["installed"]) for each in history["bridges"]] == [
        (one.name, each["entries"][-1]["number"])
        for one, each in zip((bridge, second), history["bridges"], strict=True)
    ]


def test_an_agent_that_follows_a_renamed_bridge_locks_it(
    on_bridge: Command, bridge: DummyBridge, second: DummyBridge, tmp_path: Path
) -> None:
    """It held the lock of the bridge that its config had named first, and two agents could reconcile one bridge."""
    path, other, db = tmp_path / "one.yaml", tmp_path / "other.yaml", ("--db", bridge.ovs.db)
    path.write_text(SMALL_CONFIG)
    other.write_text(SMALL_CONFIG.replace("ovsbr1, ingress: [p0], egress: p1", "ovsbr2, ingress: [q0], egress: q1"))
    locks = [bridge.ovs.directory / "xenoovs" / f"{name}.lock" for name in ("ovsbr1", "ovsbr2")]
    with running("agent", path, *db), running("agent", other, *db) as beside:
        eventually(lambda: bool(bridge.ours() and second.ours()), "the flows of both")
        path.write_text(other.read_text())
        refused = "another agent reconciles bridge ovsbr2 already"
        eventually(lambda: refused in on_bridge("status", "--bridge", "ovsbr1").out, "the refusal")
        beside.kill()
        beside.communicate()
        path.write_text(other.read_text() + "# once more\n")
        eventually(lambda: not locks[0].exists(), "the end of the lock of ovsbr1")
        second_agent = finish(start("agent", other, *db))
        assert (second_agent.status, refused in second_agent.err) == (1, True)
        other.write_text(other.read_text().replace("weight: 30", "weight: 60"))
        asked = on_bridge("apply", other, "--yes")
        assert (asked.status, "An agent reconciles bridge ovsbr2" in asked.err) == (64, True), asked.err
