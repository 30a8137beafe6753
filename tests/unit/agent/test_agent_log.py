"""Events as text and as JSON."""

from __future__ import annotations

import json

import pytest

from xenoovs.agent.log import LogForm, start_logging, tell, warn


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
    tell("flows changed", flow_mods=3, reason='a "b"\nc', empty="")
    assert capsys.readouterr().err == 'info flows changed flow_mods=3 reason="a \\"b\\"\\nc" empty=""\n'
