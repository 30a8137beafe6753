"""Operators on other hosts: what the role of their port admits, on real servers with TLS, and their commands."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import trustme

from tests.command_line import SMALL_CONFIG, CommandLine, CommandResult
from tests.ovs.certificates import certificates
from tests.ovs.fleets import FleetServers
from tests.ovs.stores import loopback, ovsdb_client
from tests.patience import eventually
from xenoovs.errors import FleetRefused
from xenoovs.fleet.commands.client import FleetPlace, fleet_store
from xenoovs.store.rows import StoreDatabase, schema_text
from xenoovs.store.servers import OvsdbServer, server_of, stop_server
from xenoovs.store.view import Changes, Dpu, FleetView
from xenoovs.switch.certificates import Certificates

NETWORK = 240
SECURITY = Path(__file__).resolve().parents[2] / "SECURITY.md"
TABLES: dict[str, Any] = json.loads(schema_text(StoreDatabase.FLEET))["tables"]
ROWS: dict[str, dict[str, object]] = {
    "Fleet": {"name": "other", "format": 1},
    "Intent": {"number": 1, "state": "refused"},
    "Freeze": {"scope": "fleet"},
    "Action": {"number": 1, "certificate": "bob"},
    "Service": {"name": "dns", "claim": "a"},
    "Staged": {"name": "dns", "claim": "a"},
    "Override": {"service": "dns", "backend": "fips2"},
    "Dpu": {"name": "dpu1", "wave": 3},
    "Watch": {"target": "a"},
    "RBAC_Role": {"name": "other"},
    "RBAC_Permission": {"table": "Service"},
}
"""One of each table, which no operator has written."""


@dataclass
class Gate:
    """A store with a port for operators. `fleet`: of the host of the store."""

    fleet: FleetServers
    remote: str
    reading: str
    states: str
    ann: Certificates
    dpu1: Certificates

    def command(self, *words: object, remote: tuple[str, ...] = (), who: Certificates | None = None) -> CommandResult:
        """What a command says to an operator on another host."""
        tls = who or self.ann
        files = ("--tls-key", tls.key, "--tls-cert", tls.certificate, "--tls-ca", self.dpu1.authority)
        return self.fleet.xenoovs("fleet", "--remote", *(remote or (self.remote,)), *files, *words)

    def refusal(
        self, operation: Mapping[str, object], *, database: str = "xenoovs", who: Certificates | None = None
    ) -> str:
        """Why an operation at the port of operators is refused; empty: it is done, and undone."""
        tls = replace(who or self.ann, authority=self.dpu1.authority)
        said = ovsdb_client(self.remote, tls, "transact", json.dumps([database, operation, {"op": "abort"}]))
        if said.returncode:
            return said.stderr
        first = json.loads(said.stdout)[0]
        return f"{first['error']}: {first['details']}" if "error" in first else ""


@pytest.fixture
def gate(tmp_path: Path, xenoovs: CommandLine) -> Iterator[Gate]:
    fleet_authority, operators = trustme.CA(), trustme.CA()
    server = certificates(fleet_authority, tmp_path, "server")
    dpu1, ann = certificates(fleet_authority, tmp_path, "dpu1"), certificates(operators, tmp_path, "ann")
    store = FleetServers(tmp_path / "store", xenoovs)
    store.create()
    host = loopback(1, NETWORK)
    ports = ["--listen", f"{host}:6661", "--listen-states", f"{host}:6663", "--listen-operators", f"{host}:6664"]
    tls = ["--tls-key", server.key, "--tls-cert", server.certificate, "--tls-ca", server.authority]
    try:
        same = store.fleet("server", *ports, *tls, "--operators-ca", server.authority)
        assert (same.status, "every DPU could change the fleet" in same.err) == (64, True)
        started = store.fleet("server", *ports, *tls, "--operators-ca", ann.authority)
        assert started.status == 0, started.out + started.err
        assert f"operators serves at ssl:{host}:6664" in started.out
        yield Gate(store, f"ssl:{host}:6664", f"ssl:{host}:6661", f"ssl:{host}:6663", ann, dpu1)
    finally:
        stop_server(OvsdbServer(store.directory, "operators"))
        for database in StoreDatabase:
            stop_server(server_of(store.directory, database))


def documented() -> dict[str, tuple[set[str], bool, bool]]:
    """The columns of each table that operators may update, and whether they insert and delete, by SECURITY.md."""
    found = dict[str, tuple[set[str], bool, bool]]()
    for line in SECURITY.read_text().partition("## Who may write what")[2].splitlines():
        if row := re.fullmatch(r"\| `(\w+)` \| (.*) \| (.*) \|", line):
            updates = set(re.findall(r"`(\w+)`", row[2]))
            found[row[1]] = (
                updates if row[2] != "all" else TABLES[row[1]]["columns"].keys(),
                row[3].startswith("yes"),
                "own" in row[3],
            )
    return found


def sample(declared: Any) -> object:
    """A value that a column accepts."""
    if isinstance(declared, str):
        return {"string": "x", "integer": 1, "boolean": True}[declared]
    if "max" in declared:
        return ["map", []] if "value" in declared else ["set", []]
    key = declared["key"]
    return sample(key) if isinstance(key, str) else key["enum"][1][0] if "enum" in key else sample(key["type"])


def test_who_may_write_which_column_is_as_documented(gate: Gate) -> None:
    gate.fleet.transact(
        *({"op": "insert", "table": table, "row": row} for table, row in ROWS.items() if table != "Fleet")
    )
    told = documented()
    assert ROWS.keys() == TABLES.keys() == told.keys()
    for table, (updates, inserts, is_own) in told.items():
        for column, declared in TABLES[table]["columns"].items():
            operation = {"op": "update", "table": table, "where": [], "row": {column: sample(declared["type"])}}
            said = gate.refusal(operation)
            assert (said == "") is (column in updates), (table, column, said)
            assert not said or said.startswith('permission error: RBAC rules for client "ann" role "operator"'), said
        row = {**ROWS[table], "number": 2} if "number" in ROWS[table] else ROWS[table]
        insert: dict[str, object] = {"op": "insert", "table": table, "row": row}
        said = gate.refusal(insert)
        assert ("permission error" not in said) is (inserts and not is_own), (table, said)
        said = gate.refusal({"op": "delete", "table": table, "where": []})
        assert ("permission error" not in said) is (inserts and not is_own), (table, said)
    own: dict[str, object] = {"op": "insert", "table": "Action", "row": {"number": 2, "certificate": "ann"}}
    assert gate.refusal(own) == ""
    report: dict[str, object] = {"op": "insert", "table": "Dpu_State", "row": {"name": "ann"}}
    assert "permission error" in gate.refusal(report, database="xenoovs_state")
    assert "permission error" in gate.refusal(
        {"op": "delete", "table": "Connection", "where": []}, database="Local_Config"
    )
    # The certificate of a DPU is of another authority.
    assert "RBAC" not in gate.refusal(own, who=gate.dpu1)
    assert gate.refusal(own, who=gate.dpu1) != ""


@contextmanager
def config_for_one_dpu(store: FleetServers, directory: Path) -> Iterator[Path]:
    """A config for a fleet that has an active controller and one DPU."""
    config = directory / "services.yaml"
    config.write_text(SMALL_CONFIG)
    store.start_controller()
    try:
        store.wait_active()
        assert store.fleet("add-dpu", "dpu1").status == 0
        yield config
    finally:
        store.kill_controllers()


def test_an_operator_changes_the_fleet_from_another_host_and_administers_nothing(gate: Gate, tmp_path: Path) -> None:
    store = gate.fleet
    with config_for_one_dpu(store, tmp_path) as config:
        config_words = ("apply", config, "--now", "--yes", "--timeout", "1s", "--comment", "first")
        given = gate.command(*config_words)
        assert (given.status, "applied by 0 of 1 DPU" in given.out) == (2, True), given.out + given.err
        said = gate.command("drain", "dns", "fips2", "--yes", "--timeout", "0.1s")
        assert said.status == 2, said.err
        assert gate.command("drain-dpu", "dpu1", "--now", "--yes").status == 0
        assert gate.command("freeze", "--for", "1h", "--comment", "sales").status == 0
        assert (said := gate.command("reset", "dns", "fips2")).status == 1
        assert ": sales; `xenoovs fleet freeze --end`" in said.err
        # A controller lets operators change again, some time later.
        store.controllers[0].send_signal(signal.SIGSTOP)
        Timer(1.0, store.controllers[0].send_signal, [signal.SIGCONT]).start()
        assert gate.command("freeze", "--end").status == 0
        assert (said := gate.command("drain-dpu", "dpu1", "--end", "--now")).status == 0, said.err
        for words in (("add-dpu", "dpu2"), ("set-dpu", "dpu1", "--rack", "r2"), ("forget", "dpu1")):
            refused = gate.command(*words)
            assert (refused.status, "the table in SECURITY.md" in refused.err) == (1, True), refused.err

        # A roll-out is stopped by an operator, who may write no service.
        text = SMALL_CONFIG.replace("30", "50", 1)
        row = {"number": 2, "text": text, "state": "rolling", "soak_s": 3600, "author": "ann"}
        raised = {"op": "mutate", "table": "Fleet", "where": [], "mutations": [["generation", "+=", 1]]}
        store.transact({"op": "insert", "table": "Intent", "row": row}, raised)
        eventually(lambda: bool(store.select("Staged")) and store.select("Fleet")[0]["wave"] == 3, "the wave")
        assert gate.command("pause").status == 0
        assert gate.command("stop", "--comment", "errors").status == 0
        eventually(lambda: not store.select("Staged"), "the end of what is staged")
        assert store.select("Fleet")[0]["wave"] == 0
        states = {each["config"]: each["state"] for each in store.history() if each["config"]}
        assert states == {1: "current", 2: "refused"}

        shown = gate.command("status")
        assert f"read from {gate.remote}" in shown.out
        assert gate.command("server").status == 64

        reading = (gate.reading, "--remote-states", gate.states)
        read = gate.command("history", "-o", "json", remote=reading, who=gate.dpu1)
        entries = json.loads(read.out)["history"]
        assert [(each["action"], each["certificate"]) for each in entries if each["config"] != 2] == [
            ("stop", "ann"),
            ("pause", "ann"),
            ("drain-dpu dpu1 --end", "ann"),
            ("freeze --end", "ann"),
            ("freeze", "ann"),
            ("drain-dpu dpu1", "ann"),
            ("drain dns/fips2", "ann"),
            ("apply", "ann"),
            ("add-dpu dpu1", ""),
        ]
        refused = gate.command("drain", "dns", "fips3", "--yes", remote=reading, who=gate.dpu1)
        assert refused.status == 1, refused.out
        assert store.fleet("status").status == 2


def test_in_a_freeze_the_database_refuses_what_an_operator_changes_by_any_program(gate: Gate, tmp_path: Path) -> None:
    drains, gives = ({"op": "insert", "table": table, "row": ROWS[table]} for table in ("Override", "Intent"))
    takes_out = {"op": "update", "table": "Dpu", "where": [], "row": {"is_out": True}}
    with config_for_one_dpu(gate.fleet, tmp_path):
        assert gate.command("freeze", "--for", "1h").status == 0
        for each in (drains, gives, takes_out):
            eventually(lambda each=each: "permission error" in gate.refusal(each), "the role in a freeze")  # type: ignore[misc]
        stops = {"op": "update", "table": "Intent", "where": [], "row": {"state": "refused", "is_paused": True}}
        assert gate.refusal(stops) == ""
        assert gate.command("freeze", "--end").status == 0
        for each in (drains, gives, takes_out):
            eventually(lambda each=each: gate.refusal(each) == "", "the role after it")  # type: ignore[misc]


@pytest.mark.parametrize("by_command", [True, False])
def test_bug_a_change_that_raced_a_freeze_of_another_program_was_written(gate: Gate, *, by_command: bool) -> None:
    """Other programs than this one may write no generation."""
    row = {"scope": "fleet", "until_ms": int(time.time() * 1000) + 3_600_000, "author": "bob", "reason": "sales"}

    def compute(_: FleetView) -> Changes:
        if by_command:
            assert gate.command("freeze", "--for", "1h").status == 0
        else:
            gate.fleet.transact({"op": "insert", "table": "Freeze", "row": row})
        return Changes(dpus={"dpu1": Dpu("dpu1", frozenset())})

    place = FleetPlace(gate.fleet.directory)
    with fleet_store(place) as store, pytest.raises(FleetRefused, match="the fleet is frozen until"):
        store.change("add-dpu dpu1", compute)
    assert gate.fleet.select("Dpu") == []
    assert [each["action"] for each in gate.fleet.history()] == ["freeze"] * by_command
