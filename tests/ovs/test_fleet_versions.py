"""A fleet whose store a newer version has converted, while a controller, an agent and commands of this version run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetServers, running_fleet, wait_for_agents
from tests.ovs.test_fleet import select, transact
from tests.patience import eventually
from xenoovs.store.rows import StoreDatabase, schema_text
from xenoovs.store.servers import files_of
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs


def convert(store: FleetServers, database: StoreDatabase) -> None:
    """Give a database what a newer version may have: another state, wave, column and table."""
    schema: dict[str, Any] = json.loads(schema_text(database))
    tables = schema["tables"]
    tables["More"] = {"columns": {"name": {"type": "string"}}}
    for table in ("Fleet", "Service", "Intent", "Dpu", "Dpu_State"):
        if table in tables:
            tables[table]["columns"]["more"] = {"type": "string"}
    if database is StoreDatabase.FLEET:
        tables["Intent"]["columns"]["state"]["type"]["key"]["enum"][1].append("paused")
        tables["Dpu"]["columns"]["wave"]["type"]["key"]["maxInteger"] = 9
    file = store.directory.parent / "newer.ovsschema"
    file.write_text(json.dumps({**schema, "version": "9.0.0"}))
    run(["ovsdb-client", "convert", files_of(store.directory, database).remote, str(file)])


def test_an_older_version_works_with_a_newer_schema_and_names_a_value_that_it_does_not_know(
    tmp_path: Path, xenoovs: CommandLine
) -> None:
    """An unknown state was an empty one and the store damaged; the controller went on with old rows in silence."""
    config = tmp_path / "services.yaml"
    config.write_text(SMALL_CONFIG)
    with running_fleet(tmp_path, xenoovs, dpus=1) as store:
        (dpu,) = store.dpus
        assert store.fleet("apply", config, "--now", "--yes").status == 0
        wait_for_agents(store)
        for database in StoreDatabase:
            convert(store, database)
        eventually(store.is_well, "all with the newer schema")
        said = store.fleet("drain", "dns", "fips2")
        assert said.status == 0, said.out + said.err

        transact(store, {"op": "update", "table": "Dpu", "where": [], "row": {"wave": 9}})
        transact(store, {"op": "update", "table": "Intent", "where": [], "row": {"state": "paused"}})
        problem = (
            "the fleet's store is that of a newer version: table Intent, row 1, column state has 'paused', which this "
            "version does not know; upgrade xenoovs on this host"
        )
        for command in (
            ["status"],
            ["top", "--once"],
            ["history"],
            ["undrain", "dns", "fips2"],
            ["apply", config, "--yes"],
            ["export", tmp_path / "out"],
        ):
            said = store.fleet(*command)
            assert (said.status, said.err.count(problem), "Traceback" in said.err) == (1, 1, False), said.err
        before = dpu.blocks()
        assert xenoovs("status", "--db", dpu.bridge.ovs.db).status == 0

        transact(store, {"op": "update", "table": "Intent", "where": [], "row": {"state": "current"}})
        assert dpu.blocks() == before
        assert select(store, "Dpu")[0]["wave"] == 9
        said = store.fleet("undrain", "dns", "fips2")
        assert said.status == 0, said.out + said.err
        assert problem in store.end_controller()
