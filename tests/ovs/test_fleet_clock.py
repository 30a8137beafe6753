"""The clock of one DPU is wrong by an hour: that is shown, and nothing else depends on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetServers, running_fleet, wait_for_agents, wrong_clock
from tests.patience import eventually

pytestmark = pytest.mark.ovs


def row(store: FleetServers, dpu: str) -> dict[str, object]:
    said: dict[str, list[dict[str, object]]] = json.loads(store.fleet("status", "-o", "json").out)
    return next(each for each in said["dpus"] if each["name"] == dpu)


@pytest.mark.parametrize("off_s", [3600, -3600], ids=["ahead", "behind"])
def test_a_clock_that_is_off_by_an_hour_is_shown_and_changes_are_installed(
    tmp_path: Path, xenoovs: CommandLine, off_s: int
) -> None:
    env = wrong_clock(tmp_path / "clock", off_s)
    config = tmp_path / "services.yaml"
    config.write_text(SMALL_CONFIG)
    with running_fleet(tmp_path, xenoovs) as store:
        right, wrong_one = store.dpus
        wrong_one.kill()
        wrong_one.env = env
        wrong_one.start()
        store.fleet("apply", config, "--now", "--yes")
        wait_for_agents(store)
        config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
        store.fleet("apply", config, "--now", "--yes")
        eventually(lambda: bool(right.blocks()) and right.blocks() == wrong_one.blocks(), "equal blocks")
        eventually(lambda: "clocks of this host and of dpu2 differ" in store.fleet("status").out, "the wrong clock")
        assert store.fleet("status").status == 2
        assert [row(store, name)["state"] for name in ("dpu1", "dpu2")] == ["applied", "applied"]
        before = right.blocks()
        store.fleet("drain", "dns", "fips2", "--timeout", "1s")
        eventually(lambda: right.blocks() != before and right.blocks() == wrong_one.blocks(), "the drain on both")
        assert wrong_one.process is not None
        assert wrong_one.process.poll() is None
