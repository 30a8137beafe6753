"""`status` without an agent: suggested commands address the same Open vSwitch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.cli import status
from xenoovs.switch.endpoint import Endpoint


def test_a_difference_names_the_plan_of_this_open_vswitch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xenoovs: CommandLine
) -> None:
    """After `status --db` it suggested plain `xenoovs plan`, which reads the Open vSwitch of the host."""
    config, db = tmp_path / "my.yaml", f"unix:{tmp_path}/db.sock"
    config.write_text(SMALL_CONFIG)
    switch = FakeSwitch(fake_bridge("ovsbr1", ("p0", "p1")))
    switch.endpoint = Endpoint(db, tmp_path)  # type: ignore[attr-defined]
    monkeypatch.setattr(status, "reach", lambda *_: switch)
    result = xenoovs("status", config, "--from-bridge", "--interval", "0", "--db", db)
    assert f"; see `xenoovs plan {config} --db {db}`" in result.out, result.out
