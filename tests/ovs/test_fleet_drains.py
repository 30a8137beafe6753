"""A DPU goes out of service, and comes back, when no drain of a service runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetServers, running_fleet
from tests.patience import eventually

pytestmark = pytest.mark.ovs

PINNED = SMALL_CONFIG.replace("  - name: dns\n", "  - name: dns\n    drain: {mode: pin, timeout: 10s}\n")


def drains(store: FleetServers) -> list[str]:
    return [each["service"] for each in json.loads(store.fleet("status", "-o", "json").out)["drains"]]


def test_a_dpu_waits_for_drains_of_services_before_its_clients_go_to_others(
    tmp_path: Path, xenoovs: CommandLine
) -> None:
    config = tmp_path / "services.yaml"
    config.write_text(PINNED)
    with running_fleet(tmp_path, xenoovs, dpus=0) as store:
        assert store.fleet("apply", config, "--now", "--yes").status == 0
        # It has no agent, so a drain would wait for it.
        assert store.fleet("drain", "dns", "fips2").status == 0
        assert store.fleet("add-dpu", "dpu1").status == 0
        shown = store.fleet("drain-dpu", "dpu1", "--now")
        assert (shown.status, "waiting" in shown.out) == (0, False)
        shown = store.fleet("undrain-dpu", "dpu1")
        assert (shown.status, drains(store)) == (0, []), shown.out + shown.err
        assert store.fleet("weight", "dns", "fips2", "5", "--timeout", "0.1s").status == 2
        eventually(lambda: drains(store) == ["dns"], "the drain")
        assert "dns: open connections may stay with their old backends for " in store.fleet("status").out
        shown = store.fleet("drain-dpu", "dpu1")
        assert (shown.status, drains(store)) == (0, [])
        assert "for drains of dns; --now does not wait" in shown.out
        assert store.fleet("drain-dpu", "dpu1").out.startswith("dpu1 is out of service")
