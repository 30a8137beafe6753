"""`xenoovs why` beside a foreign flow on a real bridge: the flow is named, and the commands for it work."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.dummy import DummyBridge, udp_packet

pytestmark = pytest.mark.ovs

FOREIGN = "table=0,priority=3000,udp,nw_src=0.0.0.0/0.0.128.0,nw_tos=32,tp_src=0x10/0xfff0"
CLIENTS = tuple(f"198.18.0.{number}" for number in range(4))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL_CONFIG)
    return path


def _reasons(capsys: pytest.CaptureFixture[str], bridge: DummyBridge, config: Path) -> list[dict[str, Any]]:
    bridge.send("p0", [udp_packet(client) for client in CLIENTS])
    bridge.megaflows()
    said = CommandLine(capsys)("why", config, "--listen", "0", "-o", "json", "--db", bridge.ovs.db)
    rows = json.loads(said.out)["megaflows"]
    assert rows, said
    return [reason for row in rows for reason in row["reasons"] if reason["cause"] == "unwildcarded"]


def test_the_flow_is_named_and_its_commands_work(
    capsys: pytest.CaptureFixture[str], bridge: DummyBridge, config: Path
) -> None:
    assert CommandLine(capsys)("apply", config, "--yes", "--db", bridge.ovs.db).status == 0
    bridge.add_flows(f"{FOREIGN} actions=drop\n")
    bridge.settle(removed_s=0)
    reason, *_ = _reasons(capsys, bridge, config)
    assert "nw_tos 0xfc" in reason["text"]
    assert reason["evidence"][0].startswith("foreign flow on ovsbr1: priority=3000,udp,")
    look, _owner, delete, again = reason["fix"]
    assert "nw_tos=32" in _typed(look)
    _typed(delete)
    assert "nw_tos=32" not in _typed(look)
    _typed(again)
    bridge.ovs.appctl("revalidator/wait")
    assert _reasons(capsys, bridge, config) == []


def _typed(command: str) -> str:
    """What a command prints that is copied to a shell which knows nothing of this Open vSwitch."""
    done = subprocess.run(["sh", "-c", command], env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
    return done.stdout.decode()
