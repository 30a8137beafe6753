"""`history` and `rollback`: what was applied, and the way back to it, byte for byte."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.command_line import SMALL_CONFIG, XENOOVS, CommandLine, CommandResult, finish, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_agent_control import agent
from tests.patience import PATIENCE_S, eventually
from xenoovs.cli.history import History
from xenoovs.cli.main import cli
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import ListenError
from xenoovs.model.load import parse_config
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

GOLDEN = Path(__file__).parents[1] / "golden" / "cli"
SECOND = SMALL_CONFIG.replace("weight: 30", "weight: 50")
THIRD = SMALL_CONFIG.replace("weight: 70", "weight: 10, vlan: untagged").replace(
    "10.3.10.45", "10.3.11.0/24\n    vlan: 100"
)
DRAINING = SMALL_CONFIG.replace("services:", "drain: {mode: pin, timeout: 2s, idle_timeout: 2s}\nservices:")
CONFIGS = (SMALL_CONFIG, SECOND, THIRD)


def apply(xenoovs: CommandLine, bridge: DummyBridge, config: Path, text: str, *options: str) -> list[str]:
    """Apply a config; return the flows of the bridge."""
    config.write_text(text)
    said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes", *options)
    assert said.status == 0, said.err
    return sorted(bridge.dump_flows())


@pytest.fixture(autouse=True)
def _nobody_behind_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)


@pytest.fixture
def points(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> dict[int, list[str]]:
    """The flows after each of three applies, by number in the history."""
    return {number: apply(xenoovs, bridge, config, text) for number, text in enumerate(CONFIGS, 1)}


def rollback(xenoovs: CommandLine, bridge: DummyBridge, *arguments: object) -> CommandResult:
    return xenoovs("apply", "--rollback", *arguments, "--db", bridge.ovs.db, "--yes")


def directory(bridge: DummyBridge) -> Path:
    return bridge.ovs.directory / "xenoovs" / f"{bridge.name}.history"


def entries(xenoovs: CommandLine, bridge: DummyBridge) -> list[tuple[int, str]]:
    said = xenoovs("history", "--db", bridge.ovs.db, "-o", "json")
    assert said.status == 0, said.err
    return [(entry["number"], entry["command"].split()[0]) for entry in json.loads(said.out)["entries"]]


def test_names_that_are_no_text_are_stored_as_text(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "o\udcffp\x1b[2J" + "s" * 5000)
    apply(xenoovs, bridge, config, CONFIGS[0])
    said = xenoovs("history", "--db", bridge.ovs.db)
    assert said.status == 0
    assert "o\\udcffp" in said.out
    assert "\x1b[2J" not in said.out


def test_any_point_comes_back_byte_for_byte_without_its_file_and_is_listed(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path, *, update_golden: bool
) -> None:
    config.unlink()
    assert rollback(xenoovs, bridge, 1).status == 0
    assert sorted(bridge.dump_flows()) == points[1]
    said = xenoovs("history", "--db", bridge.ovs.db)
    assert (said.status, said.err) == (0, "")
    shown = re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d", "2026-11-22 17:00", said.out)
    shown = shown.replace(str(config), "my.yaml")
    shown = re.sub(r"^COMMAND +", "COMMAND  ", re.sub(r"  +", "  ", shown), flags=re.MULTILINE)
    path = GOLDEN / "history.txt"
    if update_golden:
        path.write_text(shown)
    assert shown == path.read_text()
    for number in (2, 3):
        assert rollback(xenoovs, bridge, number).status == 0
        assert sorted(bridge.dump_flows()) == points[number]
    config.write_text(xenoovs("history", 3, "--db", bridge.ovs.db).out)
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 0


def test_without_a_number_it_undoes_the_last_change(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]
) -> None:
    for options in ((), (1, "--dry-run")):
        said = finish(start("apply", "--rollback", *options, "--db", bridge.ovs.db))
        assert (said.status, "add --yes" in said.err) == ((64, True) if not options else (0, False))
    found = json.loads(rollback(xenoovs, bridge, 2, "--dry-run", "-o", "json").out)
    assert (found["rollback_to"], found["applied"], found["history"]) == (2, False, None)
    assert sorted(bridge.dump_flows()) == points[3]

    said = rollback(xenoovs, bridge)
    assert said.out.startswith("rollback to 2: apply ")
    assert sorted(bridge.dump_flows()) == points[2]
    found = json.loads(rollback(xenoovs, bridge, "-o", "json").out)
    assert (found["rollback_to"], found["applied"], found["history"]) == (4 - 1, True, 5)
    assert sorted(bridge.dump_flows()) == points[3]
    assert entries(xenoovs, bridge) == [(1, "apply"), (2, "apply"), (3, "apply"), (4, "rollback"), (5, "rollback")]


def test_what_others_have_changed_and_what_was_removed_is_undone(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path
) -> None:
    """Without a number it goes back to the last apply, as the bridge has other flows than that."""
    bridge.ofctl("del-flows", "table=1")
    said = xenoovs("history", "--db", bridge.ovs.db)
    assert "Bridge ovsbr1 has other flows than 3 applied" in said.out
    assert "`xenoovs apply --rollback 3`" in said.out
    assert rollback(xenoovs, bridge).status == 0
    assert sorted(bridge.dump_flows()) == points[3]
    assert "Bridge ovsbr1 has what 4 applied." in xenoovs("history", "--db", bridge.ovs.db).out
    config.write_text(THIRD)
    assert xenoovs("remove", config, "--db", bridge.ovs.db, "--yes").status == 0
    assert rollback(xenoovs, bridge).status == 0
    assert sorted(bridge.dump_flows()) == points[3]


def test_what_is_not_there_is_named(xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]) -> None:
    for arguments, status, says in (
        ((9,), 1, "has no entry 9; it has entries 1 to 3"),
        ((0,), 64, "0 is not in the range"),
        (("yesterday",), 64, "'yesterday' is not a valid number of an entry"),
        (("--bridge", "br9"), 64, "Bridge br9 has no history to go back to"),
        ((1, "--bridge", "br9"), 1, "it has no entry; `xenoovs apply` writes them"),
    ):
        said = rollback(xenoovs, bridge, *arguments)
        assert (said.status, said.out, says in said.err) == (status, "", True), said.err


def test_of_several_bridges_one_has_to_be_chosen(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]
) -> None:
    other = directory(bridge).with_name("ovsbr1.other.history")
    shutil.copytree(directory(bridge), other)
    said = rollback(xenoovs, bridge, 1)
    assert (said.status, "(ovsbr1, ovsbr1.other): choose one with --bridge NAME" in said.err) == (64, True)
    assert rollback(xenoovs, bridge, 1, "--bridge", "ovsbr1").status == 0
    assert sorted(bridge.dump_flows()) == points[1]


def test_without_a_place_for_files_the_change_is_made(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user without XDG_RUNTIME_DIR."""

    def nowhere(*_where: object) -> None:
        raise ListenError("there is no directory for sockets")

    monkeypatch.setattr("xenoovs.cli.history.find_places", nowhere)
    config.write_text(SMALL_CONFIG)
    said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes", "-o", "json")
    assert (said.status, json.loads(said.out)["history"]) == (0, None)
    assert "there is no directory for it; set XDG_RUNTIME_DIR, or run as root" in said.err
    assert len(bridge.dump_flows()) == 8


