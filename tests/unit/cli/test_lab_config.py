"""The config that an agent in a lab follows."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import SMALL_CONFIG
from xenoovs.lab import config as lab_config
from xenoovs.lab.config import FollowedConfig
from xenoovs.lab.topology import plan_topology
from xenoovs.model.include import ConfigSources
from xenoovs.model.load import parse_config

ANNOUNCING = SMALL_CONFIG.replace("services:", "announce: {bgp: frr}\nservices:")


def test_an_agent_in_a_lab_logs_once_that_it_announces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topology = plan_topology("x", parse_config(SMALL_CONFIG, file="my.yaml", for_lab=True))
    monkeypatch.setattr(lab_config, "open_lab", lambda _: SimpleNamespace(directory=tmp_path, topology=topology))
    monkeypatch.setattr(lab_config, "follow_config", lambda *_: None)
    caplog.set_level(logging.INFO)
    parse, sources = FollowedConfig("x"), ConfigSources(tmp_path / "my.yaml")
    parse(SMALL_CONFIG.encode(), sources)
    assert not caplog.records
    for _ in range(3):
        assert parse(ANNOUNCING.encode(), sources).announce is None
    assert [record.message for record in caplog.records] == ["announce is ignored in a lab"]
