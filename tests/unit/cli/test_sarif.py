"""`-o sarif` of validate and lint: a place for each mistake, and levels that a code host can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from tests.command_line import SMALL_CONFIG, CommandLine


def _object(*required: str, **properties: object) -> Mapping[str, object]:
    """An object that has nothing else: the schema allows more, which we do not write."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 1}
_RULES = {"type": "array", "uniqueItems": True, "items": _object("id", id=_TEXT)}
_PLACE = _object(
    artifactLocation=_object(uri={"type": "string", "format": "uri-reference", "pattern": r"^[^\s<>\\^`{|}]*$"}),
    region=_object(startLine=_COUNT, startColumn=_COUNT),
)
_RESULT = _object(
    "message",
    ruleId=_TEXT,
    level={"enum": ["none", "note", "warning", "error"]},
    message=_object("text", text=_TEXT),
    locations={"type": "array", "uniqueItems": True, "items": _object(physicalLocation=_PLACE)},
)
_RUN = _object(
    "tool",
    tool=_object("driver", driver=_object("name", name=_TEXT, version=_TEXT, rules=_RULES)),
    results={"type": "array", "items": _RESULT},
)
SCHEMA = _object(
    *("version", "runs"),
    version={"const": "2.1.0"},
    runs={"type": "array", "items": _RUN},
    **{"$schema": {"type": "string", "format": "uri"}},
)
"""What the published schema (OASIS, sarif-schema-2.1.0.json) says of the properties that we write."""


def results_of(text: str) -> list[dict[str, Any]]:
    log = json.loads(text)
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    (run,) = log["runs"]
    assert {each["id"] for each in run["tool"]["driver"]["rules"]} == {each["ruleId"] for each in run["results"]}
    results: list[dict[str, Any]] = run["results"]
    return results


def test_each_mistake_of_a_config_has_its_line_and_column(tmp_path: Path, xenoovs: CommandLine) -> None:
    config = tmp_path / "a config.yaml"
    config.write_text(SMALL_CONFIG.replace("weight: 70", "weight: much").replace("10.3.10.45", "10.3.10.x"))
    said = xenoovs("validate", config, "-o", "sarif")
    found = [each["locations"][0]["physicalLocation"] for each in results_of(said.out)]
    assert said.status == 1
    assert [each["region"]["startLine"] for each in found] == [5, 9]
    assert {each["artifactLocation"]["uri"] for each in found} == {str(config).replace(" ", "%20")}
    config.write_text(SMALL_CONFIG)
    said = xenoovs("validate", config, "-o", "sarif")
    assert (said.status, {each["level"] for each in results_of(said.out)} <= {"note"}) == (0, True)


def test_lint_says_error_for_software_and_note_for_hardware(tmp_path: Path, xenoovs: CommandLine) -> None:
    flows = tmp_path / "flows"
    flows.write_text("priority=1,ip,nw_src=192.0.2.1 actions=CONTROLLER:65535\npriority=2,ip actions=output:p1\n")
    said = xenoovs("lint", "--flows", flows, "--all", "-o", "sarif")
    levels = {each["ruleId"]: each["level"] for each in results_of(said.out)}
    assert said.status == 2
    assert set(levels.values()) == {"error", "note"}
    assert levels["output"] == "note"
