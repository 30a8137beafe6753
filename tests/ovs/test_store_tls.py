"""The store of a fleet beyond one host: TLS with certificates on both sides, and what a DPU may write."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from tests.ovs.certificates import certificates
from tests.ovs.stores import StoreServer, first_view, loopback, ovsdb_client, service, transact, wait_generation
from tests.patience import eventually
from xenoovs.store.client import CommitOutcome, DpuStatusClient, DpuStatusReader, StoreClient
from xenoovs.store.rows import DPU_ROLE, READER_ROLE, StoreDatabase, schema_text
from xenoovs.store.servers import (
    StorePort,
    create_databases,
    server_of,
)
from xenoovs.store.view import Changes, DpuStatus
from xenoovs.switch.certificates import Certificates

ROOT = Path(__file__).resolve().parents[2]
NETWORK = 230
READ_PORT, STATE_PORT = 6661, 6663


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def dpu1(authority: trustme.CA, tmp_path: Path) -> Certificates:
    return certificates(authority, tmp_path, "dpu1")


def tls_server(directory: Path, database: StoreDatabase, port: int, tls: Certificates) -> StoreServer:
    ports = [
        StorePort(loopback(1, NETWORK), port, READER_ROLE if database is StoreDatabase.FLEET else DPU_ROLE, is_tls=True)
    ]
    return StoreServer(server_of(directory / "store", database), database, ports, tls=tls)


@pytest.fixture
def states(authority: trustme.CA, tmp_path: Path) -> Iterator[StoreServer]:
    create_databases(tmp_path / "store", name="test")
    with tls_server(tmp_path, StoreDatabase.STATES, STATE_PORT, certificates(authority, tmp_path, "server")) as server:
        yield server


def refusal(answers: list[dict[str, object]]) -> str:
    """Why the last of some operations was refused; an empty text: it was not."""
    last = answers[-1] or {}
    return f"{last['error']}: {last.get('details', '')}" if "error" in last else ""


NAMED_1, NAMED_2 = [["name", "==", "dpu1"]], [["name", "==", "dpu2"]]
OTHER = {"target": "ptcp:6699:127.0.0.1"}
OPENED: dict[str, object] = {"op": "insert", "table": "Connection", "row": OTHER, "uuid-name": "open"}
IDS = [["connections", "insert", ["named-uuid", "open"]]]
OTHER_PORT: tuple[dict[str, object], ...] = (OPENED, {"op": "mutate", "table": "Config", "where": [], "mutations": IDS})
"""Operations on `Local_Config`, which a server serves at each of its ports."""


def status_operation(kind: str, **more: object) -> dict[str, object]:
    return {"op": kind, "table": "Dpu_State", **more}


def test_a_dpu_changes_no_row_but_its_own_opens_no_port_and_converts_nothing(
    states: StoreServer, dpu1: Certificates, tmp_path: Path
) -> None:
    rows = [status_operation("insert", row={"name": name}) for name in ("dpu1", "dpu2")]
    transact(states.files.remote, None, *rows, database="xenoovs_state")
    before = ovsdb_client(states.files.remote, None, "dump", "xenoovs_state").stdout
    operations: tuple[dict[str, object], ...] = (
        status_operation("insert", row={"name": "dpu3"}),
        status_operation("update", where=NAMED_2, row={"applied": 9}),
        status_operation("update", where=NAMED_1, row={"name": "dpu3"}),
        status_operation("update", where=[], row={"applied": 9}),
        status_operation("mutate", where=NAMED_2, mutations=[["applied", "+=", 1]]),
        status_operation("delete", where=NAMED_2),
        status_operation("delete", where=[]),
        {"op": "insert", "table": "RBAC_Permission", "row": {"table": "Dpu_State"}},
        {"op": "update", "table": "RBAC_Permission", "where": [], "row": {"authorization": ["set", [""]]}},
        {"op": "delete", "table": "RBAC_Role", "where": []},
    )
    for operation in operations:
        refused = refusal(transact(states.remote, dpu1, operation, database="xenoovs_state"))
        assert refused.startswith('permission error: RBAC rules for client "dpu1" role "dpu" prohibit'), operation
    without_role: dict[str, object] = {"op": "update", "table": "Connection", "where": [], "row": {"role": ""}}
    for made in (OTHER_PORT, (without_role,)):
        said = transact(states.remote, dpu1, *made, database="Local_Config")
        assert any((each or {}).get("error") == "permission error" for each in said), said
    schema = tmp_path / "schema"
    schema.write_text(schema_text(StoreDatabase.STATES).replace("RBAC_Role", "Other"))
    said_to_convert = ovsdb_client(states.remote, dpu1, "convert", str(schema))
    assert said_to_convert.returncode != 0
    assert ovsdb_client(states.files.remote, None, "dump", "xenoovs_state").stdout == before


def test_a_dpu_writes_its_own_row_and_under_another_name_is_told_why(states: StoreServer, dpu1: Certificates) -> None:
    with DpuStatusReader(states.files.remote) as reader, DpuStatusClient(states.remote, tls=dpu1) as writer:
        writer.put(DpuStatus("dpu2"))
        eventually(lambda: "the name of a DPU must be the CN" in writer.connection.problem, "the refusal")
        assert 'the status of dpu2: RBAC rules for client "dpu1"' in writer.connection.problem
        status = DpuStatus("dpu1", "1.2", 1, 5, 7)
        writer.put(status)
        eventually(lambda: reader.statuses() == {"dpu1": status}, "its row")
        later = replace(status, applied=8, error="no port", drift={"dns": "ab"}, down=frozenset({"x"}))
        writer.put(later)
        eventually(lambda: reader.statuses() == {"dpu1": later}, "its row changes")
        eventually(lambda: writer.connection.problem == "", "its own name is taken")
    deleted = transact(states.remote, dpu1, status_operation("delete", where=NAMED_1), database="xenoovs_state")
    assert deleted == [{"count": 1}]


def test_nobody_comes_in_without_a_certificate_of_the_authority(
    states: StoreServer, authority: trustme.CA, tmp_path: Path
) -> None:
    port = states.listen[0]
    stranger = certificates(trustme.CA(), tmp_path, "stranger")
    authority.cert_pem.write_to_path(stranger.authority)
    with DpuStatusClient(states.remote, tls=stranger) as writer:
        writer.put(DpuStatus("stranger"))
        eventually(lambda: "TLS failed" in writer.connection.reason, "the reason")
    context = ssl.create_default_context(cafile=str(stranger.authority))
    context.check_hostname = False
    echo = b'{"method":"echo","params":[],"id":1}'
    for wrap in (True, False):
        with socket.create_connection((port.host, port.port)) as sock, suppress(OSError):
            said = b""
            secure = context.wrap_socket(sock) if wrap else sock
            secure.sendall(echo)
            said = secure.recv(100)
        assert said == b""
    rows = transact(
        states.files.remote, None, {"op": "select", "table": "Dpu_State", "where": []}, database="xenoovs_state"
    )
    assert rows == [{"rows": []}]


def test_a_handshake_error_that_the_library_raises_is_told(
    states: StoreServer, dpu1: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library 3.1 of Debian 12 raises it, and the client never tried another server."""

    def fail(_stream: object) -> int:
        raise ssl.SSLCertVerificationError(1, "certificate verify failed")

    monkeypatch.setattr("ovs.stream.SSLStream.connect", fail)
    with DpuStatusClient(states.remote, tls=dpu1) as writer:
        eventually(lambda: "TLS failed" in writer.connection.reason, "the reason")


