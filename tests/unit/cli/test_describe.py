"""`describe` shows one server, from an agent that runs in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.agent_support import make_scene
from tests.command_line import CommandLine
from tests.unit.agent.test_control_servers import CONFIG


@pytest.fixture
def xenoovs(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def test_a_server_in_all_services(xenoovs: CommandLine, tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    scene.config.write_text(CONFIG)
    with scene.agent() as (_, client):
        client.ask("drain", {"backend": "web1", "for_s": 3600})
        result = xenoovs("describe", "web1", "--control", client.path)
        assert result.status == 0, result.err
        assert "web/web1  192.0.2.10\n" in result.out
        assert "dns/dns1  192.0.2.10\n" in result.out
        assert re.search(r"^  override:    drained for \d+s, [0-9hms ]+ left$", result.out, re.MULTILINE)
        assert re.search(r"^  changes:     1; last: \d+s ago: drained by an operator$", result.out, re.MULTILINE)
        assert "override set service=dns backend=dns1 state=drained for_s=3600\n" in result.out
        document = json.loads(xenoovs("describe", "dns/web2", "--control", client.path, "-o", "json").out)
        (found,) = document["backends"]
        assert (found["service"], found["name"], found["state"]) == ("dns", "web2", "unchecked")
        assert len(found["block_list"]) == found["flows"] > 0
        wrong_ones = ((("web3",), "did you mean web2"), (("dsn", "web2"), "mean dns"), (("same",), "several servers"))
        for words, message in wrong_ones:
            wrong = xenoovs("describe", *words, "--control", client.path)
            assert (wrong.status, message in wrong.err) == (1, True), wrong.err
        assert xenoovs("describe", "a/b/c", "--control", client.path).status == 64
