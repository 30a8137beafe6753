"""Configs that are given for later, on two DPUs, each an Open vSwitch of its own: dpu1 is the canary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetServers, running_fleet, wait_for_agents
from tests.ovs.test_fleet_waves import MORE, intents, status_of
from tests.patience import eventually

pytestmark = pytest.mark.ovs

# The times are long enough for a command on a slow machine, which refuses one that has passed before it writes.


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    with running_fleet(tmp_path, xenoovs) as made:
        first = tmp_path / "first.yaml"
        first.write_text(SMALL_CONFIG)
        (tmp_path / "more.yaml").write_text(MORE)
        assert made.fleet("apply", first, "--now", "--yes").status == 0
        wait_for_agents(made)
        eventually(made.is_well, "the first config")
        yield made


def newest(store: FleetServers) -> dict[str, Any]:
    rows: list[dict[str, Any]] = json.loads(store.fleet("history", "-o", "json").out)["intents"]
    return rows[0]


def blocks(store: FleetServers) -> list[list[str]]:
    return [dpu.blocks() for dpu in store.dpus]


def is_everywhere(store: FleetServers, *, states: list[str], not_as: list[list[str]]) -> bool:
    one, two = found = blocks(store)
    return intents(store) == states and one == two and found != not_as and store.is_well()


def test_a_config_waits_and_all_dpus_switch_to_it_no_earlier(store: FleetServers, tmp_path: Path) -> None:
    before, more = blocks(store), tmp_path / "more.yaml"
    said = store.fleet("apply", more, "--yes", "--at", "+1h")
    assert said.status == 0, said.out + said.err
    assert "the first wave switches to it at 20" in said.out
    # To wait is no problem.
    eventually(store.is_well, "the generation that waits")
    assert "config 2 waits until 20" in store.fleet("status").out
    assert status_of(store)["waiting"] == {"intent": 2, "at_ms": newest(store)["at_ms"]}
    assert "config 2 waits until 20" in store.fleet("top", "--once").out
    assert "until 20" in store.fleet("history").out
    # Overrides are as always meanwhile.
    assert store.fleet("drain", "dns", "fips2").status == 0
    assert store.fleet("undrain", "dns", "fips2").status == 0
    assert intents(store) == ["waiting", "current"]
    before = blocks(store)
    assert before[0] == before[1]
    assert "02:00:5e:10:00:04" not in str(before)
    said = store.fleet("stop")
    assert (said.status, said.out) == (0, "config 2, which waited, is taken back\n")
    assert intents(store) == ["refused", "current"]

    assert store.fleet("apply", more, "--yes", "--now", "--at", "+1h").status == 0
    said = store.fleet("apply", more, "--yes", "--now", "--at", "+12s")
    assert said.status == 0, said.out + said.err
    assert "it replaces config 3, which waits until 20" in said.out
    assert "all DPUs switch to it at 20" in said.out
    at_ms = newest(store)["at_ms"]
    while True:
        found = blocks(store)
        if time.time() * 1000 >= at_ms:
            break
        assert found == before
    states = ["current", "refused", "refused", "past"]
    eventually(lambda: is_everywhere(store, states=states, not_as=before), "the config at its time")
    assert store.fleet("rollback", "--yes", "--now", "--at", "+1h").status == 0
    assert intents(store) == ["waiting", *states]
