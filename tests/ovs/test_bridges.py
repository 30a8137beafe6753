"""Several bridges with a config each on a real Open vSwitch: one agent or controller, commands that answer for all.

Each bridge is as its own config says, whatever happens to the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, Command, CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import PATIENCE_S, eventually

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
_SECOND = (
    SMALL_CONFIG.replace("ovsbr1", "ovsbr2").replace("p0", "q0").replace("p1", "q1").replace("10.3.10.45", "10.9.9.9")
)
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
        assert f"until `xenoovs pause --end --bridge ovsbr1 --db {bridge.ovs.db}`" in paused.out
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
    other.write_text(_SECOND)
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


def controller(*words: str | Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that listens wherever there is room, until the end of the `with`."""
    return running("controller", *words, "--listen", "127.0.0.1:0", "--log", "json")


def _config(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return path


def _vip(bridge: DummyBridge) -> set[str]:
    """The VIPs for which the bridge has flows."""
    return {
        flow.partition("nw_dst=")[2].partition(" ")[0].partition(",")[0] for flow in bridge.ours() if "nw_dst=" in flow
    }


def _told(process: subprocess.Popen[str], event: str) -> dict[str, object]:
    """The next such event in the log."""
    assert process.stderr is not None
    for line in process.stderr:
        found: dict[str, object] = json.loads(line)
        if found["event"] == event:
            return found
    pytest.fail(f"the log ends without {event!r}")


def test_each_bridge_has_the_flows_of_its_config_its_own_status_and_its_part_of_the_page(
    bridge: DummyBridge, second: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """A config that names another bridge later is refused: else two agents would fight for one bridge."""
    one, two = _config(tmp_path, "one", SMALL_CONFIG), _config(tmp_path, "two", _SECOND)

    def get(path: str) -> str:
        with urllib.request.urlopen(f"{url}{path}", timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    with controller(one, two, "--attach", "--web", "127.0.0.1:0", "--db", bridge.ovs.db) as process:
        url = next(at for at in iter(lambda: str(_told(process, "listening")["at"]), "") if at.startswith("http"))
        eventually(lambda: _vip(bridge) == {"10.3.10.45"}, "the flows of the first")
        eventually(lambda: _vip(second) == {"10.9.9.9"}, "the flows of the second")
        drained = xenoovs("drain", "dns", "fips2", "--bridge", "ovsbr2", "--db", bridge.ovs.db)
        assert drained.status == 0, drained.err
        states = {}
        for name in ("ovsbr1", "ovsbr2"):
            snapshot = json.loads(xenoovs("status", "--bridge", name, "--db", bridge.ovs.db, "-o", "json").out)[
                "snapshot"
            ]
            assert snapshot["bridge"] == name
            assert [port["link_up"] for port in snapshot["ports"]] == [True, True]
            states[name] = [backend["state"] for backend in snapshot["services"][0]["backends"]]
            assert all(event["facts"].get("bridge", name) == name for event in snapshot["events"])
            for path in ("now", "v1/status"):
                assert json.loads(get(f"/{name}/{path}"))["snapshot"]["bridge"] == name
            assert f'href="{name}/"' in get("/")
            assert f'bridge="{name}"' in get(f"/{name}/metrics")
        assert states == {"ovsbr1": ["unchecked", "unchecked"], "ovsbr2": ["drained", "unchecked"]}
        assert 'fetch("now"' in get("/ovsbr2/")
        one.write_text(_SECOND.replace("10.9.9.9", "10.7.7.7"))
        refused = _told(process, "the config cannot be applied; the last good one stays")
        assert refused["bridge"] == "ovsbr1"
        assert "manages bridge ovsbr1 and refuses ovsbr2" in str(refused["reason"])
        assert (_vip(bridge), _vip(second)) == ({"10.3.10.45"}, {"10.9.9.9"})
        process.send_signal(signal.SIGTERM)
        assert finish(process).status == 0


def test_bridges_of_one_name_on_two_hosts_are_told_apart_and_one_that_hangs_keeps_no_flow_from_the_other(
    bridge: DummyBridge, own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """What others change is put right again and again while questions to the one that hangs run out of time."""
    with own_ovs.bridge() as elsewhere:
        ids = [
            each.ovs.vsctl("get", "bridge", each.name, "datapath_id").strip().strip('"') for each in (bridge, elsewhere)
        ]
        texts = [SMALL_CONFIG, SMALL_CONFIG.replace("10.3.10.45", "10.9.9.9")]
        files = [
            _config(tmp_path, name, text.replace("{bridge: ovsbr1", f'{{bridge: ovsbr1, datapath_id: "{each}"'))
            for name, text, each in zip(("one", "two"), texts, ids, strict=True)
        ]
        with controller(*files, "--attach", "--resync", "200ms", "--db", bridge.ovs.db) as process:
            told = _told(process, "a bridge is not attached")
            assert told["bridge"] == f"ovsbr1@{ids[1]}"
            target = str(told["remedy"]).split()[3].rstrip(",")
            quick = ("--", "set", "controller", "ovsbr1", "max_backoff=1000")
            elsewhere.ovs.vsctl("set-controller", "ovsbr1", target, *quick)
            eventually(lambda: _vip(bridge) == {"10.3.10.45"}, "the flows of the one")
            eventually(lambda: _vip(elsewhere) == {"10.9.9.9"}, "the flows of the other")
            said = xenoovs("status", "--bridge", f"ovsbr1@{ids[1]}", "--db", bridge.ovs.db)
            assert (said.status, said.out.startswith(f"bridge ovsbr1@{ids[1]}: agent up ")) == (0, True), said.err
            before = bridge.ours()
            os.kill(own_ovs.ovs.pids()[0], signal.SIGSTOP)
            try:
                for _ in range(3):
                    bridge.ofctl("del-flows", "table=1,ip")
                    eventually(lambda: bridge.ours() == before, "what somebody has changed is right again")
            finally:
                os.kill(own_ovs.ovs.pids()[0], signal.SIGCONT)
            elsewhere.ofctl("del-flows", "table=1,ip")
            eventually(lambda: len(elsewhere.ours()) == len(before), "the other one goes on")


def test_a_bridge_that_others_control_is_left_to_them(
    bridge: DummyBridge, second: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """Found when the remedy was the very command that puts their controller out."""
    second.ovs.vsctl("set-controller", "ovsbr2", "tcp:127.0.0.1:1")
    one, two = _config(tmp_path, "one", SMALL_CONFIG), _config(tmp_path, "two", _SECOND)
    with controller(one, two, "--attach", "--db", bridge.ovs.db) as process:
        told = _told(process, "a bridge is not attached")
    assert told["bridge"] == "ovsbr2"
    reason = "has another controller (tcp:127.0.0.1:1) and was not changed"
    assert reason in str(told["reason"])
    assert told["remedy"] == "start this with --redundant, to stand beside tcp:127.0.0.1:1"
    alone = xenoovs("controller", two, "--attach", "--db", bridge.ovs.db)
    assert (alone.status, reason in alone.err) == (1, True)
    assert second.ovs.vsctl("get-controller", "ovsbr2") == "tcp:127.0.0.1:1"
