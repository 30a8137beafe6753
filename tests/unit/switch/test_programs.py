"""What programs of Open vSwitch and of iproute2 answer, and an ovsdb-server."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import errno
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.judged import assert_recorded
from tests.patience import PATIENCE_S
from tests.unit.datapath.test_tc import COOKIE
from xenoovs.datapath.database import Database
from xenoovs.errors import CommandMissing, SwitchError, SwitchUnreachable
from xenoovs.switch import ovsdb
from xenoovs.switch.appctl import detrace
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import Ports, decode, follow_ports, has_options, read_database
from xenoovs.switch.tc import dump_filters

_SCRIPT = """#!/bin/sh
case "$*" in
*list-commands*) echo "The available commands are:"; echo "  %(known)s" ;;
"ofproto/detrace ufid:1%(thread)s") echo "duration=1s, n_packets=1, actions=drop" ;;
"ofproto/detrace ufid:1"*) echo "UFID was not found for netdev@ovs-netdev" ;;
*) echo "failed to parse ufid" >&2; exit 2 ;;
esac
"""


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Endpoint(f"unix:{tmp_path}/db.sock", tmp_path)


@pytest.mark.parametrize(
    ("thread", "known", "found"),
    [
        ("pmd=2147483647", "ofproto/detrace UFID [pmd=PMD-ID]", ["1"]),
        ("", "ofproto/detrace UFID [pmd=PMD-ID]", ["1"]),
        ("pmd=3", "ofproto/detrace UFID [pmd=PMD-ID]", ["1"]),
        ("pmd=9", "ofproto/detrace UFID [pmd=PMD-ID]", []),
        ("pmd=2147483647", "ofproto/trace", []),
    ],
    ids=["kernel", "main thread", "polling thread", "gone", "older versions are not asked"],
)
def test_the_thread_that_has_a_megaflow_is_found(
    endpoint: Endpoint, tmp_path: Path, thread: str, known: str, found: list[str]
) -> None:
    script = tmp_path / "ovs-appctl"
    script.write_text(_SCRIPT % {"thread": thread and f" {thread}", "known": known})
    script.chmod(0o755)
    assert list(detrace(endpoint, ["1", "2"], cores=[1, 3])) == found


FILTER = {"protocol": "ip", "pref": 2, "options": {"handle": 1, "in_hw": True, "actions": [{"cookie": COOKIE}]}}

FILTERS = json.dumps([FILTER])
BOND = json.dumps([{"kind": "ingress", "dev": name, "ingress_block": 22} for name in ("bond0", "p0", "p1")])
OF_P0, OF_P1 = (f"_j__s_filter_show_dev_{name}_ingress" for name in ("p0", "p1"))
NO_JSON = "tc printed invalid JSON, as iproute2 before 5.14 does for filters with `police`"
DUMPS: dict[str, tuple[dict[str, str], list[str], int, list[str], tuple[tuple[str, str], ...]]] = {
    "one device is gone": ({OF_P0: FILTERS}, ["p0", "gone"], 1, ["p0"], (("gone", "Cannot find device"),)),
    "one process reads several": ({"_j__s__batch__": f"[]\n{FILTERS}"}, ["p0", "p1"], 1, ["p1"], ()),
    "it leaves out a device": (
        {"_j__s__batch__": FILTERS, OF_P0: "[]", OF_P1: FILTERS},
        ["p0", "p1"],
        1,
        ["p1"],
        (),
    ),
    "devices of a bond share a block": (
        {"_j_qdisc_show": BOND, "_j__s_filter_show_block_22": FILTERS},
        ["p0", "p1"],
        1,
        [],
        (),
    ),
    "invalid JSON": (
        {OF_P0: '[{"options":{"handle":1,"actions":[{"order":1 police 0x1'},
        ["p0"],
        0,
        [],
        (("p0", NO_JSON),),
    ),
}


def _answer(directory: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """A tc that answers by its arguments, blanks as underscores; anything else it refuses."""
    cases = [f"{name}) cat <<'END'\n{text}\nEND\n;;" for name, text in answers.items()]
    refuse = """*) echo "Cannot find device" >&2; exit 1;;"""
    script = directory / "tc"
    script.write_text("\n".join(["#!/bin/sh", """case "$(echo $* | tr ' -' '__')" in""", *cases, refuse, "esac"]))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


@pytest.mark.parametrize(("answers", "devices", "filters", "of_device", "unread"), DUMPS.values(), ids=DUMPS)
def test_filters_of_devices(
    answers: dict[str, str],
    devices: list[str],
    filters: int,
    of_device: list[str],
    unread: tuple[tuple[str, str], ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _answer(tmp_path, monkeypatch, **{"_j_qdisc_show": "[]", **answers})
    dump = dump_filters(devices)
    assert ([device for device, _ in dump.by_device], dump.unread) == (of_device, unread)
    assert ([each.cookie for each in dump.filters], list(dump.by_cookie)) == ([COOKIE] * filters, [COOKIE] * filters)


def test_without_tc_and_with_one_that_knows_no_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandMissing, match="iproute2"):
        dump_filters(["p0"])
    _answer(tmp_path, monkeypatch, _j_qdisc_show="qdisc ingress ffff: dev p0")
    with pytest.raises(SwitchError, match=r"iproute2 4\.19"):
        dump_filters(["p0"])


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

NOTHING: list[Any] = ["set", []]


def interface(name: str, ofport: int, link: Any = "up") -> dict[str, Any]:
    return {"name": name, "type": "", "ofport": ofport, "link_state": link, "error": NOTHING}


FIRST = {
    "Bridge": {"b": {"new": {"name": "br0", "ports": ["set", [["uuid", "q"], ["uuid", "r"]]]}}},
    "Port": {"q": {"new": {"interfaces": ["uuid", "i"]}}, "r": {"new": {"interfaces": ["uuid", "j"]}}},
    "Interface": {"i": {"new": interface("p1", 2)}, "j": {"new": interface("br0", 65534, NOTHING)}},
}
DOWN = {"Interface": {"i": {"old": {"link_state": "up"}, "new": interface("p1", 2, "down")}}}
GONE = {
    "Bridge": {"b": {"old": {}, "new": {"name": "br0", "ports": ["uuid", "r"]}}},
    "Port": {"q": {"old": {}}},
    "Interface": {"i": {"old": {}}},
}


def update(changes: dict[str, Any]) -> dict[str, Any]:
    return {"method": "update", "id": None, "params": ["xenoovs", changes]}


def heard(talk: Talk, directory: Path) -> tuple[list[Ports], str]:
    """Return the ports that were received from such a server, and the error at the end."""

    async def main() -> tuple[list[Ports], str]:
        socket = directory / "db.sock"
        server = await asyncio.start_unix_server(talk, str(socket))
        received: list[Ports] = []
        try:
            async for ports in follow_ports(f"unix:{socket}"):
                received.append(ports)
        except SwitchUnreachable as end:
            return received, str(end)
        finally:
            server.close()
        raise AssertionError("a feed ends by an error alone")

    return asyncio.run(main())


def test_ports_and_their_changes(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.read(65536))
        assert request["method"] == "monitor"
        text = "".join(json.dumps(m) for m in ({"id": 0, "result": FIRST, "error": None}, update(DOWN), update(GONE)))
        for start in range(0, len(text), 7):
            writer.write(text[start : start + 7].encode())
            await writer.drain()
        writer.close()

    received, end = heard(talk, tmp_path)
    assert [{name: port.link_up for name, port in ports["br0"].items()} for ports in received] == [
        {"br0": None, "p1": True},
        {"br0": None, "p1": False},
        {"br0": None},
    ]
    assert received[0]["br0"]["p1"].ofport == 2
    assert "ovsdb-server has closed the connection" in end


def test_an_echo_is_answered(tmp_path: Path) -> None:
    answers: list[Any] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(json.dumps({"method": "echo", "id": "e", "params": [1]}).encode())
        answers.append(json.loads(await reader.read(65536)))
        writer.close()

    assert heard(talk, tmp_path)[0] == []
    assert answers == [{"id": "e", "result": [1], "error": None}]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b'{"id":0,"result":null,"error":"no database"}', "refuses to send its tables: no database"),
        (b"HTTP/1.1 400 }{", "closed the connection"),
        (b"[1]{}", "this is no ovsdb-server"),
        (b'{"id":' + b"[" * 100_000 + b"}", "this is no ovsdb-server"),
        (b'\xff{"id":0}', "this is no ovsdb-server"),
        (b'{"id":0,"result":[],"error":null}', "this is no ovsdb-server"),
        (b'{"id":0,"result":{"Controller":{"c":{"new":{}}}},"error":null}', "this is no ovsdb-server"),
        (b'{"id":0,"result":{"Bridge":{"b":{"new":{"name":1,"ports":[]}}}},"error":null}', "this is no ovsdb-server"),
        (b'{"method":"echo"}', "this is no ovsdb-server"),
    ],
)
def test_others_than_ovsdb_server(sent: bytes, reason: str, tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(sent)
        writer.close()

    assert reason in heard(talk, tmp_path)[1]


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(SwitchUnreachable):
        asyncio.run(anext(follow_ports(f"unix:{tmp_path}/none")))  # type: ignore[arg-type]


def test_messages_stand_side_by_side() -> None:
    assert decode(' {"a":1}{"b":"}"} {"c') == ([{"a": 1}, {"b": "}"}], '{"c')
    assert decode("") == ([], "")


def test_cancelled_while_data_come_it_ends(tmp_path: Path) -> None:
    """`asyncio.wait_for` of Python 3.11 swallowed a cancellation that came together with data."""

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(json.dumps(update({})).encode())
            await asyncio.sleep(0)

    async def follow() -> None:
        async for _ in follow_ports(f"unix:{tmp_path}/db.sock"):
            pass

    async def main() -> None:
        server = await asyncio.start_unix_server(talk, f"{tmp_path}/db.sock")
        for turns in range(50):
            task = asyncio.create_task(follow())
            await asyncio.sleep(0.002)
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
            assert done
            assert task.cancelled()
        server.close()

    asyncio.run(main())


TABLES: dict[str, dict[str, Any]] = {
    "Open_vSwitch": {
        "s": {
            "bridges": ["uuid", "b"],
            "datapath_types": ["set", ["dummy", "netdev"]],
            "other_config": ["map", [["tc-policy", "skip_sw"], ["hw-offload", "true"], ["max-idle", "20000"]]],
            "ovs_version": NOTHING,
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
            **{"sflow": ["uuid", "x"], "ipfix": NOTHING, "netflow": ["uuid", "y"], "mirrors": ["uuid", "m"]},
        }
    },
    "Port": {"o1": {"interfaces": ["uuid", "i1"]}, "o2": {"interfaces": ["uuid", "i2"], "name": "p1"}},
    "Interface": {
        "i1": {
            **{"name": "p0", "type": "", "ofport": -1, "link_state": NOTHING, "mtu": NOTHING},
            "error": "could not open network device p0 (No such device)",
        },
        "i2": {
            **{"name": "p1", "type": "dummy", "ofport": 2, "link_state": "up", "error": NOTHING, "mtu": 1500},
            "mac_in_use": "aa:55:aa:55:00:01",
        },
    },
    "Controller": {
        "c1": {"target": "tcp:192.0.2.1:6653", "is_connected": True, "role": "master"},
        "c2": {"target": "tcp:192.0.2.2:6653", "is_connected": False, "role": NOTHING},
    },
    "Mirror": {"m": {"name": "m0", "output_port": ["uuid", "o2"], "output_vlan": NOTHING, "snaplen": 64}},
}


def read(directory: Path, tables: dict[str, dict[str, Any]]) -> Database:
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
            answer = json.dumps({"id": request["id"], "result": rows, "error": None}).encode()
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


def test_the_whole_database_and_the_columns_of_the_fork(tmp_path: Path, *, update_golden: bool) -> None:
    fork = copy.deepcopy(TABLES)
    fork["Open_vSwitch"]["s"] |= {"doca_initialized": True, "doca_version": "3.3.0040"}
    shown = {}
    for title, tables in {"Open vSwitch": TABLES, "the fork": fork}.items():
        database = read(tmp_path, tables)
        fields = {each.name: getattr(database, each.name) for each in dataclasses.fields(database)}
        fields |= {"has_doca": database.has_doca, "bridges": [bridge.name for bridge in database.bridges]}
        for bridge in database.bridges:
            fields |= {each.name: getattr(bridge, each.name) for each in dataclasses.fields(bridge)}
        shown[title] = "\n".join(f"{name}: {value!r}" for name, value in fields.items())
        (tmp_path / "db.sock").unlink()
    assert_recorded("parsed/database.txt", shown, update=update_golden)


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


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"method":"echo","id":1,"params":[]}', "does not answer in time"),
        (b'{"method":"stolen","params":[]}', "does not answer in time"),
        (b"{", "sends a message of more than 1 MiB"),
    ],
)
def test_bug_a_server_that_never_stopped_talking_was_read_for_ever(
    message: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if message == b"{":
        monkeypatch.setattr(ovsdb, "_LONGEST_MESSAGE_BYTES", 1 << 20)

    def talk() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(message * 1000)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "db.sock"))
        listener.listen()
        server = threading.Thread(target=talk)
        server.start()
        with pytest.raises(SwitchUnreachable, match=reason):
            read_database(Endpoint(f"unix:{tmp_path}/db.sock", tmp_path), timeout_s=0.5)
        server.join(PATIENCE_S)
        assert not server.is_alive()


@pytest.mark.parametrize("rows", ["5", '{"a":1}', "[5]", '[{"rows":5}]', '[{"rows":[{"options":["map",[["psk"]]]}]}]'])
def test_bug_an_answer_of_another_form_to_a_transaction_was_a_traceback(rows: str, tmp_path: Path) -> None:
    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(f'{{"id":1,"result":{rows},"error":null}}'.encode())

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "db.sock"))
        listener.listen()
        server = threading.Thread(target=talk)
        server.start()
        with pytest.raises(SwitchUnreachable, match="no ovsdb-server"):
            has_options(Endpoint(f"unix:{tmp_path}/db.sock", tmp_path), "p0", {})
        server.join()
