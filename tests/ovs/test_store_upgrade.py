"""A newer xenoovs on one host of the store converts the schema while clients are connected, or changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.ovs.fleets import running_fleet
from tests.ovs.releases import running_programs_of, version_of
from tests.ovs.stores import (
    StoreServer,
    first_view,
    loopback,
    ovsdb_client,
    running_cluster,
    running_relay,
    service,
    wait_generation,
)
from tests.patience import eventually
from xenoovs.compile.offloadable.table import parse_version
from xenoovs.errors import StoreError, StoreUnreachable
from xenoovs.store.client import CommitOutcome, DpuStatusClient, DpuStatusReader, StoreClient
from xenoovs.store.rows import READER_ROLE, StoreDatabase, schema_text
from xenoovs.store.servers import (
    OvsdbServer,
    StorePort,
    create_databases,
    parse_server,
    server_command,
    server_of,
    start_server,
    stop_server,
)
from xenoovs.store.view import Action, Changes, Dpu, DpuStatus
from xenoovs.switch.process import run

CLIENTS = 20
LATE_NETWORK = 237
Edit = Callable[[dict[str, Any]], object]
Starts = Callable[[OvsdbServer], str]


@pytest.fixture
def start() -> Iterator[Starts]:
    """Starts a server in the background, as `fleet server` does; it ends with the test."""
    with ExitStack() as stack:

        def run(files: OvsdbServer) -> str:
            stack.callback(stop_server, files)
            return start_server(files)

        yield run


@contextmanager
def written_by(version: str, edit: Edit, *, has_roles: bool = True) -> Iterator[None]:
    """Let databases be created with another schema. `has_roles`: with what roles may change."""

    def text(database: StoreDatabase) -> str:
        schema = json.loads(schema_text(database))
        edit(schema["tables"])
        return json.dumps({**schema, "version": version})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xenoovs.store.servers.schema_text", text)
        if not has_roles:
            patch.setattr("xenoovs.store.servers.role_operations", lambda _database: [])
        yield


def older_store(
    directory: Path, database: StoreDatabase, version: str, edit: Edit, *, has_roles: bool = True
) -> OvsdbServer:
    with written_by(version, edit, has_roles=has_roles):
        create_databases(directory / "store", name="test")
    return server_of(directory / "store", database)


def without(table: str, column: str) -> Edit:
    return lambda tables: tables.get(table, {"columns": {column: {}}})["columns"].pop(column)


def unbounded(table: str, column: str) -> Edit:
    """Any text is a value of the column."""
    return lambda tables: tables.get(table, {"columns": {}})["columns"].update({column: {"type": "string"}})


def with_more(tables: dict[str, Any]) -> None:
    tables["RBAC_Role"]["columns"]["more"] = {"type": "string"}


def without_roles(tables: dict[str, Any]) -> None:
    for name in [each for each in tables if each.startswith("RBAC")]:
        del tables[name]


def ask(files: OvsdbServer, *arguments: str) -> str:
    said = ovsdb_client(files.remote, None, *arguments)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def roles_of(files: OvsdbServer) -> list[str]:
    found = json.loads(ask(files, "dump", "--format=json", files.name, "RBAC_Role", "name"))["data"]
    return sorted(role for (role,) in found)


def test_the_first_upgraded_server_converts_for_all_and_no_client_loses_anything(tmp_path: Path, start: Starts) -> None:
    """A relay and many agents are connected; one of them has no more to do than to read all again."""
    with ExitStack() as stack:
        with written_by("0.9.0", without("Service", "drain_until_ms")):
            cluster = stack.enter_context(running_cluster(tmp_path))
        source = ",".join(server.remote for server in cluster)
        relay = stack.enter_context(running_relay(tmp_path, source))
        writer = stack.enter_context(StoreClient(",".join(each.files.remote for each in cluster), with_intents=True))
        first_view(writer)
        assert writer.commit(0, Changes({"dns": service("dns", "a", "b")})) is CommitOutcome.COMMITTED
        agents = [stack.enter_context(StoreClient(relay.remote)) for _ in range(CLIENTS)]
        before = [wait_generation(agent, 1) for agent in agents]
        upgraded = cluster[-1]
        upgraded.kill()

        assert start(upgraded.files) == ""

        version = json.loads(schema_text(StoreDatabase.FLEET))["version"]
        for server in cluster:
            eventually(
                lambda: ask(server.files, "get-schema-version", "xenoovs") == version,  # noqa: B023
                f"the schema of {server.files.directory.name}",
            )
        assert "drain_until_ms" in ask(relay.files, "get-schema", "xenoovs"), "relays follow"
        eventually(lambda: writer.connection.is_connected, "the writer is back")
        assert writer.commit(1, Changes({"web": service("web", "c")}), timeout_s=60) is CommitOutcome.COMMITTED
        after = [wait_generation(agent, 2) for agent in agents]
        assert all(view.services["dns"] == before[0].services["dns"] for view in (*before, *after))
        assert {name for view in after for name in view.services} == {"dns", "web"}
        assert not any(agent.connection.problem for agent in agents)


def test_servers_of_three_releases_of_open_vswitch_lose_no_write(tmp_path: Path) -> None:
    """A cluster of 2.15 is upgraded server by server; then each of the versions is killed, whether it leads or not."""
    suites = dict(enumerate(("bullseye", "", "trixie")))
    names = list[str]()

    def write() -> None:
        names.append(f"s{len(names)}")
        while names[-1] not in (view := first_view(writer)).services:
            # Where the outcome is unknown, the next view decides.
            with suppress(StoreUnreachable):
                writer.commit(view.generation, Changes({names[-1]: service(names[-1], "a", "b")}), timeout_s=60)

    with ExitStack() as stack:
        # `ovsdb-tool --election-timer` is new in 2.16: the files are made by the Open vSwitch of this host.
        cluster = stack.enter_context(running_cluster(tmp_path))
        for server in cluster:
            server.kill()
        with running_programs_of("bullseye"):
            for server in cluster:
                server.start(wait=False)
        writer = stack.enter_context(StoreClient(",".join(each.files.remote for each in cluster), with_intents=True))
        for number in (1, 2, 2, 1, 0):
            write()
            cluster[number].kill()
            write()
            with running_programs_of(suites[number]):
                cluster[number].start()
            write()
        versions = [run(["ovs-appctl", "-t", str(each.files.control), "version"]).stdout for each in cluster]
        assert [parse_version(text.split()[3]) for text in versions] == [version_of(suites[each]) for each in range(3)]
        assert len(set(versions)) == len(cluster)
        for server in cluster:
            with StoreClient(server.files.remote) as reader:
                view = wait_generation(reader, len(names))
                assert (view.generation, set(view.services)) == (len(names), set(names)), "none lost, none twice"


def test_bug_a_port_on_an_open_vswitch_before_3_0_ended_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("xenoovs.store.servers._LOCAL_SCHEMA", tmp_path / "local-config.ovsschema")
    with pytest.raises(StoreError, match=r"local-config.ovsschema is missing: .* needs Open vSwitch 3\.0"):
        server_command(OvsdbServer(tmp_path, "xenoovs", [StorePort("127.0.0.1", 6661, READER_ROLE)]))


def test_a_store_of_1_0_0_keeps_its_history_and_gets_the_role_of_operators(tmp_path: Path, start: Starts) -> None:
    lacks = {
        "Action": ("host", "certificate", "comment", "changed", "config"),
        "Override": ("until_ms",),
        "Intent": ("is_paused",),
    }

    def edit(tables: dict[str, Any]) -> None:
        tables.pop("Freeze", None)
        for table, columns in lacks.items():
            for column in columns if table in tables else ():
                del tables[table]["columns"][column]

    files = older_store(tmp_path, StoreDatabase.FLEET, "1.9.0", edit, has_roles=False)
    rows: dict[str, dict[str, object]] = {
        "Action": {"number": 1, "author": "ann", "text": "drain a"},
        "Override": {"service": "dns", "backend": "a", "weight": "0", "configured": "1"},
        "Dpu": {"name": "dpu1", "wave": 3},
    }
    with StoreServer(files) as server:
        server.transact(*({"op": "insert", "table": table, "row": row} for table, row in rows.items()))
    assert start(files) == ""
    with StoreClient(files.remote, with_intents=True) as client:
        view = first_view(client)
        assert view.actions == {1: Action(1, 0, "ann", "drain a")}
        assert (view.overrides["dns", "a"].until_ms, view.freezes) == (0, {})
        assert client.commit(0, Changes(dpus={"dpu1": Dpu("dpu1", frozenset(), wave=9)})) is CommitOutcome.COMMITTED
    assert roles_of(files) == ["operator", "reader"]


def test_after_an_upgrade_dpus_may_write_all_columns_also_where_a_report_was_too_large(
    tmp_path: Path, start: Starts
) -> None:
    """Reports are dropped then. DPUs send theirs again, of which the other ones are as they were."""
    files = older_store(tmp_path, StoreDatabase.STATES, "0.9.0", unbounded("Dpu_State", "error"), has_roles=False)
    server = StoreServer(files, StoreDatabase.STATES)
    server.start()
    status = DpuStatus("dpu1", applied=7)
    with DpuStatusClient(files.remote) as dpu1, DpuStatusReader(files.remote) as reader:
        dpu1.put(status)
        eventually(lambda: reader.statuses() == {"dpu1": status}, "the report of dpu1")
        large = {"op": "insert", "table": "Dpu_State", "row": {"name": "dpu2", "error": "e" * 5000}}
        server.transact(large)
        server.kill()
        assert start(files) == ""
        eventually(lambda: reader.statuses() == {"dpu1": status}, "the report of dpu1 alone")
    version = json.loads(schema_text(StoreDatabase.STATES))["version"]
    assert ask(files, "get-schema-version", "xenoovs_state") == version
    permissions = ask(files, "dump", "--format=json", "xenoovs_state", "RBAC_Permission", "update")
    ((updates,),) = json.loads(permissions)["data"]
    assert "certificate_ends_s" in updates[1]
    assert roles_of(files) == ["dpu", "reader"]


def newer(tables: dict[str, Any]) -> None:
    """What a newer version may have: another state, wave, column and table."""
    tables["More"] = {"columns": {"name": {"type": "string"}}}
    for table in {"Fleet", "Service", "Intent", "Dpu", "Dpu_State"} & tables.keys():
        tables[table]["columns"]["more"] = {"type": "string"}
    if "Intent" in tables:
        tables["Intent"]["columns"]["state"]["type"]["key"]["enum"][1].append("paused")
        tables["Dpu"]["columns"]["wave"]["type"]["key"]["maxInteger"] = 9


def test_an_older_version_works_with_a_newer_schema_and_names_a_value_that_it_does_not_know(
    tmp_path: Path, xenoovs: CommandLine
) -> None:
    """An unknown state was an empty one and the store damaged; the controller went on with old rows in silence."""
    config = tmp_path / "services.yaml"
    with ExitStack() as stack:
        with written_by("9.0.0", newer):
            store = stack.enter_context(running_fleet(tmp_path, xenoovs, dpus=1))
        (dpu,) = store.dpus
        store.stop()
        store.start()
        eventually(store.is_well, "all with the newer schema")
        said = store.fleet("drain", "dns", "fips2")
        assert said.status == 0, said.out + said.err

        store.transact({"op": "update", "table": "Dpu", "where": [], "row": {"wave": 9}})
        store.transact({"op": "update", "table": "Intent", "where": [], "row": {"state": "paused"}})
        problem = (
            "the fleet's store is that of a newer version: table Intent, row 1, column state has 'paused', which this "
            "version does not know; upgrade xenoovs on this host"
        )
        for command in (
            ["status"],
            ["top", "--once"],
            ["history"],
            ["reset", "dns", "fips2"],
            ["apply", config, "--yes"],
            ["export", tmp_path / "out"],
        ):
            said = store.fleet(*command)
            assert (said.status, said.err.count(problem), "Traceback" in said.err) == (1, 1, False), said.err
        before = dpu.blocks()
        assert xenoovs("status", "--db", dpu.bridge.ovs.db).status == 0

        store.transact({"op": "update", "table": "Intent", "where": [], "row": {"state": "current"}})
        assert dpu.blocks() == before
        assert store.select("Dpu")[0]["wave"] == 9
        said = store.fleet("reset", "dns", "fips2")
        assert said.status == 0, said.out + said.err
        assert problem in store.end_controller()


@pytest.mark.parametrize(
    ("version", "edit", "message"),
    [
        ("9.0.0", without("Service", "planned"), r"it has schema 9\.0\.0.*but it lacks Service\.planned"),
        ("0.9.0", with_more, r"it has schema 0\.9\.0.*in which there is no RBAC_Role\.more"),
        # A server takes every client of such a database for one that may change all.
        ("9.0.0", without_roles, r"it has schema 9\.0\.0, and this version needs [0-9.]+; .* fleet init"),
        ("0.9.0", unbounded("Fleet", "name"), "cannot be used: .*constraint"),
    ],
    ids=["lacks a column", "would lose a column", "has no roles", "has a row that this version does not allow"],
)
def test_a_schema_that_does_not_fit_stays_as_it_is(
    tmp_path: Path, start: Starts, version: str, edit: Edit, message: str
) -> None:
    files = older_store(tmp_path, StoreDatabase.FLEET, version, edit, has_roles=False)
    with StoreServer(files) as server:
        # The other schemas refuse it too.
        server.transact({"op": "update", "table": "Fleet", "where": [], "row": {"name": ""}})
    before = files.database.read_bytes()
    with pytest.raises(StoreError, match=message):
        start(files)
    assert files.database.read_bytes() == before
    assert not stop_server(files), "it is stopped"


def test_a_server_that_joins_late_says_what_the_store_lacks_and_converts_when_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Starts
) -> None:
    """`fleet server` has ended then, before any comparison of the schemas."""
    members = [parse_server(loopback(number, LATE_NETWORK)) for number in (1, 2)]
    first, second = (server_of(tmp_path / f"s{number}", StoreDatabase.FLEET) for number in (1, 2))
    with written_by("0.9.0", without("Watch", "generation")):
        create_databases(first.directory, name="test", servers=members, local=0)
    create_databases(second.directory, name="test", servers=members, local=1)
    with monkeypatch.context() as patch:
        patch.setattr("xenoovs.store.servers.JOIN_PATIENCE_S", 0.0)
        assert "has not joined its cluster yet" in start(second)
    with StoreServer(first):
        eventually(StoreServer(second).serves, "the second has joined")
        with StoreClient(second.remote, with_intents=True) as client:
            said = r"refuses to send database xenoovs: .*generation is not a valid column.*start `xenoovs fleet server`"
            eventually(lambda: re.search(said, client.connection.reason) is not None, "what is missing, in one reason")
            assert client.view() is None
            assert stop_server(second)
            assert start(second) == ""
            first_view(client)
