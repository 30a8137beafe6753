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
    "story", [name for name in SCENARIOS if name not in (*GENERATED, "faulty", "lost", "tunnel_ipsec")], indirect=True
)
"""Scenarios with a look that `bench.judge` records; in the others each command is recorded by itself."""


def _file(archive: str, directory: Path) -> Path:
    file = directory / "host.record"
    file.write_bytes(b64decode(archive))
    return file


def _again(xenoovs: CommandLine, said: dict[str, Any], file: Path, *options: str) -> CommandResult:
    """Ask a record what was asked beside the NIC, with other options if there are any."""
    command, *words = said["argv"]
    if words[0].startswith("-"):
        return xenoovs(command, *words, "--record", file)
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


def _compared(story: Story, directory: Path, xenoovs: CommandLine, before: str, after: str) -> CommandResult:
    """Compare the records of two looks of a scenario."""
    files = []
    for one in story.record["judgements"]:
        if one["label"] in (before, after):
            files.append(directory / f"{one['label']}.record")
            files[-1].write_bytes(b64decode(one["archive"]))
    return xenoovs("compare", *files)


def test_fixed__what_left_the_nic_is_explained_by_the_settings_of_its_port(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    for after, headline in (
        ("without its qdisc", "100 % of packets left the NIC: device p0: ingress qdisc is no, was yes"),
        ("without the feature", "100 % of packets left the NIC: device p0: hw-tc-offload is off, was on"),
    ):
        said = _compared(story, tmp_path, xenoovs, "fixed", after)
        assert (said.status, said.out.splitlines()[0]) == (2, headline)


def test_limits__what_the_nic_refused_is_named_by_its_traffic(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    said = _compared(story, tmp_path, xenoovs, "full table", "hash collisions")
    share, _, kind = said.out.splitlines()[0].partition(" % of packets left the NIC: ")
    assert (said.status, share.isdigit()) == (2, True)
    assert kind.startswith("ovsbr1: p0 -> p1 [set(eth)]: TC_SW, was TC_SW; ")


def test_ageing__megaflows_that_idled_out_prove_nothing_and_the_setting_is_shown(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    said = _compared(story, tmp_path, xenoovs, "half of the clients are back", "idled out")
    assert (said.status, said.out.splitlines()[0]) == (
        3,
        "the record after has no traffic: nothing can be compared",
    )
    assert "other_config:max-idle: 3600000 -> 10000" in said.out


def test_accepted__what_left_the_nic_is_explained_by_the_setting(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for file, one in zip((before, after), story.record["judgements"][-2:], strict=True):
        file.write_bytes(b64decode(one["archive"]))
    said = xenoovs("compare", before, after)
    headline = said.out.splitlines()[0]
    assert (said.status, said.err) == (2, "")
    assert headline.endswith("% of packets left the NIC: device p1: hw-tc-offload is off, was on")
    document = json.loads(xenoovs("compare", before, after, "-o", "json").out)
    worse = {each["in_port"]: each["after"]["verdict"] for each in document["classes"] if each["worse"]}
    assert worse == {"p1": "TC_SW"}
    assert xenoovs("compare", after, before).status == 0
