"""`history` and `rollback`: what was applied, and the way back to it, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.command_line import SMALL_CONFIG, XENOOVS, CommandLine, CommandResult, finish, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_agent_control import agent
from tests.patience import PATIENCE_S, eventually
from xenoovs.cli.main import cli
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.engine.history import History
from xenoovs.errors import ListenError
from xenoovs.model.load import parse_config
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

SECOND = SMALL_CONFIG.replace("weight: 30", "weight: 50")
THIRD = SMALL_CONFIG.replace("weight: 70", "weight: 10, vlan: untagged").replace(
    "10.3.10.45", "10.3.11.0/24\n    vlan: 100"
)
DRAINING = SMALL_CONFIG.replace("services:", "drain: {mode: pin, timeout: 2s, idle_timeout: 2s}\nservices:")
CONFIGS = (SMALL_CONFIG, SECOND, THIRD)
Points = dict[int, list[str]]


@dataclass(frozen=True)
class Place:
    """A bridge with a history, and the file that is applied."""

    xenoovs: CommandLine
    bridge: DummyBridge
    config: Path

    def run(self, command: str, *arguments: object) -> CommandResult:
        return self.xenoovs(command, *arguments, "--db", self.bridge.ovs.db)

    def apply(self, text: str) -> list[str]:
        """Apply a config; return the flows of the bridge."""
        self.config.write_text(text)
        said = self.run("apply", self.config, "--yes")
        assert said.status == 0, said.err
        return self.flows()

    def rollback(self, *arguments: object) -> CommandResult:
        return self.run("apply", "--rollback", *arguments, "--yes")

    def refuses(self, status: int, says: str, *arguments: object) -> None:
        said = self.rollback(*arguments)
        assert (said.status, said.out, says in said.err) == (status, "", True), said.err

    def back(self, *arguments: object) -> list[str]:
        """Roll back; return the flows of the bridge."""
        said = self.rollback(*arguments)
        assert said.status == 0, said.err
        return self.flows()

    def flows(self) -> list[str]:
        return sorted(self.bridge.dump_flows())

    def listed(self) -> str:
        return self.run("history").out

    def entries(self) -> list[tuple[int, str]]:
        said = self.run("history", "-o", "json")
        assert said.status == 0, said.err
        return [(entry["number"], entry["command"].split()[0]) for entry in json.loads(said.out)["entries"]]

    @property
    def directory(self) -> Path:
        return self.bridge.ovs.directory / "xenoovs" / f"{self.bridge.name}.history"


@pytest.fixture
def place(xenoovs: CommandLine, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Nobody is behind sudo."""
    monkeypatch.delenv("SUDO_USER", raising=False)
    return Place(xenoovs, bridge, config)


@pytest.fixture
def points(place: Place) -> Points:
    """The flows after each of three applies, by number in the history."""
    return {number: place.apply(text) for number, text in enumerate(CONFIGS, 1)}


def test_names_that_are_no_text_are_stored_as_text(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "o\udcffp\x1b[2J" + "s" * 5000)
    place.apply(CONFIGS[0])
    said = place.run("history")
    assert said.status == 0
    assert "o\\udcffp" in said.out
    assert "\x1b[2J" not in said.out


def test_any_point_comes_back_byte_for_byte_without_its_file(place: Place, points: Points) -> None:
    place.config.unlink()
    for number in (1, 2, 3):
        assert place.back(number) == points[number]
    place.config.write_text(place.run("history", 3).out)
    assert place.run("plan", place.config).status == 0


def test_without_a_number_it_undoes_the_last_change(place: Place, points: Points) -> None:
    for options in ((), (1, "--dry-run")):
        said = finish(start("apply", "--rollback", *options, "--db", place.bridge.ovs.db))
        assert (said.status, "add --yes" in said.err) == ((64, True) if not options else (0, False))
    found = json.loads(place.rollback(2, "--dry-run", "-o", "json").out)
    assert (found["rollback_to"], found["applied"], found["history"]) == (2, False, None)
    assert place.flows() == points[3]

    said = place.rollback()
    assert said.out.startswith("rollback to 2: apply ")
    assert place.flows() == points[2]
    found = json.loads(place.rollback("-o", "json").out)
    assert (found["rollback_to"], found["applied"], found["history"]) == (4 - 1, True, 5)
    assert place.flows() == points[3]
    assert place.entries() == [(1, "apply"), (2, "apply"), (3, "apply"), (4, "rollback"), (5, "rollback")]