def test_an_import_of_own_flows_names_the_command_that_prints_their_config(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], tmp_path: Path
) -> None:
    dump = tmp_path / "dump.txt"
    # Most bridges have this flow too.
    dump.write_text("\n".join([*points[3], " cookie=0x0, table=0, priority=0 actions=NORMAL", ""]))
    said = xenoovs("new", "--from", "flows", dump)
    assert said.status == 1
    assert f"{len(points[3])} flows are of xenoovs itself and no other one makes a service" in said.err
    (command,) = re.findall(r"`(xenoovs history NUMBER)` prints the config of it", said.err)
    number = max(points)
    printed = xenoovs(*command.replace("NUMBER", str(number)).split()[1:], "--db", bridge.ovs.db)
    assert parse_config(printed.out, file="my.yaml") == parse_config(THIRD, file="my.yaml")


def test_a_damaged_entry_is_named_and_the_others_serve(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]
) -> None:
    newest = directory(bridge) / "3.json"
    newest.write_text("{")
    assert f"warning: {newest}:" in xenoovs("history", "--db", bridge.ovs.db).err
    said = rollback(xenoovs, bridge)
    assert said.status == 1
    assert "3.json:1:2: not as xenoovs wrote it: " in said.err
    assert "`xenoovs apply --rollback 2` goes back to 2, the newest other entry" in said.err
    assert sorted(bridge.dump_flows()) == points[3]
    assert rollback(xenoovs, bridge, 2).status == 0
    for number in (1, 2):
        (directory(bridge) / f"{number}.json").write_text("{")
    said = rollback(xenoovs, bridge)
    assert (said.status, "no other entry can be gone back to; `xenoovs history` lists them" in said.err) == (1, True)


