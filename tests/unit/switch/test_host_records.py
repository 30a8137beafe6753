"""The database as ovsdb-server 3.1.0 sends it (recorded, with fewer columns), and the columns of NVIDIA's fork."""

from __future__ import annotations

import copy
import errno
import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from xenoovs.datapath.database import BridgeState, Controller, Database, Mirror, PortState
from xenoovs.errors import SwitchUnreachable
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import read_database

NONE: list[Any] = ["set", []]
TABLES: dict[str, dict[str, Any]] = {
    "Open_vSwitch": {
        "s": {
            "bridges": ["uuid", "b"],
            "datapath_types": ["set", ["dummy", "netdev"]],
            "other_config": ["map", [["tc-policy", "skip_sw"], ["hw-offload", "true"], ["max-idle", "20000"]]],
            "ovs_version": NONE,
        }
    },
    "Bridge": {
        "b": {
            "name": "ovsbr1",
            "controller": ["set", [["uuid", "c2"], ["uuid", "c1"]]],
            "datapath_type": "dummy",
            "datapath_id": "0000c470bda056ac",
            "fail_mode": "secure",
            "protocols": "OpenFlow14",
            "ports": ["set", [["uuid", "o2"], ["uuid", "o1"], ["uuid", "gone"]]],
            **{"sflow": ["uuid", "x"], "ipfix": NONE, "netflow": ["uuid", "y"], "mirrors": ["uuid", "m"]},
        }
    },
    "Port": {"o1": {"interfaces": ["uuid", "i1"]}, "o2": {"interfaces": ["uuid", "i2"], "name": "p1"}},
    "Interface": {
        "i1": {
            **{"name": "p0", "type": "", "ofport": -1, "link_state": NONE, "mac_in_use": NONE, "mtu": NONE},
            "error": "could not open network device p0 (No such device)",
        },
        "i2": {
            **{"name": "p1", "type": "dummy", "ofport": 2, "link_state": "up", "error": NONE, "mtu": 1500},
            "mac_in_use": "aa:55:aa:55:00:01",
        },
    },
    "Controller": {
        "c1": {"target": "tcp:192.0.2.1:6653", "is_connected": True, "role": "master"},
        "c2": {"target": "tcp:192.0.2.2:6653", "is_connected": False, "role": NONE},
    },
    "Mirror": {"m": {"name": "m0", "output_port": ["uuid", "o2"], "output_vlan": NONE, "snaplen": 64}},
}


def read(directory: Path, tables: dict[str, dict[str, Any]], *, error: str | None = None) -> Database:
    """What is read from a server with these tables."""
    path = directory / "db.sock"
    rows = {table: {key: {"new": row} for key, row in of_table.items()} for table, of_table in tables.items()}

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            request = json.loads(connection.recv(65536))
            assert (request["method"], list(request["params"][2])) == ("monitor", list(TABLES))
            connection.sendall(b'{"method":"echo","id":"e","params":[]}')
            assert json.loads(connection.recv(65536)) == {"id": "e", "result": [], "error": None}
            answer = json.dumps(
                {"id": request["id"], "result": rows if error is None else None, "error": error}
            ).encode()
            for start in range(0, len(answer), 100):
                connection.sendall(answer[start : start + 100])

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        try:
            return read_database(Endpoint(f"unix:{path}", directory))
        finally:
            server.join()


def test_the_whole_database(tmp_path: Path) -> None:
    database = read(tmp_path, TABLES)
    assert database.config == {"hw-offload": "true", "max-idle": "20000", "tc-policy": "skip_sw"}
    assert database.datapath_types == ("dummy", "netdev")
    assert database.bridges == (
        BridgeState(
            "ovsbr1",
            (
                PortState("p0", error="could not open network device p0 (No such device)"),
                PortState("p1", 2, "dummy", link_up=True, mac="aa:55:aa:55:00:01", mtu=1500),
            ),
            datapath_type="dummy",
            datapath_id="0000c470bda056ac",
            fail_mode="secure",
            controllers=(
                Controller("tcp:192.0.2.1:6653", is_connected=True, role="master"),
                Controller("tcp:192.0.2.2:6653"),
            ),
            hw_offload=True,
            max_idle_ms=20_000,
            exporters=("sflow", "netflow"),
            mirrors=(Mirror("m0", "p1", snaplen=64),),
        ),
    )


def test_upstream_has_no_doca(tmp_path: Path) -> None:
    assert not read(tmp_path, TABLES).has_doca


def test_the_columns_of_the_fork(tmp_path: Path) -> None:
    fork = copy.deepcopy(TABLES)
    fork["Open_vSwitch"]["s"] |= {"doca_initialized": True, "doca_version": "3.3.0040"}
    database = read(tmp_path, fork)
    assert (database.doca_initialized, database.doca_version, database.has_doca) == (True, "3.3.0040", True)


def test_a_database_without_bridges(tmp_path: Path) -> None:
    assert read(tmp_path, {"Open_vSwitch": TABLES["Open_vSwitch"]}).bridges == ()


def test_a_database_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(SwitchUnreachable, match="refuses to send its tables: no database"):
        read(tmp_path, {}, error="no database")


def test_a_full_queue_of_connections_is_a_database_that_does_not_answer(tmp_path: Path) -> None:
    path = str(tmp_path / "db.sock")
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        is_full = False
        while not is_full:
            waiting = sockets.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            is_full = waiting.connect_ex(path) == errno.EAGAIN
        with pytest.raises(SwitchUnreachable, match="does not answer in time"):
            read_database(Endpoint(f"unix:{path}", tmp_path), timeout_s=0.2)
