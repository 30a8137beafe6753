"""Events as text and as JSON."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import TextIO

import pytest

from xenoovs.agent.log import LogForm, info, start_logging, warn


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogForm.JSON)
    warn("backend down", backends="web/b1", reason="no answer\nin time")
    (line,) = capsys.readouterr().err.splitlines()
    document = json.loads(line)
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "warning",
        "event": "backend down",
        "backends": "web/b1",
        "reason": "no answer\nin time",
    }


def test_text_quotes_what_would_be_ambiguous(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogForm.TEXT)
    info("flows changed", flow_mods=3, reason='a "b"\nc', empty="")
    assert capsys.readouterr().err == 'info flows changed flow_mods=3 reason="a \\"b\\"\\nc" empty=""\n'


def test_journald_gets_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        for known in ("1:2", _identity(stream)):
            monkeypatch.setenv("JOURNAL_STREAM", known)
            start_logging(LogForm.TEXT)
            info("flows changed")
            warn("backend down")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines == ["info flows changed", "warning backend down", "<6>info flows changed", "<4>warning backend down"]


def _identity(stream: TextIO) -> str:
    status = os.fstat(stream.fileno())
    return f"{status.st_dev}:{status.st_ino}"


@pytest.mark.parametrize("form", LogForm)
@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "caf\u202e", "\x00", "back\\slash"])
def test_what_a_backend_answers_cannot_move_the_cursor(
    capsys: pytest.CaptureFixture[str], form: LogForm, text: str
) -> None:
    start_logging(form)
    warn("backend down", backends="web/b1", reason=text)
    output = capsys.readouterr().err
    assert output.removesuffix("\n").isprintable()
    assert json.dumps(text) in output


def test_json_takes_facts_of_any_type(capsys: pytest.CaptureFixture[str]) -> None:
    """A path or a fraction raised an error in the JSON encoder."""
    start_logging(LogForm.JSON)
    info("config read", file=Path("/etc/x.yaml"), weight=Fraction(1, 2), none=None)
    document = json.loads(capsys.readouterr().err)
    assert (document["file"], document["weight"], document["none"]) == ("/etc/x.yaml", 0.5, None)
