"""`fleet init`, `fleet server` and `fleet relay`: from nothing to a store that serves, and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import CommandLine, CommandResult
from tests.ovs.stores import first_view, loopback, ovsdb_client, service, wait_generation
from tests.patience import PATIENCE_S, eventually
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import OvsdbServer, is_running, server_of, stop_server
from xenoovs.store.view import Changes

Fleet = Callable[..., CommandResult]
NETWORK = 240


@pytest.fixture
def fleet(xenoovs: CommandLine) -> Iterator[Fleet]:
    """Runs `xenoovs fleet --directory DIRECTORY COMMAND`; what it starts ends with the test."""
    with ExitStack() as stack:

        def run(command: str, directory: Path, *options: object) -> CommandResult:
            for name in (*(database.value for database in StoreDatabase), "relay"):
                stack.callback(stop_server, OvsdbServer(directory, name))
            return xenoovs("fleet", "--directory", directory, command, *options)

        yield run


def test_a_store_of_one_server_from_init_to_stop(fleet: Fleet, tmp_path: Path) -> None:
    directory, host = tmp_path / "store", loopback(1, NETWORK)
    ports = ("--listen", f"{host}:6661", "--listen-states", f"{host}:6663")
    made = fleet("init", directory, "--name", "edge")
    assert (made.status, made.err) == (0, "")
    assert "created the databases of fleet edge" in made.out
    again = fleet("init", directory)
    assert again.status == 1
    assert "xenoovs.db exists already and stays as it is" in again.err
    started = fleet("server", directory, *ports)
    assert started.status == 0
    assert f"{host}:6663 has no TLS: every user of this host can report for any DPU" in started.err
    assert f"xenoovs serves at tcp:{host}:6661" in started.out
    assert f"xenoovs_state serves at tcp:{host}:6663" in started.out
    relay = OvsdbServer(tmp_path / "relay", "relay")

    def start_relay() -> None:
        said = fleet("relay", relay.directory, "--from", f"tcp:{host}:6661", "--listen", f"{host}:6662")
        assert (said.status, said.err) == (0, "")

    start_relay()
    os.kill(int(relay.pid.read_text()), signal.SIGKILL)
    eventually(lambda: not is_running(relay), "its end")
    start_relay()
    with StoreClient(server_of(directory, StoreDatabase.FLEET).remote, with_intents=True) as writer:
        assert first_view(writer).name == "edge"
        assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
        with StoreClient(f"tcp:{host}:6662") as reader:
            assert set(wait_generation(reader, 1).services) == {"dns"}
    twice = fleet("server", directory, *ports)
    assert twice.status == 1
    assert "runs already" in twice.err
    assert fleet("relay", tmp_path / "relay", "--stop").out == "stopped relay\n"
    assert fleet("server", directory, "--stop").out == "stopped xenoovs\nstopped xenoovs_state\n"
    assert "xenoovs was not running" in fleet("server", directory, "--stop").out


@dataclass(frozen=True)
class Served:
    """A store of one server. `ports`: the options of `fleet server` for its ports at `host`."""

    directory: Path
    host: str
    ports: tuple[str, ...]


@pytest.fixture
def served(fleet: Fleet, tmp_path: Path) -> Served:
    directory, host = tmp_path / "store", loopback(1, NETWORK + 4)
    ports = ("--listen", f"{host}:6661", "--listen-states", f"{host}:6663")
    assert fleet("init", directory).status == fleet("server", directory, *ports).status == 0
    return Served(directory, host, ports)


def test_a_port_in_use_is_reported_and_nothing_stays_running(fleet: Fleet, served: Served, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert fleet("init", other).status == 0
    said = fleet("server", other, *served.ports)
    assert (said.status, f"tcp:{served.host}:6661 is in use" in said.err) == (1, True)
    assert fleet("server", other, "--stop").out == "xenoovs was not running\nxenoovs_state was not running\n"


def test_a_server_that_died_is_started_beside_the_other_one_and_one_that_hangs_is_not_reported_as_stopped(
    fleet: Fleet, served: Served
) -> None:
    """`fleet status` suggests this command, which refused because the other one ran."""
    one, other = (server_of(served.directory, database) for database in StoreDatabase)
    before = other.pid.read_text()
    os.kill(int(one.pid.read_text()), signal.SIGKILL)
    eventually(lambda: not is_running(one), "the end")
    said = fleet("server", served.directory, *served.ports)
    assert said.status == 0
    assert said.out.splitlines()[0].startswith(f"xenoovs serves at tcp:{served.host}:6661")
    assert said.out.splitlines()[1] == "xenoovs_state runs already"
    assert other.pid.read_text() == before
    pid = int(one.pid.read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        # Bug: `xenoovs was not running`, with exit status 0.
        said = fleet("server", served.directory, "--stop")
        assert (said.status, said.out) == (1, "stopped xenoovs_state\n")
        assert f"xenoovs (process {pid}) does not answer, as with a disk that hangs; it ends as soon as" in said.err
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not is_running(one), "its end")


NOBODY = 65534
_PATIENT = f"--timeout={PATIENCE_S:.0f}"


def as_nobody(*argv: object) -> subprocess.CompletedProcess[str]:
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.run([*drop, *map(str, argv)], capture_output=True, text=True, check=False)


def transacted(remote: str, database: str, *operations: object) -> bool:
    """Whether a user without rights changes a database."""
    done = as_nobody("ovsdb-client", _PATIENT, "transact", remote, json.dumps([database, *operations]))
    return done.returncode == 0 and "error" not in done.stdout


def test_bug_any_user_let_the_server_of_root_delete_a_file_and_listen_everywhere(
    fleet: Fleet, served: Served, tmp_path: Path
) -> None:
    """The port of the states without TLS served `Local_Config` without a role, by default."""
    tmp_path.parent.chmod(0o755)
    host = served.host
    victim = tmp_path / "victim"
    victim.write_text("of root")
    victim.chmod(0o600)
    schema = Path("/usr/share/openvswitch/vswitch.ovsschema")
    for remote in (f"tcp:{host}:6661", f"tcp:{host}:6663"):
        for target in (f"punix:{victim}", f"ptcp:6699:{loopback(2, NETWORK + 4)}"):
            made = {"op": "insert", "table": "Connection", "uuid-name": "c", "row": {"target": target}}
            ids = ["set", [["named-uuid", "c"]]]
            used = {"op": "mutate", "table": "Config", "where": [], "mutations": [["connections", "insert", ids]]}
            assert not transacted(remote, "Local_Config", made, used)
    # Whoever reads the services changes none, neither at the server nor at a relay, also if the relay is theirs.
    relay, store = OvsdbServer(tmp_path / "relay", "relay"), server_of(served.directory, StoreDatabase.FLEET)
    ports = ("--from", f"tcp:{host}:6661", "--listen", f"{host}:6662")
    assert fleet("relay", relay.directory, *ports).status == 0
    before = ovsdb_client(store.remote, None, "dump", "xenoovs").stdout
    for operation in (
        {"op": "update", "table": "Fleet", "where": [], "row": {"generation": 99, "name": "mine"}},
        {"op": "mutate", "table": "Fleet", "where": [], "mutations": [["generation", "+=", 1]]},
        {"op": "insert", "table": "Dpu", "row": {"name": "dpu3", "wave": 1}},
        {"op": "insert", "table": "RBAC_Permission", "row": {"table": "Service"}},
        {"op": "delete", "table": "RBAC_Role", "where": []},
    ):
        assert not any(transacted(f"tcp:{host}:{port}", "xenoovs", operation) for port in (6661, 6662))
        said = ovsdb_client(relay.remote, None, "transact", json.dumps(["xenoovs", operation]))
        assert "error" in said.stdout or said.returncode != 0, said
    for reader in (f"tcp:{host}:6661", f"tcp:{host}:6662"):
        assert not transacted(reader, "Local_Config", {"op": "delete", "table": "Connection", "where": []})
        assert as_nobody("ovsdb-client", _PATIENT, "convert", reader, schema).returncode != 0
    assert ovsdb_client(store.remote, None, "dump", "xenoovs").stdout == before
    states = as_nobody("ovsdb-client", _PATIENT, "list-dbs", f"tcp:{host}:6663").stdout.split()
    assert states == ["_Server", "xenoovs_state"]
    assert victim.read_text() == "of root"


def test_without_tls_nothing_listens_but_sockets_of_their_owner(fleet: Fleet, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    assert fleet("init", directory).status == 0
    said = fleet("server", directory)
    assert (said.status, said.err) == (0, "")
    # A directory that others may enter must not open them.
    tmp_path.parent.chmod(0o755)
    directory.chmod(0o755)
    for files in (server_of(directory, database) for database in StoreDatabase):
        assert f"{files.name} serves at {files.remote}" in said.out
        control = subprocess.run(
            ["ovs-appctl", "-t", files.control, "ovsdb-server/list-remotes"], capture_output=True, text=True, check=True
        )
        assert control.stdout.split() == [f"p{files.remote}"]
        for path in (files.socket, files.control):
            assert path.is_socket()
            assert path.stat().st_mode & 0o077 == 0
        assert as_nobody("ovsdb-client", _PATIENT, "list-dbs", files.remote).returncode != 0
