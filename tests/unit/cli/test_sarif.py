"""`-o sarif` of validate and lint: a place for each mistake, and levels that a code host can act on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.command_line import SMALL_CONFIG, CommandLine


def _results(text: str) -> list[dict[str, Any]]:
    log = json.loads(text)
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert {each["id"] for each in run["tool"]["driver"]["rules"]} == {each["ruleId"] for each in run["results"]}
    results: list[dict[str, Any]] = run["results"]
    return results


def test_each_mistake_of_a_config_has_its_line_and_column(tmp_path: Path, xenoovs: CommandLine) -> None:
    config = tmp_path / "a config.yaml"
    config.write_text(SMALL_CONFIG.replace("weight: 70", "weight: much").replace("10.3.10.45", "10.3.10.x"))
    said = xenoovs("validate", config, "-o", "sarif")
    found = [each["locations"][0]["physicalLocation"] for each in _results(said.out)]
    assert said.status == 1
    assert [each["region"]["startLine"] for each in found] == [5, 9]
    assert {each["artifactLocation"]["uri"] for each in found} == {str(config).replace(" ", "%20")}


def test_a_valid_config_has_no_error(tmp_path: Path, xenoovs: CommandLine) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    said = xenoovs("validate", config, "-o", "sarif")
    assert said.status == 0
    assert all(each["level"] == "note" for each in _results(said.out))


def test_lint_says_error_for_software_and_note_for_hardware(tmp_path: Path, xenoovs: CommandLine) -> None:
    flows = tmp_path / "flows"
    flows.write_text("priority=1,ip,nw_src=192.0.2.1 actions=CONTROLLER:65535\npriority=2,ip actions=output:p1\n")
    said = xenoovs("lint", "--flows", flows, "--all", "-o", "sarif")
    levels = {each["ruleId"]: each["level"] for each in _results(said.out)}
    assert said.status == 2
    assert set(levels.values()) == {"error", "note"}
    assert levels["output"] == "note"
