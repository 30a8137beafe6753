"""With `-o json` stderr has one JSON document a line: the error with a code, and notes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, CommandResult
from xenoovs.errors import XenoovsError
from xenoovs.terminal.output import echo

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"


def _error(result: CommandResult) -> Any:
    assert result.out == ""
    *notes, last = map(json.loads, result.err.splitlines())
    assert all([*note] == ["note"] for note in notes)
    return last["error"]


def test_wrong_usage(xenoovs: CommandLine) -> None:
    for words in (["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "json"]):
        result = xenoovs("plan", "--no-such-option", *words)
        assert result.status == 64
        assert _error(result) == {
            "code": "usage",
            "message": "No such option '--no-such-option'.",
            "hint": None,
            "exit_status": 64,
            "retryable": False,
        }


def test_json_ends_with_the_command(xenoovs: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    xenoovs("plan", "--no-such-option", "-o", "json")
    echo("a note", err=True)
    assert capsys.readouterr().err == "a note\n"


def test_every_mistake_of_a_config(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG.replace("weight: 70", "weight: much").replace("[53]", "[99999]"))
    result = xenoovs("validate", config, "-o", "json")
    error = _error(result)
    assert (result.status, error["code"], error["exit_status"]) == (1, "config_error", 1)
    assert [finding["line"] for finding in error["findings"]] == [7, 9]
    assert set(error["findings"][0]) == {"file", "line", "column", "path", "message"}


def test_no_agent(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    result = xenoovs("status", "--control", "/no/such.sock", "-o", "json")
    error = _error(result)
    assert (result.status, error["code"]) == (1, "agent_missing")
    assert error["hint"] == "Without an agent, use `xenoovs status FILE`, which reads the bridge."


def test_a_file_that_is_not_there(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    result = xenoovs("analyse", config, tmp_path / "none", "-o", "json")
    assert (result.status, _error(result)["code"]) == (1, "failed")


def test_notes_are_json_too(xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    monkeypatch.setenv("XENOOVS_CONFIG", str(config))
    first = json.loads(xenoovs("apply", "--db", "unix:/nowhere/db", "-o", "json").err.splitlines()[0])
    assert first == {"note": f"config {config} (XENOOVS_CONFIG)"}


def test_text_stays_text(xenoovs: CommandLine) -> None:
    assert xenoovs("plan", "--no-such-option").err.startswith("Usage: xenoovs plan")
    result = xenoovs("lab", "exec", "--lab", "none", "--", "true", "-o", "json")
    assert result.err.startswith("error: there is no lab none")


def _classes(root: type[XenoovsError] = XenoovsError) -> set[type[XenoovsError]]:
    return {root}.union(*(_classes(each) for each in root.__subclasses__()))


def test_every_code_is_documented_once() -> None:
    """A class with a new name would be a new code for programs: the page shows it."""
    codes = [found.code for found in _classes() if found.__module__ == "xenoovs.errors"]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.MULTILINE))
