"""A lab that is not there, and an agent in a lab."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from xenoovs.lab import servers
from xenoovs.lab.lab import Lab
from xenoovs.lab.topology import plan_topology
from xenoovs.model.include import ConfigSources
from xenoovs.model.load import parse_config


def test_without_a_machine_a_lab_is_sought_on_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(tmp_path))
    result = CommandLine(capsys)("lab", "exec", "--lab", "none", "--", "true")
    assert (result.status, result.out) == (1, "")
    assert "there is no lab none" in result.err


ANNOUNCING = SMALL_CONFIG.replace("services:", "announce: {bgp: frr}\nservices:")


def test_an_agent_in_a_lab_logs_once_that_it_announces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topology = plan_topology("x", parse_config(SMALL_CONFIG, file="my.yaml", for_lab=True))
    monkeypatch.setattr(servers, "follow_config", lambda *_: None)
    caplog.set_level(logging.INFO)
    parse, sources = servers.FollowedConfig(Lab(tmp_path, topology)), ConfigSources(tmp_path / "my.yaml")
    parse(SMALL_CONFIG.encode(), sources)
    assert "announce is ignored in a lab" not in caplog.messages
    for _ in range(3):
        assert parse(ANNOUNCING.encode(), sources).announce is None
    assert caplog.messages.count("announce is ignored in a lab") == 1
