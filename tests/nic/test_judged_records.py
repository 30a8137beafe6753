"""Records of the emulated NIC: judged here, by the host, they say what was said beside the NIC; and compared."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, CommandResult
from tests.nic.guest.catalogue import GENERATED, SCENARIOS
from tests.nic.recorded import Story

CONFIGS = Path(__file__).parent / "balancers"
every_scenario = pytest.mark.parametrize("story", SCENARIOS, indirect=True)
every_look = pytest.mark.parametrize(
    "story", [name for name in SCENARIOS if name not in (*GENERATED, "lost", "faulty")], indirect=True
)
"""Scenarios with a look that `bench.judge` records; in the others each command is recorded by itself."""


def _file(archive: str, directory: Path) -> Path:
    file = directory / "host.record"
    file.write_bytes(b64decode(archive))
    return file


def _again(xenoovs: CommandLine, said: dict[str, Any], file: Path, *options: str) -> CommandResult:
    """Ask a record what was asked beside the NIC, with other options if there are any."""
    command, *words = said["argv"]
    subject = CONFIGS / f"{words[0]}.yaml"
    named = [subject] if subject.exists() else ["--bridge", words[0]]
    return xenoovs(command, *named, *(options or words[1:]), "--record", file)


@every_look
def test_a_record_says_what_was_said_beside_the_nic(story: Story, tmp_path: Path, xenoovs: CommandLine) -> None:
    recorded = [one for one in story.record["judgements"] if one["archive"]]
    assert recorded
    for one in recorded:
        said, file = one["said"], _file(one["archive"], tmp_path)
        for name in {"verify-offload", "doctor"}.intersection(said):
            again, wanted = _again(xenoovs, said[name], file), said[name]
            found = (again.status, _steady(again.out))
            assert found == (wanted["exit_code"], _steady(wanted["stdout"])), (one["label"], name)
        if "lint" in said:
            again = _again(xenoovs, said["lint"], file, "--output", "json")
            assert (again.status, again.out) == (said["lint"]["exit_code"], said["lint"]["stdout"]), one["label"]
        if "why" in said:
            # What the driver answered to a trial, and what was logged meanwhile, is in no record.
            again = _again(xenoovs, said["why"], file, "--listen", "0", "--interval", "0s", "-o", "json")
            assert again.status == said["why"]["exit_code"]
            assert _explained(again.out) == _explained(said["why"]["stdout"])
        if "trace" in said:
            live, again = said["trace"], _again(xenoovs, said["trace"], file)
            shown, recorded = json.loads(live["stdout"]), json.loads(again.out)
            # Open vSwitch follows the packet there, the simulator here, which does not know every action.
            assert recorded.pop("switch")["agrees"] in (shown.pop("switch")["agrees"], None), one["label"]
            assert recorded == shown


@every_scenario
def test_what_a_command_asked_is_enough_to_say_it_again(story: Story, tmp_path: Path, xenoovs: CommandLine) -> None:
    """With growth between two samples, under faults of the NIC, while traffic is encrypted."""
    said = [each for each in story.record["said"] if each["archive"]]
    assert said or story.record["judgements"]
    for each in said:
        again = _again(xenoovs, each, _file(each["archive"], tmp_path))
        assert again.status == each["exit_code"], each["argv"]
        assert _without_keys(again.out) == _without_keys(each["stdout"]), each["argv"]


def _steady(text: str) -> str:
    """Return a text without the flow limit of the moment, which Open vSwitch lowers on a busy machine."""
    return re.sub(r"\(\d+ now\)", "", text)


def _without_keys(text: str) -> object:
    """Return a document without what needs the keys of IPsec, of which no record has any; or the text as it is."""
    if not text.startswith("{"):
        return text
    document = json.loads(text)
    return document | {"checks": [each for each in document.get("checks", ()) if each["check"] != "IPsec key"]}


def _explained(text: str) -> set[tuple[str, str]]:
    return {(each["ufid"], each["verdict"]) for each in json.loads(text)["megaflows"]}


def test_fixed__what_left_the_nic_is_explained_by_the_settings_of_its_port(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    files = {one["label"]: tmp_path / one["label"] for one in story.record["judgements"] if one["archive"]}
    for one in story.record["judgements"]:
        if one["archive"]:
            files[one["label"]].write_bytes(b64decode(one["archive"]))
    for after, changed, verdict in (
        ("without its qdisc", "ingress qdisc is no, was yes", "SW"),
        ("without the feature", "hw-tc-offload is off, was on", "TC_SW"),
    ):
        said = xenoovs("verify-offload", "--record", files[after], "--diff", files["fixed"])
        assert (said.status, said.err) == (2, "")
        document = json.loads(
            xenoovs("verify-offload", "--record", files[after], "--diff", files["fixed"], "-o", "json").out
        )
        share = document["hw_share"]
        lost = round(100 * share["before"])
        assert said.out.splitlines()[0] == f"{lost} % of packets left the NIC: device p0: {changed}"
        # Of the packets that made the rules, a busy machine's CPU forwards some that came before the NIC had them.
        assert (share["before"] >= 0.5, share["after"]) == (True, 0.0)
        assert {each["after"]["verdict"] for each in document["classes"] if each["worse"]} == {verdict}
        assert xenoovs("verify-offload", "--record", files["fixed"], "--diff", files[after]).status == 0
