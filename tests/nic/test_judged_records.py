"""Records of the emulated NIC: judged here, by the host, they say what was said beside the NIC; and compared."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.nic.recorded import Story

CONFIGS = Path(__file__).parent / "balancers"
WHOLE = ("accepted", "copying", "foreign_port", "switched", "skip_hw", "limits", "ageing")
"""Scenarios with a look that is recorded: the NIC takes all, some, is switched off, is not asked, is full; and where
megaflows have gone."""


def _archives(story: Story, directory: Path) -> list[tuple[dict[str, Any], Path]]:
    """Return what was said at each moment that was recorded, with the record as a file."""
    found = [one for one in story.record["judgements"] if one["archive"]]
    files = [directory / f"{number}.record" for number in range(len(found))]
    for one, file in zip(found, files, strict=True):
        file.write_bytes(b64decode(one["archive"]))
    return [(one["said"], file) for one, file in zip(found, files, strict=True)]


@pytest.mark.parametrize("story", WHOLE, indirect=True)
def test_a_record_says_what_was_said_beside_the_nic(story: Story, tmp_path: Path, xenoovs: CommandLine) -> None:
    archives = _archives(story, tmp_path)
    assert archives
    for commands, file in archives:
        for name in {"verify-offload", "doctor"}.intersection(commands):
            _, balancer, *options = commands[name]["argv"]
            again = xenoovs(name, CONFIGS / f"{balancer}.yaml", *options, "--record", file)
            assert again.status == commands[name]["exit_code"]
            assert json.loads(again.out) == json.loads(commands[name]["stdout"])
        if "why" in commands:
            # What the driver answered to a trial, and what was logged meanwhile, is in no record.
            balancer = commands["why"]["argv"][1]
            options = ("--listen", "0", "--interval", "0s", "-o", "json")
            again = xenoovs("why", CONFIGS / f"{balancer}.yaml", *options, "--record", file)
            assert again.status == commands["why"]["exit_code"]
            assert _explained(again.out) == _explained(commands["why"]["stdout"])


def _explained(text: str) -> set[tuple[str, str]]:
    return {(each["ufid"], each["verdict"]) for each in json.loads(text)["megaflows"]}


def test_accepted__what_left_the_nic_is_explained_by_the_setting(
    story: Story, tmp_path: Path, xenoovs: CommandLine
) -> None:
    (_, before), (_, after) = _archives(story, tmp_path)
    said = xenoovs("compare", before, after)
    headline = said.out.splitlines()[0]
    assert (said.status, said.err) == (2, "")
    assert headline.endswith("% of packets left the NIC: device p1: hw-tc-offload is off, was on")
    document = json.loads(xenoovs("compare", before, after, "-o", "json").out)
    worse = {each["in_port"]: each["after"]["verdict"] for each in document["classes"] if each["worse"]}
    assert worse == {"p1": "TC_SW"}
    assert xenoovs("compare", after, before).status == 0
