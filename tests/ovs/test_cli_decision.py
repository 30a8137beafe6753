"""`xenoovs decision` on a real bridge: what would be decided, what is installed, and how two decisions differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.dummy import DummyBridge
from xenoovs.decision.document import parse_decision

pytestmark = pytest.mark.ovs


def test_what_was_applied_is_what_was_decided(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    wanted = xenoovs("decision", config, "--db", bridge.ovs.db, "-o", "json")
    assert xenoovs("decision", config, "--db", bridge.ovs.db, "--installed").out.splitlines()[1:] == []
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").status == 0
    there = xenoovs("decision", config, "--db", bridge.ovs.db, "--installed", "-o", "json")
    assert (wanted.status, there.status) == (0, 0)
    assert json.loads(there.out) == json.loads(wanted.out)
    assert parse_decision(json.loads(there.out)).services


def test_a_changed_weight_differs_by_the_clients_that_would_move(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    same = xenoovs("decision", config, "--db", bridge.ovs.db, "--diff", "installed")
    assert (same.status, same.out) == (0, "both decisions send every client to the same backend\n")
    before = tmp_path / "before.json"
    before.write_text(xenoovs("decision", config, "--db", bridge.ovs.db, "-o", "json").out)
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    for other in ("installed", str(before)):
        said = xenoovs("decision", config, "--db", bridge.ovs.db, "--diff", other, "-o", "json")
        (service,) = json.loads(said.out)["services"]
        plan = json.loads(xenoovs("plan", config, "--db", bridge.ovs.db, "-o", "json").out)
        assert (said.status, service["clients"]) == (2, plan["services"][0]["clients_moved"])
        assert sum(shift["clients"] for shift in service["shifts"]) == service["clients"]


def test_without_a_switch_the_decision_is_that_of_a_new_bridge(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    online = xenoovs("decision", config, "--db", bridge.ovs.db)
    assert xenoovs("decision", config, "--offline").out == online.out
    assert online.out.splitlines()[0].split() == ["SERVICE", "BACKEND", "HOME", "ACTIVE", "BLOCKS", "DRAINING"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ('{"format": 2, "version": 0, "services": []}', "format"),
        (
            '{"format": 1, "version": 0, "services": [{"id": "0x1", "key": {"field": "source_address"}, "home": {}}]}',
            "id",
        ),
    ],
)
def test_a_file_that_is_no_decision_is_refused(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    said = xenoovs("decision", config, "--db", bridge.ovs.db, "--diff", path)
    assert said.status == 1
    assert reason in said.err
