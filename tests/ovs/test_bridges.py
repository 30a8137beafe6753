"""Two bridges in one config file, on a real ovs-vswitchd: commands, an agent, and what fails on one of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.terminal.output import confirm

pytestmark = pytest.mark.ovs

TWO = """\
version: 1
bridges:
  - {bridge: ovsbr1, ingress: [p0], egress: p1}
  - {bridge: ovsbr2, ingress: [q0], egress: q1}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 70}
      - {name: fips3, mac: 02:00:5e:10:00:03, weight: 30}
  - name: web
    bridge: ovsbr2
    vip: 10.3.10.80
    backends:
      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 1}
"""
WEB_FLOWS = 1 + 1


@pytest.fixture
def first(bridge: DummyBridge) -> DummyBridge:
    return bridge


@pytest.fixture
def second(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("ovsbr2", ports=("q0", "q1")) as made:
        yield made


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(TWO)
    return path


def flows(bridge: DummyBridge) -> list[str]:
    return sorted(flow for flow in bridge.dump_flows() if flow.startswith("cookie=0x786f"))


def test_each_bridge_gets_the_flows_of_a_file_of_its_own(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path, tmp_path: Path
) -> None:
    db = ("--db", first.ovs.db)
    own = tmp_path / "own.yaml"
    own.write_text(SMALL_CONFIG)
    assert xenoovs("apply", own, *db, "--yes").status == 0
    alone = flows(first)
    assert xenoovs("remove", own, *db, "--yes").status == 0

    planned = xenoovs("plan", two, *db)
    assert planned.status == 2
    assert planned.out.startswith("bridge ovsbr1\n\novsbr1: 1 service added (dns)\n")
    assert "\n\nbridge ovsbr2\n\novsbr2: 2 services added (dns, web)\n" in planned.out
    said = xenoovs("apply", two, *db, "--yes")
    assert (said.status, said.err) == (0, "")
    assert "\novsbr1: done: 8 flow-mods in one bundle, read back and verified; number " in said.out
    assert "\novsbr2: done: 10 flow-mods in one bundle" in said.out
    assert flows(first) == alone
    assert len(flows(second)) == len(alone) + WEB_FLOWS

    assert xenoovs("plan", two, *db).status == 0
    assert xenoovs("plan", two, *db, "--bridge", "ovsbr2").out == "ovsbr2: nothing to do, 10 flows as they should be\n"
    assert xenoovs("status", two, *db, "--interval", "0").status == 0
    history = json.loads(xenoovs("history", *db, "-o", "json").out)
    assert [(each["bridge"], each["installed"]) for each in history["bridges"]] == [
        (each["bridge"], each["entries"][-1]["number"]) for each in history["bridges"]
    ]
    gone = xenoovs("remove", two, *db, "--yes")
    assert (gone.status, gone.out) == (0, "ovsbr1: 8 flows removed\novsbr2: 10 flows removed\n")
    assert flows(first) == flows(second) == []


def test_json_has_a_document_for_each_bridge(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path
) -> None:
    db = ("--db", first.ovs.db, "-o", "json")
    for command in ("validate", "plan", "apply", "status", "verify-offload", "doctor"):
        more = () if command == "validate" else db[:2]
        words = {"apply": ("--yes",), "status": ("--interval", "0")}.get(command, ())
        document = json.loads(xenoovs(command, two, *more, *words, "-o", "json").out)
        assert [each["bridge"] for each in document["bridges"]] == ["ovsbr1", "ovsbr2"], command
    one = json.loads(xenoovs("plan", two, *db, "--bridge", "ovsbr1").out)
    assert (one["bridge"], one["empty"]) == ("ovsbr1", True)


def test_a_bridge_that_does_not_exist_keeps_apply_from_all_and_plan_from_none(
    xenoovs: CommandLine, first: DummyBridge, two: Path
) -> None:
    db = ("--db", first.ovs.db)
    said = xenoovs("apply", two, *db, "--yes")
    assert said.status == 1
    assert "ovsbr2" in said.err
    assert "This is about bridge ovsbr2; no bridge was changed." in said.err
    assert flows(first) == []
    planned = xenoovs("plan", two, *db, "--out", two.with_suffix(".plan"))
    assert planned.status == 1
    assert "ovsbr1: 1 service added (dns)" in planned.out
    assert "not saved" in planned.err
    assert not two.with_suffix(".plan").exists()
    document = json.loads(xenoovs("plan", two, *db, "-o", "json").out)
    assert ["error" in each for each in document["bridges"]] == [False, True]
    assert xenoovs("apply", two, *db, "--bridge", "ovsbr1", "--yes").status == 0
    assert flows(first) != []


def test_when_the_second_fails_apply_says_what_is_done(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge changes between the plan and the bundle."""
    db, asked = ("--db", first.ovs.db), "xenoovs.cli.apply.confirm"

    def change_meanwhile(question: str, **how: object) -> None:
        assert question == "Change ovsbr1, ovsbr2?"
        second.add_flows("cookie=0x786f010100000000,table=0,priority=77,udp actions=drop\n")
        confirm(question, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(asked, change_meanwhile)
    said = xenoovs("apply", two, *db, "--yes", "-o", "json")
    assert said.status == 1
    applied = {each["bridge"]: each for each in json.loads(said.out)["bridges"]}
    assert (applied["ovsbr1"]["applied"], applied["ovsbr2"]["applied"]) == (True, None)
    assert "has changed since the plan above" in applied["ovsbr2"]["error"]["message"]
    assert len(flows(first)) == 8
    assert len(flows(second)) == 1

    monkeypatch.setattr(asked, confirm)
    second.ofctl("del-flows", "udp")
    assert xenoovs("remove", two, *db, "--yes").status == 0
    monkeypatch.setattr(asked, change_meanwhile)
    said = xenoovs("apply", two, *db, "--yes")
    assert (said.status, "ovsbr1: done: 8 flow-mods" in said.out) == (1, True)
    assert said.err.splitlines()[-2:] == [
        "done: ovsbr1; failed: ovsbr2. Each bridge is changed as a whole; the same command goes on with those that are "
        "left.",
        f"`xenoovs remove {two} --bridge ovsbr1 --db {first.ovs.db}` undoes what is done on ovsbr1.",
    ]
    monkeypatch.setattr(asked, confirm)
    assert xenoovs("remove", two, *db, "--bridge", "ovsbr1", "--yes").status == 0
    assert flows(first) == []


def test_the_rollback_that_a_failed_apply_names_undoes_it(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a round of other changes, where the newest entry that differs would be another one."""
    db, asked, extra = ("--db", first.ovs.db), "xenoovs.cli.apply.confirm", "priority=77,udp"

    def change_meanwhile(question: str, **how: object) -> None:
        second.add_flows(f"cookie=0x786f010100000000,table=0,{extra} actions=drop\n")
        confirm(question, **how)  # type: ignore[arg-type]

    def fail_to_apply(text: str) -> list[str]:
        monkeypatch.setattr(asked, change_meanwhile)
        two.write_text(text)
        said = xenoovs("apply", two, *db, "--yes")
        assert (said.status, "done: ovsbr1; failed: ovsbr2. Each bridge" in said.err) == (1, True)
        monkeypatch.setattr(asked, confirm)
        second.ofctl("del-flows", extra, "--strict")
        return said.err.splitlines()

    assert xenoovs("apply", two, *db, "--yes").status == 0
    before = flows(first)
    number = json.loads(xenoovs("history", *db, "--bridge", "ovsbr1", "-o", "json").out)["installed"]
    other = TWO.replace("weight: 70", "weight: 30")
    command = f"xenoovs rollback {number} --bridge ovsbr1 --db {first.ovs.db}"
    assert fail_to_apply(other)[-1] == f"`{command}` undoes what is done on ovsbr1."
    assert flows(first) != before
    assert xenoovs(*command.split()[1:], "--yes").status == 0
    assert flows(first) == before

    assert xenoovs("remove", two, *db, "--yes").status == 0
    assert fail_to_apply(other)[-1] == (
        f"`xenoovs remove {two} --bridge ovsbr1 --db {first.ovs.db}` undoes what is done on ovsbr1."
    )
    # What the bridge has comes from another program, and is in no entry.
    first.ofctl("del-flows")
    first.add_flows("\n".join(before))
    assert "undoes" not in fail_to_apply(TWO.replace("weight: 70", "weight: 10"))[-1]


def test_apply_offers_no_rollback_of_a_bridge_that_it_did_not_change(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a rollback would undo an earlier change."""
    db = ("--db", first.ovs.db)
    assert xenoovs("apply", two, *db, "--yes").status == 0

    def change_meanwhile(question: str, **how: object) -> None:
        assert question == "Change ovsbr2?"
        second.add_flows("cookie=0x786f010100000000,table=0,priority=77,udp actions=drop\n")
        confirm(question, **how)  # type: ignore[arg-type]

    monkeypatch.setattr("xenoovs.cli.apply.confirm", change_meanwhile)
    two.write_text(TWO.replace("00:04, weight", "00:06, weight"))
    said = xenoovs("apply", two, *db, "--yes")
    assert said.status == 1
    assert "\nnothing to do: ovsbr1; failed: ovsbr2. Each bridge" in said.err
    assert "xenoovs rollback" not in said.err


def test_ctrl_c_in_a_drain_of_the_first_says_what_is_done(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path
) -> None:
    db = ("--db", first.ovs.db)
    two.write_text(TWO.replace("services:", "drain: {mode: pin, timeout: 10m, idle_timeout: 10m}\nservices:"))
    assert xenoovs("apply", two, *db, "--yes").status == 0
    before = flows(second)
    two.write_text(two.read_text().replace("weight: 70", "weight: 30"))
    process = start("apply", two, *db, "--yes")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ovsbr1: done"):
            break
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.status == 130
    assert "interrupted: ovsbr1; not tried: ovsbr2. Each bridge is changed as a whole" in said.err
    assert flows(second) == before


def test_a_saved_plan_has_all_bridges(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, two: Path, tmp_path: Path
) -> None:
    db, plan = ("--db", first.ovs.db), tmp_path / "all.plan"
    said = xenoovs("plan", two, *db, "--out", plan)
    assert (said.status, "makes exactly these changes" in said.out) == (2, True)
    refused = xenoovs("apply", plan, *db, "--bridge", "ovsbr3")
    assert (refused.status, "has no plan for bridge ovsbr3, only for ovsbr1, ovsbr2" in refused.err) == (64, True)
    assert xenoovs("apply", plan, *db, "--bridge", "ovsbr2").status == 0
    assert (len(flows(first)), len(flows(second))) == (0, 10)
    stale = xenoovs("apply", plan, *db)
    assert (stale.status, "bridge ovsbr2 has changed since the plan in" in stale.err) == (1, True)
    assert flows(first) == []
    assert xenoovs("plan", two, *db, "--out", plan).status == 2
    assert xenoovs("apply", plan, *db).status == 0
    assert (len(flows(first)), len(flows(second))) == (8, 10)

    one = xenoovs("plan", two, *db, "--bridge", "ovsbr2", "--rebalance", "--out", plan)
    assert "bridge ovsbr2" not in one.out
    second.ofctl("del-flows", "ip")
    assert f"plan {two} --bridge ovsbr2 --out {plan}" in xenoovs("apply", plan, *db).err


def test_a_command_about_one_bridge_asks_which(xenoovs: CommandLine, two: Path) -> None:
    for words in (("compile",), ("decision", "--offline"), ("lab", "up")):
        said = xenoovs(*words, two)
        assert (said.status, said.out) == (64, "")
        assert "my.yaml has 2 bridges (ovsbr1, ovsbr2): choose one with --bridge NAME." in said.err
    assert "web" not in xenoovs("decision", two, "--offline", "--bridge", "ovsbr1").out
    assert "web" in xenoovs("decision", two, "--offline", "--bridge", "ovsbr2").out
    said = xenoovs("validate", two, "--bridge", "ovsbr3")
    assert said.status == 64
    assert said.err.rstrip().endswith("has no bridge ovsbr3, only ovsbr1, ovsbr2 (did you mean ovsbr2?).")


def _health(program: Path) -> str:
    """The service `web` with two backends, which a program probes."""
    health = (
        f"    health: {{probe: exec, command: [{program}], interval: 200ms, fast_interval: 50ms, rise: 1, fall: 2}}\n"
    )
    backends = "".join(
        f"      - {{name: {name}, mac: 02:00:5e:10:00:0{number}, address: 192.0.2.{number}, weight: 1}}\n"
        for number, name in ((4, "fips4"), (5, "fips5"))
    )
    return f"{TWO.partition('    vip: 10.3.10.80')[0]}    vip: 10.3.10.80\n{health}    backends:\n{backends}"


@pytest.fixture
def agent(two: Path, dummy_ovs: DummyOvs) -> Iterator[subprocess.Popen[str]]:
    """An agent of both bridges, which logs JSON."""
    process = start("agent", two, "--db", dummy_ovs.ovs.db, "--log", "json")
    yield process
    process.kill()
    process.communicate()


def _event(process: subprocess.Popen[str], event: str, bridge: str) -> dict[str, object]:
    """Return the next such event of a bridge in the log."""
    assert process.stderr is not None
    for line in process.stderr:
        found: dict[str, object] = json.loads(line)
        if (found["event"], found.get("bridge")) == (event, bridge):
            return found
    pytest.fail(f"the agent has ended without the event {event!r} of {bridge}")


def _serves(bridge: DummyBridge, mac: str) -> bool:
    """Return whether clients come to a backend now."""
    return any("table=1," in flow and mac in flow for flow in flows(bridge))


def test_a_backend_that_dies_on_one_bridge_changes_nothing_on_the_other(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, tmp_path: Path
) -> None:
    path, program, db = tmp_path / "my.yaml", tmp_path / "probe", ("--db", first.ovs.db)
    program.write_text(f"#!/bin/sh\n! test -e {tmp_path}/dead-$XENOOVS_ADDRESS\n")
    program.chmod(0o755)
    path.write_text(_health(program))
    process = start("agent", path, *db, "--allow-exec")
    try:
        eventually(lambda: _serves(second, "02:00:5e:10:00:05"), "both backends of web")
        eventually(lambda: len(flows(first)) == 8, "the flows of the other bridge")
        before = flows(first)
        (tmp_path / "dead-192.0.2.5").touch()
        eventually(lambda: not _serves(second, "02:00:5e:10:00:05"), "fips5 is ejected")
        assert _serves(second, "02:00:5e:10:00:04")
        assert flows(first) == before
        shown = xenoovs("status", *db)
        assert shown.out.index("bridge ovsbr1\n") < shown.out.index("dns ") < shown.out.index("bridge ovsbr2\n")
        assert (shown.status, "down: ended with status 1" in shown.out) == (0, True)
        for out in (xenoovs("status", *db).out, xenoovs("status", path, *db).out):
            assert "bridge ovsbr2\n\nagent up " in out
            assert out.count("bridge ovsbr1") == out.count("bridge ovsbr2") == 1
        found = json.loads(xenoovs("status", path, *db, "-o", "json").out)["bridges"]
        assert [each["from"] for each in found] == ["agent", "agent"]
        refused = xenoovs("drain", "dns", "fips2", *db)
        assert (refused.status, "(ovsbr1, ovsbr2): choose one with --bridge" in refused.err) == (64, True)
        assert xenoovs("drain", "dns", "fips2", "--bridge", "ovsbr1", *db).status == 0
        for words in ((), (path,), ("--bridge", "ovsbr1")):
            undrain = f"; `xenoovs undrain dns/fips2 --bridge ovsbr1 --db {first.ovs.db}` reverts it"
            assert undrain in xenoovs("status", *words, *db).out
        paused = xenoovs("pause", "--bridge", "ovsbr1", *db)
        assert f"until `xenoovs resume --bridge ovsbr1 --db {first.ovs.db}`" in paused.out
        asked = xenoovs("apply", path, *db, "--yes", "--rebalance")
        assert (asked.status, "An agent reconciles bridge ovsbr1" in asked.err) == (64, True)
    finally:
        process.kill()
        process.communicate()


def test_a_mistake_on_one_bridge_does_not_hold_up_the_other(
    first: DummyBridge, second: DummyBridge, two: Path, agent: subprocess.Popen[str]
) -> None:
    eventually(lambda: (len(flows(first)), len(flows(second))) == (8, 10), "flows at first")
    before = flows(second)
    two.write_text(TWO.replace("weight: 1}", "weight: -1}").replace("ports: [53]", "ports: [54]\n    bridge: ovsbr1"))
    told = _event(agent, "the config is invalid; the last good one stays", "ovsbr2")
    assert "my.yaml:18:55: services[1].backends[0].weight: -1 is below 0" in str(told["reason"])
    eventually(lambda: "tp_dst=54" in "".join(flows(first)), "the new port")
    assert flows(second) == before
    two.write_text(TWO.replace("ports: [53]", "ports: [55]"))
    eventually(lambda: "tp_dst=55" in "".join(flows(first)), "the good config on the first")
    eventually(lambda: "tp_dst=55" in "".join(flows(second)), "and on the second")


def test_a_bridge_that_is_added_or_removed_waits_for_a_restart(
    first: DummyBridge, second: DummyBridge, two: Path, agent: subprocess.Popen[str]
) -> None:
    eventually(lambda: (len(flows(first)), len(flows(second))) == (8, 10), "flows at first")
    third = "  - {bridge: ovsbr3, ingress: [r0], egress: r1}\nservices:"
    two.write_text(TWO.replace("services:", third).replace("ports: [53]", "ports: [54]"))
    told = _event(agent, "the config has bridges that are not served; restart this", "ovsbr1")
    assert told["bridges"] == ["ovsbr3"]
    eventually(lambda: "tp_dst=54" in "".join(flows(second)), "what else is in the config")

    before = flows(second)
    without = TWO.replace("  - {bridge: ovsbr2, ingress: [q0], egress: q1}\n", "").partition("  - name: web")[0]
    two.write_text(without)
    told = _event(agent, "the config is invalid; the last good one stays", "ovsbr2")
    assert "my.yaml has no bridge ovsbr2, only ovsbr1" in str(told["reason"])
    eventually(lambda: "tp_dst=53" in "".join(flows(first)), "the other bridge follows")
    assert flows(second) == before


def test_a_bridge_that_is_missing_does_not_keep_the_agent_from_the_other(
    dummy_ovs: DummyOvs, first: DummyBridge, two: Path, agent: subprocess.Popen[str]
) -> None:
    eventually(lambda: len(flows(first)) == 8, "the flows of the first")
    with dummy_ovs.bridge("ovsbr2", ports=("q0", "q1")) as second:
        eventually(lambda: len(flows(second)) == 10, "the flows of the second, once it is there")
        assert agent.poll() is None


def test_an_agent_of_one_bridge_of_several(first: DummyBridge, second: DummyBridge, two: Path) -> None:
    process = start("agent", two, "--bridge", "ovsbr2", "--db", first.ovs.db, "--once")
    said = finish(process)
    assert said.status == 0, said.err
    assert (len(flows(first)), len(flows(second))) == (0, 10)
    both = finish(start("agent", two, "--db", first.ovs.db, "--once"))
    assert both.status == 0, both.err
    assert (len(flows(first)), len(flows(second))) == (8, 10)


def test_an_agent_does_not_start_with_mistakes_on_any_bridge(first: DummyBridge, two: Path) -> None:
    two.write_text(TWO.replace("weight: 1}", "weight: -1}").replace("ingress: [p0]", "ingress: [p1]"))
    said = finish(start("agent", two, "--db", first.ovs.db))
    assert said.status == 1
    assert [line.split(": ")[1] for line in said.err.splitlines()] == [
        "bridges[0].egress",
        "services[1].backends[0].weight",
    ]
    assert flows(first) == []


def test_a_controller_serves_both(first: DummyBridge, second: DummyBridge, two: Path) -> None:
    process = start("controller", two, "--attach", "--db", first.ovs.db)
    try:
        eventually(lambda: (len(flows(first)), len(flows(second))) == (8, 10), "flows on both")
    finally:
        process.kill()
        process.communicate()


def test_an_agent_that_follows_a_renamed_bridge_locks_it(
    xenoovs: CommandLine, first: DummyBridge, second: DummyBridge, tmp_path: Path
) -> None:
    """It held the lock of the bridge that its config had named first, and two agents could reconcile one bridge."""
    path, other, db = tmp_path / "one.yaml", tmp_path / "other.yaml", ("--db", first.ovs.db)
    path.write_text(SMALL_CONFIG)
    other.write_text(SMALL_CONFIG.replace("ovsbr1, ingress: [p0], egress: p1", "ovsbr2, ingress: [q0], egress: q1"))
    locks = [first.ovs.directory / "xenoovs" / f"{name}.lock" for name in ("ovsbr1", "ovsbr2")]
    process, beside = start("agent", path, *db), start("agent", other, *db)
    try:
        eventually(lambda: bool(flows(first) and flows(second)), "the flows of both")
        path.write_text(other.read_text())
        refused = "another agent reconciles bridge ovsbr2 already"
        eventually(lambda: refused in xenoovs("status", "--bridge", "ovsbr1", *db).out, "the refusal")
        beside.kill()
        beside.communicate()
        path.write_text(other.read_text() + "# once more\n")
        eventually(lambda: not locks[0].exists(), "the end of the lock of ovsbr1")
        second_agent = finish(start("agent", other, *db))
        assert (second_agent.status, refused in second_agent.err) == (1, True)
        other.write_text(other.read_text().replace("weight: 30", "weight: 60"))
        asked = xenoovs("apply", other, *db, "--yes")
        assert (asked.status, "An agent reconciles bridge ovsbr2" in asked.err) == (64, True), asked.err
    finally:
        for each in (process, beside):
            each.kill()
            each.communicate()