def test_the_first_apply_has_nothing_before_it(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    for command in (("history",), ("apply", "--rollback", "--yes")):
        said = xenoovs(*command, "--db", bridge.ovs.db)
        assert (said.status, "No bridge has a history in " in said.err) == (64, True)
    apply(xenoovs, bridge, config, SMALL_CONFIG)
    said = rollback(xenoovs, bridge)
    assert said.status == 64
    assert "nothing else to go back to (`xenoovs history`); `xenoovs remove` removes all flows" in said.err


def test_what_was_there_before_the_first_change_is_a_point(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """An agent or an earlier version had installed it: `apply` then finds nothing to do."""
    engine = Engine(ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory)))
    engine.apply(engine.plan(parse_config(SMALL_CONFIG, file="my.yaml"), PlanOptions()))
    first = apply(xenoovs, bridge, config, SMALL_CONFIG)
    assert "nothing; it was there" in xenoovs("history", "--db", bridge.ovs.db).out
    apply(xenoovs, bridge, config, SMALL_CONFIG)
    apply(xenoovs, bridge, config, SECOND)
    assert len(entries(xenoovs, bridge)) == 2
    assert rollback(xenoovs, bridge).status == 0
    assert sorted(bridge.dump_flows()) == first


def test_the_newest_stay(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xenoovs.cli.history.MAX_ENTRIES", 3)
    for number in range(5):
        apply(xenoovs, bridge, config, CONFIGS[number % 2])
    assert [number for number, _ in entries(xenoovs, bridge)] == [3, 4, 5]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory(bridge).iterdir())
    assert stat.S_IMODE(directory(bridge).stat().st_mode) == 0o700


def test_an_entry_that_cannot_be_written_is_a_warning(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (bridge.ovs.directory / "xenoovs").mkdir(exist_ok=True)
    config.write_text(SMALL_CONFIG)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    warning = "warning: the change is made, but not written to the history: "
    assert (said.status, f"{warning}No space left on device" in said.err) == (0, True)
    assert "number" not in said.out.splitlines()[-1]
    assert (len(bridge.dump_flows()), list(directory(bridge).iterdir())) == (8, [])
    directory(bridge).rmdir()
    directory(bridge).write_text("in the way")
    config.write_text(SECOND)
    said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    assert (said.status, f"{warning}File exists" in said.err) == (0, True)


def test_a_change_that_is_rolled_back_is_no_entry(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]
) -> None:
    said = finish(start("apply", "--rollback", "1", "--db", bridge.ovs.db, "--yes", "--confirm", "500ms"))
    assert (said.status, "was not confirmed within 500ms" in said.err) == (1, True)
    assert sorted(bridge.dump_flows()) == points[3]
    assert len(entries(xenoovs, bridge)) == 3
    assert "Bridge ovsbr1 has what 3 applied." in xenoovs("history", "--db", bridge.ovs.db).out


