"""Messages of ovsdb-server in any pieces, and how they are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from xenoovs.errors import SwitchUnreachable
from xenoovs.switch.ovsdb import Ports, decode, follow_ports

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

NOTHING: list[Any] = ["set", []]


def interface(name: str, ofport: int, link: Any = "up") -> dict[str, Any]:
    return {"name": name, "type": "", "ofport": ofport, "link_state": link, "mac_in_use": NOTHING, "error": NOTHING}


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
    ],
)
def test_others_than_ovsdb_server(sent: bytes, reason: str, tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(sent)
        writer.close()

    assert reason in heard(talk, tmp_path)[1]


def test_messages_stand_side_by_side() -> None:
    assert decode(' {"a":1}{"b":"}"} {"c') == ([{"a": 1}, {"b": "}"}], '{"c')
    assert decode("") == ([], "")


def test_no_server(tmp_path: Path) -> None:
    async def main() -> None:
        async for _ in follow_ports(f"unix:{tmp_path}/none"):
            pass

    with pytest.raises(SwitchUnreachable):
        asyncio.run(main())


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