def test_what_others_have_changed_and_what_was_removed_is_undone(place: Place, points: Points) -> None:
    """Without a number it goes back to the last apply, as the bridge has other flows than that."""
    place.bridge.ofctl("del-flows", "table=1")
    said = place.run("history")
    assert "Bridge ovsbr1 does not have the flows of entry 3" in said.out
    # Bug: the command was for the Open vSwitch of the host.
    assert f"`xenoovs apply --rollback 3 --db {place.bridge.ovs.db}` goes back to entry 3." in said.out
    assert place.back() == points[3]
    assert "Bridge ovsbr1 has the flows of entry 4." in place.listed()
    place.config.write_text(THIRD)
    assert place.run("remove", place.config, "--yes").status == 0
    assert place.back() == points[3]


def test_what_is_not_there_is_named_and_of_several_bridges_one_has_to_be_chosen(place: Place) -> None:
    assert "No bridge has a history in " in place.run("history").err
    place.refuses(64, "No bridge has a history in ")
    first = place.apply(SMALL_CONFIG)
    place.refuses(64, "nothing else to go back to (`xenoovs history`); `xenoovs remove` removes all flows")
    place.apply(SECOND)
    place.refuses(1, "has no entry 9; it has entries 1 to 2", 9)
    place.refuses(64, "0 is not in the range", 0)
    place.refuses(64, "'yesterday' is not a valid number of an entry", "yesterday")
    place.refuses(64, "Bridge br9 has no history to go back to", "--bridge", "br9")
    place.refuses(1, "it has no entry; `xenoovs apply` writes them", 1, "--bridge", "br9")
    shutil.copytree(place.directory, place.directory.with_name("ovsbr1.other.history"))
    place.refuses(64, "(ovsbr1, ovsbr1.other): choose one with --bridge NAME", 1)
    assert place.back(1, "--bridge", "ovsbr1") == first


def test_a_damaged_entry_is_named_and_the_others_serve(place: Place, points: Points) -> None:
    newest = place.directory / "3.json"
    newest.write_text("{")
    assert f"warning: {newest}:" in place.run("history").err
    place.refuses(1, "3.json:1:2: not as xenoovs wrote it: ")
    place.refuses(1, "`xenoovs apply --rollback 2` goes back to 2, the newest other entry")
    assert place.flows() == points[3]
    assert place.rollback(2).status == 0
    for number in (1, 2):
        (place.directory / f"{number}.json").write_text("{")
    place.refuses(1, "no other entry can be gone back to; `xenoovs history` lists them")


def test_bug_an_entry_that_cannot_be_read_was_shown_as_an_errno(place: Place, points: Points) -> None:
    newest = place.directory / "3.json"
    newest.unlink()
    newest.symlink_to(newest)
    assert f"warning: {newest}: Too many levels of symbolic links" in place.run("history").err
    place.refuses(1, "`xenoovs apply --rollback 2` goes back to 2, the newest other entry")
    assert place.flows() == points[3]


def test_what_was_there_before_the_first_change_is_a_point(place: Place) -> None:
    """An agent or an earlier version had installed it: `apply` then finds nothing to do."""
    engine = Engine(ManagementSwitch(Endpoint(place.bridge.ovs.db, place.bridge.ovs.directory)))
    engine.apply(engine.plan(parse_config(SMALL_CONFIG, file="my.yaml"), PlanOptions()))
    first = place.apply(SMALL_CONFIG)
    assert "nothing differed" in place.listed()
    place.apply(SMALL_CONFIG)
    place.apply(SECOND)
    assert len(place.entries()) == 2
    assert place.back() == first


def test_the_newest_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xenoovs.engine.history.MAX_ENTRIES", 3)
    for number in range(5):
        place.apply(CONFIGS[number % 2])
    assert [number for number, _ in place.entries()] == [3, 4, 5]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in place.directory.iterdir())
    assert stat.S_IMODE(place.directory.stat().st_mode) == 0o700


def test_an_entry_that_cannot_be_written_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (place.bridge.ovs.directory / "xenoovs").mkdir(exist_ok=True)
    place.config.write_text(SMALL_CONFIG)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = place.run("apply", place.config, "--yes")
    warning = "warning: the change is made, but not written to the history: "
    assert (said.status, f"{warning}No space left on device" in said.err) == (0, True)
    assert "number" not in said.out.splitlines()[-1]
    assert (len(place.bridge.dump_flows()), list(place.directory.iterdir())) == (8, [])
    place.directory.rmdir()
    place.directory.write_text("in the way")
    place.config.write_text(SECOND)
    said = place.run("apply", place.config, "--yes")
    assert (said.status, f"{warning}File exists" in said.err) == (0, True)

    def nowhere(*_where: object) -> None:
        raise ListenError("there is no directory for sockets")

    # As for a user without XDG_RUNTIME_DIR.
    monkeypatch.setattr("xenoovs.cli.history.find_places", nowhere)
    place.config.write_text(THIRD)
    said = place.run("apply", place.config, "--yes", "-o", "json")
    assert (said.status, json.loads(said.out)["history"]) == (0, None)
    assert "there is no directory for it; set XDG_RUNTIME_DIR, or run as root" in said.err


