"""`plan --out FILE` and `apply FILE`: exactly the change that was shown, or none."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, Command
from tests.ovs.dummy import DummyBridge
from xenoovs.evidence import dump_file

OTHER = SMALL_CONFIG.replace("weight: 30", "weight: 50")


@pytest.fixture
def planned(on_bridge: Command, bridge: DummyBridge, config: Path, tmp_path: Path) -> Path:
    """A saved plan from SMALL_CONFIG, which the bridge has, to OTHER."""
    assert on_bridge("apply", config, "--yes").status == 0
    config.write_text(OTHER)
    path = tmp_path / "change.plan"
    said = on_bridge("plan", config, "--out", path)
    assert (said.status, said.out.splitlines()[-1]) == (
        2,
        f"saved: `xenoovs apply {path} --db {bridge.ovs.db}` makes exactly this change",
    )
    return path


Refused = Callable[[], str]


@pytest.fixture
def refused(on_bridge: Command, bridge: DummyBridge, planned: Path) -> Refused:
    """Applies the plan, which has to be refused and to change nothing, and returns the message."""

    def apply() -> str:
        before = bridge.dump_flows()
        said = on_bridge("apply", planned)
        assert (said.status, said.out, bridge.dump_flows()) == (1, "", before)
        return said.err

    return apply


def test_it_is_applied_without_a_question(on_bridge: Command, bridge: DummyBridge, config: Path, planned: Path) -> None:
    """Also if the config, or flows of others, have changed since: a saved plan is never planned again."""
    shown = replace(on_bridge("plan", config), status=0)
    wanted = {flow["after"] for flow in json.loads(on_bridge("plan", config, "-o", "json").out)["changed"]}
    config.write_text("something else")
    assert stat.S_IMODE(planned.stat().st_mode) == 0o600
    assert [path.name for path in planned.parent.iterdir() if path.name.startswith(".")] == []
    bridge.add_flows("cookie=0x5,table=0,priority=5000,arp actions=NORMAL\n")
    before = bridge.dump_flows()
    assert on_bridge("apply", planned, "--dry-run") == shown
    assert bridge.dump_flows() == before
    said = on_bridge("apply", planned)
    assert (said.status, said.err) == (0, "")
    assert wanted <= {*bridge.dump_flows()}
    config.write_text(OTHER)
    assert on_bridge("plan", config).status == 0


def test_a_plan_without_changes_is_one_too(on_bridge: Command, config: Path, planned: Path) -> None:
    config.write_text(SMALL_CONFIG)
    assert on_bridge("plan", config, "--out", planned).status == 0
    said = on_bridge("apply", planned)
    assert (said.status, said.out) == (0, "ovsbr1: nothing to do, 8 flows as they should be\n")


def test_applied_a_second_time_it_is_stale(
    on_bridge: Command, bridge: DummyBridge, planned: Path, refused: Refused
) -> None:
    assert on_bridge("apply", planned).status == 0
    message = refused()
    for said in (
        "bridge ovsbr1 has changed since the plan in",
        "1 flow of dns, such as",
        f"--out {planned}",
        f"--db {bridge.ovs.db}",
    ):
        assert said in message


def test_what_other_programs_delete_makes_it_stale(bridge: DummyBridge, refused: Refused) -> None:
    for flows, what in (("table=1,reg0=0x43d4c2fe", "5 flows of dns"), ("table=0,in_port=p1", "1 flow of no service")):
        bridge.ofctl("del-flows", flows)
        assert what in refused()
    bridge.ovs.vsctl("del-port", "ovsbr1", "p1")
    assert "p1" in refused()


def test_other_flow_mods_than_those_of_the_file_are_refused(planned: Path, refused: Refused) -> None:
    """Bug: an edited file was refused for a change of the bridge."""
    text = planned.read_text()
    for key in ("flow_mods", "before"):
        document = json.loads(text)
        planned.write_text(json.dumps({**document, key: document[key][1:]}))
        assert "it was edited after `xenoovs plan` wrote it" in refused()
    mods = [line.replace("00:03", "00:04") for line in document["flow_mods"]]
    del document["sha256"]
    planned.write_text(json.dumps({**document, "flow_mods": mods, "xenoovs": "0.0.9"}))
    message = refused()
    assert "does not fit any more" in message
    assert "the plan is of 0.0.9" in message


def test_an_edited_file_is_refused_with_line_and_column(
    planned: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_file, "MAX_TEXT_BYTES", 1 << 20)
    text = planned.read_text()
    for old, new, says in (
        ('"drain": true', '"drain": "yes"', "drain: Input should be a valid boolean"),
        ('"bridge": "ovsbr1"', '"bridge": "ovsbr2"', "the config is for bridge ovsbr1, and the plan for ovsbr2"),
        ('"user":', '"use":', "user: Field required"),
        ('"  bridge: ovsbr1"', '"  bridge: ovsbr2"', "config: the config does not match `sha256`"),
        ('"xenoovs_plan": 1', '"xenoovs_plan": 3', "xenoovs_plan: Input should be 1"),
        ('"drain": true', '"drain": true, "drain": false', "the key 'drain' is twice in one object"),
        ('"drain": true', '"drain": true,, ', "Expecting property name"),
        ('"fips2"', '""', "the decision is invalid: services.0.home"),
        ("actions=", "nonsense actions=", "not as xenoovs wrote it: before: "),
        (text[int(len(text) * 0.3) :], "", ""),
        (text[int(len(text) * 0.9) :], "", ""),
        (text, text + (" " * 1023 + "\n") * 1024, "more than 1 MiB"),
    ):
        assert old in text
        planned.write_text(text.replace(old, new, 1))
        message = refused()
        assert says in message
        assert message.startswith(f"error: {planned}:")


def test_what_cannot_be_written_is_named(on_bridge: Command, config: Path, tmp_path: Path) -> None:
    said = on_bridge("plan", config, "--out", tmp_path / "no" / "such")
    assert said.status == 1
    assert f"error: {tmp_path}/no/such: the plan was not saved: No such file or directory" in said.err
    said = on_bridge("plan", config, "--out", "/dev/null")
    assert said.status == 64
    assert "/dev/null is no regular file" in said.err
    assert Path("/dev/null").is_char_device()


def test_a_plan_that_was_rebalanced_is_applied_so(on_bridge: Command, config: Path, planned: Path) -> None:
    assert on_bridge("apply", planned).status == 0
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 31"))
    assert on_bridge("plan", config, "--out", planned, "--rebalance").status == 2
    assert on_bridge("apply", planned).status == 0
    assert on_bridge("plan", config, "--rebalance").status == 0