def test_beside_a_change_that_waits_another_one_is_refused(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path
) -> None:
    config.write_text(SMALL_CONFIG)
    waiting = start("apply", config, "--db", bridge.ovs.db, "--yes", "--confirm", "10m")
    eventually(lambda: sorted(bridge.dump_flows()) == points[1], "the change")
    said = rollback(xenoovs, bridge, 2)
    assert (said.status, "another `xenoovs apply` or `rollback` changes bridge ovsbr1 now" in said.err) == (1, True)
    waiting.kill()
    waiting.communicate(timeout=PATIENCE_S)
    # The watchdog rolls back, and holds the bridge until it has.
    eventually(lambda: sorted(bridge.dump_flows()) == points[3], "the old flows")
    eventually(lambda: rollback(xenoovs, bridge, 2).status == 0, "the bridge")
    assert sorted(bridge.dump_flows()) == points[2]


def test_of_two_applies_at_once_one_has_an_effect_or_is_refused(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    """Both were planned for the same flows. The bridge has what the newest entry says in each case."""
    apply(xenoovs, bridge, config, SMALL_CONFIG)
    other = tmp_path / "other.yaml"
    for turn in range(2):
        config.write_text(CONFIGS[1 + turn % 2])
        other.write_text(CONFIGS[2 - turn % 2].replace("fips3, mac: 02:00:5e:10:00:03", "new, mac: 02:00:5e:10:00:09"))
        both = [start("apply", path, "--db", bridge.ovs.db, "--yes") for path in (config, other)]
        said = [finish(process) for process in both]
        assert 0 in {each.status for each in said}
        assert all(each.status == 0 or "has changed since the plan above was made" in each.err for each in said)
        listed = xenoovs("history", "--db", bridge.ovs.db).out
        assert re.search(r"Bridge ovsbr1 has what \d+ applied\.$", listed), (said, listed)


def test_a_change_while_the_user_was_asked_is_not_overwritten(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]]
) -> None:
    ours, theirs = os.openpty()
    argv = [str(XENOOVS), "apply", "--rollback", "1", "--db", bridge.ovs.db]
    process = subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.read(6) == "Change"
    assert rollback(xenoovs, bridge, 2).status == 0
    os.write(ours, b"y\n")
    _, err = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert "bridge ovsbr1 has changed since the plan above was made" in err
    assert f"`xenoovs apply --rollback 1 --db {bridge.ovs.db}`" in err
    assert sorted(bridge.dump_flows()) == points[2]


def test_beside_an_agent_it_is_refused_and_says_what_to_do(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path
) -> None:
    with agent(bridge, config):
        eventually(lambda: sorted(bridge.dump_flows()) == points[3], "the flows of the agent")
        said = rollback(xenoovs, bridge, 1)
        assert said.status == 64
        assert "write the config of `xenoovs history 1` to the file of the agent, or stop the agent first" in said.err
        assert said.out == ""
        assert sorted(bridge.dump_flows()) == points[3]
        assert rollback(xenoovs, bridge, 1, "--dry-run").status == 0
        config.write_text(xenoovs("history", 1, "--db", bridge.ovs.db).out)
        eventually(lambda: sorted(bridge.dump_flows()) == points[1], "what the agent makes of the old config")