def test_beside_a_change_that_waits_another_one_is_refused_and_what_is_rolled_back_is_no_entry(
    place: Place, points: Points
) -> None:
    waiting = start("apply", "--rollback", "1", "--db", place.bridge.ovs.db, "--yes", "--confirm", "10m")
    eventually(lambda: place.flows() == points[1], "the change")
    said = place.rollback(2)
    assert (said.status, "another `xenoovs apply` or `rollback` changes bridge ovsbr1 now" in said.err) == (1, True)
    waiting.kill()
    waiting.communicate(timeout=PATIENCE_S)
    # The watchdog rolls back, and holds the bridge until it has.
    eventually(lambda: place.flows() == points[3], "the old flows")
    assert len(place.entries()) == 3
    assert "Bridge ovsbr1 has the flows of entry 3." in place.listed()
    eventually(lambda: place.rollback(2).status == 0, "the bridge")
    assert place.flows() == points[2]


def test_a_change_while_the_user_was_asked_is_not_overwritten(place: Place, points: Points) -> None:
    ours, theirs = os.openpty()
    argv = [str(XENOOVS), "apply", "--rollback", "1", "--db", place.bridge.ovs.db]
    process = subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.read(6) == "Change"
    assert place.rollback(2).status == 0
    os.write(ours, b"y\n")
    _, err = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert "bridge ovsbr1 has changed since the plan above was made" in err
    assert f"`xenoovs apply --rollback 1 --db {place.bridge.ovs.db}`" in err
    assert place.flows() == points[2]


def test_beside_an_agent_it_is_refused_and_says_what_to_do(place: Place, points: Points) -> None:
    with agent(place.bridge, place.config):
        eventually(lambda: place.flows() == points[3], "the flows of the agent")
        place.refuses(
            64, "write the config of `xenoovs history 1` to the file of the agent, or stop the agent first", 1
        )
        assert place.flows() == points[3]
        assert place.rollback(1, "--dry-run").status == 0
        place.config.write_text(place.run("history", 1).out)
        eventually(lambda: place.flows() == points[1], "what the agent makes of the old config")


def test_weights_of_operators_are_undone_and_named(place: Place, points: Points) -> None:
    """They are no part of what was applied. The agent that stored them sets them again when it starts."""
    with agent(place.bridge, place.config):
        eventually(lambda: place.run("drain", "dns", "fips3").status == 0, "the agent")
        eventually(lambda: place.flows() != points[3], "the drain")
    drained = place.flows()
    assert "Bridge ovsbr1 does not have the flows of entry 3" in place.listed()
    said = place.rollback()
    assert said.out.startswith("rollback to 3: ")
    assert "an agent that starts sets again what operators have set: dns/fips3 drained" in said.err
    assert place.flows() == points[3]
    with agent(place.bridge, place.config):
        eventually(lambda: place.flows() == drained, "the drain")


def test_a_drain_under_way_is_undone_and_not_finished(place: Place) -> None:
    slow = DRAINING.replace("2s", "10m")
    first = place.apply(slow)
    place.config.write_text(slow.replace("weight: 30", "weight: 50"))
    process = start("apply", place.config, "--db", place.bridge.ovs.db, "--yes")
    eventually(lambda: len(place.entries()) == 2, "the change")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert "Bridge ovsbr1 has the flows of entry 2." in place.listed()
    said = place.rollback("--no-drain")
    assert said.out.startswith("rollback to 1: ")
    assert place.flows() == first


def test_numbers_and_bridges_are_completed(place: Place, points: Points) -> None:
    completion = ShellComplete(cli, {}, "xenoovs", "_XENOOVS_COMPLETE")
    words = ["apply", "--db", place.bridge.ovs.db, "--rollback"]
    assert [item.value for item in completion.get_completions(words, "")] == ["1", "2", "3"]
    assert [item.value for item in completion.get_completions([*words, "--bridge"], "")] == ["ovsbr1"]


def test_killed_before_the_entry_was_written_it_goes_back_to_the_last_one(
    place: Place, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    place.config.write_text(SMALL_CONFIG)
    with monkeypatch.context() as patched:
        patched.setattr(History, "record", killed)
        assert place.run("apply", place.config, "--yes").status == 130
    assert place.flows() == points[1]
    assert "Bridge ovsbr1 does not have the flows of entry 3" in place.listed()
    (place.directory / ".4.json.k2jx").write_text('{"xenoovs_history": 1, ')
    assert place.back() == points[3]
    assert sorted(path.name for path in place.directory.iterdir()) == ["1.json", "2.json", "3.json", "4.json"]
