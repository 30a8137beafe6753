"""All servers of a fleet are lost, and restored from an export, on two DPUs, each an Open vSwitch of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetServers, flow_changes, running_fleet
from tests.ovs.stores import loopback
from tests.patience import eventually
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import parse_server, server_of, transact

MEMBER = parse_server(loopback(1, 239))
WEB = """\
  - name: web
    groups: edge
    vip: 10.3.10.80
    backends:
      - {name: web1, mac: 02:00:5e:10:00:12, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:13, weight: 1}
"""


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    """A fleet whose store is a cluster, of one server: a cluster has a log, whose numbers clients remember."""
    with running_fleet(tmp_path, xenoovs, servers=[MEMBER], text=SMALL_CONFIG + WEB) as made:
        yield made


def test_all_servers_are_lost_and_restored_without_a_change_of_a_flow(store: FleetServers, tmp_path: Path) -> None:
    one, two = store.dpus
    assert store.fleet("set-dpu", "dpu2", "--groups", "edge").status == 0
    assert store.fleet("weight", "dns", "fips2", "50").status == 0
    file = tmp_path / "fleet.json"
    exported = store.fleet("export", file)
    assert (exported.status, exported.err, file.stat().st_mode & 0o777) == (0, "", 0o600)
    assert "2 services, 2 DPUs, 1 override, 1 config" in exported.out
    assert store.fleet("export", "-").out == file.read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    said = store.fleet("export", pipe)
    assert (said.status, "is no regular file" in said.err, pipe.is_fifo()) == (64, True, True)
    said = store.fleet("restore", file, "--yes")
    assert (said.status, "the store has a config already" in said.err) == (1, True)
    # The fleet goes on after the export.
    for number in range(5):
        assert store.fleet("set-dpu", "dpu1", "--rack", f"r{number}").status == 0
    eventually(store.is_well, "the newest generation")
    generation = store.status()["generation"]

    with flow_changes(one, tmp_path / "one") as first, flow_changes(two, tmp_path / "two") as second:
        told = first.read_text(), second.read_text()
        remade(store)
        said = store.fleet("restore", file, "--yes")
        assert said.status == 0, said.out + said.err
        assert "may move" not in said.err
        eventually(store.is_well, "the DPUs at the new store")
        assert (first.read_text(), second.read_text()) == told
    found = store.status()
    assert found["generation"] > generation
    assert [(dpu["name"], dpu["groups"], dpu["state"]) for dpu in found["dpus"]] == [
        ("dpu1", [], "applied"),
        ("dpu2", ["edge"], "applied"),
    ]
    # The fleet is what it was: its override, its history, and changes that follow.
    assert store.fleet("reset", "dns", "fips2").status == 0
    assert store.intents() == ["current"]
    assert [each["action"] for each in store.history()][:3] == ["reset dns/fips2", "restore", "weight 50 dns/fips2"]
    assert (
        store.fleet("history", json.loads(store.fleet("status", "-o", "json").out)["intent"]).out == SMALL_CONFIG + WEB
    )


def remade(store: FleetServers) -> None:
    """All servers and their files are lost, and new ones are there."""
    store.stop()
    rmtree(store.directory)
    store.create(MEMBER)
    store.start()


def test_bug_a_new_store_with_the_number_of_the_old_one_and_another_config_was_applied_without_a_flow(
    store: FleetServers, tmp_path: Path
) -> None:
    """The agents knew a view by its number alone: two DPUs sent one client to two backends, and all was well."""
    config, old = tmp_path / "other.yaml", store.status()["generation"]
    before = [dpu.blocks() for dpu in store.dpus]
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 90") + WEB)
    remade(store)
    for dpu in store.dpus:
        assert store.fleet("add-dpu", dpu.name).status == 0
    assert store.fleet("apply", config, "--now", "--yes").status == 0
    while (new := store.status()["generation"]) < old:
        assert store.fleet("set-dpu", "dpu1", "--rack", f"r{new}").status == 0
    eventually(store.is_well, "the config of the new store")
    assert store.status()["generation"] == old
    after = [dpu.blocks() for dpu in store.dpus]
    assert after[0] == after[1]
    assert after != before


def test_a_store_older_than_its_dpus_and_another_one_are_failures_and_no_command_says_that_they_have_it(
    store: FleetServers, tmp_path: Path
) -> None:
    """An agent compares its bridge with what the store has now, also if it does not take that."""
    config = tmp_path / "other.yaml"
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 90") + WEB)
    for number in range(5):
        assert store.fleet("set-dpu", "dpu1", "--rack", f"r{number}").status == 0
    eventually(store.is_well, "the newest generation")
    before = [dpu.blocks() for dpu in store.dpus]

    def not_taken(state: str, reason: str) -> str:
        eventually(lambda: store.fleet("status").out.count(reason) == 2, "both refuse it")
        eventually(lambda: {each["state"] for each in store.status()["dpus"]} == {state}, "both name it")
        said = store.fleet("drain", "dns", "fips2", "--timeout", "1s")
        assert (said.status, "applied by 0 of 2 DPUs" in said.out, store.fleet("status").status) == (2, True, 2)
        assert [dpu.blocks() for dpu in store.dpus] == before
        return said.err

    # As after a restore of a backup of its files. Bug: the number of the DPUs was larger than that of any change there.
    older = {"op": "update", "table": "Fleet", "where": [], "row": {"generation": 1}}
    transact(server_of(store.directory, StoreDatabase.FLEET), older)
    assert "ahead of the store" in not_taken("ahead", "this DPU is ahead of the store")

    remade(store)
    for dpu in store.dpus:
        assert store.fleet("add-dpu", dpu.name).status == 0
    assert store.fleet("apply", config, "--now", "--yes", "--timeout", "1s").status == 2
    not_taken("other_store", "the store is another one than before")
    eventually(lambda: store.fleet("diff").out.count("other blocks") == 2, "both compare")
    assert store.fleet("diff").status == 2