def test_weights_of_operators_are_undone_and_named(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path
) -> None:
    """They are no part of what was applied. The agent that stored them sets them again when it starts."""
    with agent(bridge, config):
        eventually(lambda: xenoovs("drain", "dns", "fips3", "--db", bridge.ovs.db).status == 0, "the agent")
        eventually(lambda: sorted(bridge.dump_flows()) != points[3], "the drain")
    drained = sorted(bridge.dump_flows())
    assert "Bridge ovsbr1 has other flows than 3 applied" in xenoovs("history", "--db", bridge.ovs.db).out
    said = rollback(xenoovs, bridge)
    assert said.out.startswith("rollback to 3: ")
    assert "an agent that starts sets again what operators have set: dns/fips3 drained" in said.err
    assert sorted(bridge.dump_flows()) == points[3]
    with agent(bridge, config):
        eventually(lambda: sorted(bridge.dump_flows()) == drained, "the drain")


def test_open_connections_drain_on_the_way_back(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    first = apply(xenoovs, bridge, config, DRAINING)
    apply(xenoovs, bridge, config, DRAINING.replace("weight: 30", "weight: 50"))
    said = rollback(xenoovs, bridge)
    assert said.status == 0
    assert "open connections of 1 block stay with fips3" in said.out
    assert "drained: all blocks have moved" in said.out
    assert sorted(bridge.dump_flows()) == first


def test_a_drain_under_way_is_undone_and_not_finished(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    slow = DRAINING.replace("2s", "10m")
    first = apply(xenoovs, bridge, config, slow)
    config.write_text(slow.replace("weight: 30", "weight: 50"))
    process = start("apply", config, "--db", bridge.ovs.db, "--yes")
    eventually(lambda: len(entries(xenoovs, bridge)) == 2, "the change")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert "Bridge ovsbr1 has what 2 applied." in xenoovs("history", "--db", bridge.ovs.db).out
    said = rollback(xenoovs, bridge, "--no-drain")
    assert said.out.startswith("rollback to 1: ")
    assert sorted(bridge.dump_flows()) == first


def test_numbers_and_bridges_are_completed(bridge: DummyBridge, points: dict[int, list[str]]) -> None:
    completion = ShellComplete(cli, {}, "xenoovs", "_XENOOVS_COMPLETE")
    words = ["apply", "--db", bridge.ovs.db, "--rollback"]
    assert [item.value for item in completion.get_completions(words, "")] == ["1", "2", "3"]
    assert [item.value for item in completion.get_completions([*words, "--bridge"], "")] == ["ovsbr1"]


def test_killed_before_the_entry_was_written_it_goes_back_to_the_last_one(
    xenoovs: CommandLine,
    bridge: DummyBridge,
    points: dict[int, list[str]],
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    config.write_text(SMALL_CONFIG)
    with monkeypatch.context() as patched:
        patched.setattr(History, "record", killed)
        assert xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").status == 130
    assert sorted(bridge.dump_flows()) == points[1]
    assert "Bridge ovsbr1 has other flows than 3 applied" in xenoovs("history", "--db", bridge.ovs.db).out
    (directory(bridge) / ".4.json.k2jx").write_text('{"xenoovs_history": 1, ')
    assert rollback(xenoovs, bridge).status == 0
    assert sorted(bridge.dump_flows()) == points[3]
    assert sorted(path.name for path in directory(bridge).iterdir()) == ["1.json", "2.json", "3.json", "4.json"]


@pytest.mark.parametrize(
    "delay_s", [0.1, *(pytest.param(delay_s, marks=pytest.mark.long) for delay_s in (0.0, 0.02, 0.05, 0.2, 0.4))]
)
def test_killed_at_any_moment_there_is_a_way_back(
    xenoovs: CommandLine, bridge: DummyBridge, points: dict[int, list[str]], config: Path, delay_s: float
) -> None:
    config.write_text(SMALL_CONFIG)
    process = start("apply", config, "--db", bridge.ovs.db, "--yes")
    assert process.stdout is not None
    process.stdout.readline()
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert sorted(bridge.dump_flows()) in (points[1], points[3])
    assert rollback(xenoovs, bridge, 3).status == 0
    assert sorted(bridge.dump_flows()) == points[3]
    assert [path.name for path in directory(bridge).iterdir() if path.name.startswith(".")] == []