def test_certificates_of_the_guide_let_no_dpu_pose_as_the_store(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/how-to/fleet-set-up.md").read_text(), re.DOTALL)
    (recipe,) = (block for block in blocks if "openssl req -x509" in block)
    subprocess.run(["sh", "-e", "-c", recipe], cwd=tmp_path, check=True, capture_output=True)
    made = {
        name: Certificates(tmp_path / f"{name}-key.pem", tmp_path / f"{name}-cert.pem", tmp_path / "ca.pem")
        for name in ("store1", "dpu1")
    }
    create_databases(tmp_path / "store", name="test")
    for name, is_trusted in (("store1", True), ("dpu1", False)):
        with tls_server(tmp_path, StoreDatabase.FLEET, READ_PORT, made[name]) as server:
            with StoreClient(server.remote, tls=made["dpu1"]) as reader:
                if is_trusted:
                    first_view(reader)
                else:
                    eventually(lambda: "TLS failed" in reader.connection.reason, "the refusal")
            relayed = ovsdb_client(server.remote, made["store1"], "list-dbs")
            assert (relayed.returncode == 0) is is_trusted, relayed


@pytest.mark.parametrize("whose", ["server", "agent"])
def test_a_certificate_that_has_ended_is_named_and_its_successor_used_without_a_restart(
    tmp_path: Path, whose: str
) -> None:
    authority = trustme.CA()
    ended = datetime.now(timezone.utc) - timedelta(days=1)
    made = {
        name: certificates(authority, tmp_path, name, not_after=ended if name == whose else None)
        for name in ("server", "agent")
    }
    (tmp_path / "new").mkdir()
    renewed = certificates(authority, tmp_path / "new", whose)
    create_databases(tmp_path / "store", name="test")
    with (
        tls_server(tmp_path, StoreDatabase.FLEET, READ_PORT, made["server"]) as server,
        StoreClient(server.files.remote, with_intents=True) as writer,
        StoreClient(server.remote, tls=made["agent"]) as agent,
    ):
        first_view(writer)
        assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
        eventually(lambda: "does not accept the certificate" in agent.connection.reason, "the reason")
        assert agent.view() is None
        for old, new in ((made[whose].key, renewed.key), (made[whose].certificate, renewed.certificate)):
            shutil.copy(new, old)
        assert set(wait_generation(agent, 1).services) == {"dns"}
