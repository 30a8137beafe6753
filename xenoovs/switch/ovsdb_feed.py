"""The ports of all bridges as they change, told by ovsdb-server (RFC 7047) without asking again and again.

One `monitor` of the few columns that matter, over asyncio: nothing to do costs nothing, and cancelling it closes it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from xenoovs.errors import SwitchUnreachable
from xenoovs.switch.api import PortState
from xenoovs.switch.stderr import explain, unreachable

Ports = Mapping[str, Mapping[str, PortState]]
"""By name of bridge and of port."""

_MONITOR = {
    "Bridge": {"columns": ["name", "ports"]},
    "Port": {"columns": ["interfaces"]},
    "Interface": {"columns": ["name", "type", "ofport", "link_state", "mac_in_use", "error"]},
}
_REQUEST = {"method": "monitor", "id": 0, "params": ["Open_vSwitch", "xenoovs", _MONITOR]}
_READ_BYTES = 1 << 16
_SILENCE_S = 10.0
"""So long without a word, ovsdb-server is asked for an echo (RFC 7047, 4.1.11); twice as long, it is given up."""

_Rows = dict[str, dict[str, Mapping[str, Any]]]


async def follow_ports(db: str) -> AsyncIterator[Ports]:
    """The ports at first and after each change, for as long as the connection lasts.

    `db`: as of Endpoint; of a cluster the first server that answers. Raises SwitchUnreachable at its end.
    """
    reader, writer = await _connect(db)
    try:
        writer.write(json.dumps(_REQUEST).encode())
        rows: _Rows = {table: {} for table in _MONITOR}
        async for message in _messages(reader, writer, db):
            if message.get("method") == "echo":
                writer.write(json.dumps({"id": message["id"], "result": message["params"], "error": None}).encode())
                continue
            updates = _updates(message, db)
            if updates is not None:
                _take(rows, updates)
                yield ports_of(rows)
    except OSError as error:
        raise unreachable(db, error.strerror or str(error)) from None
    finally:
        writer.close()


def ports_of(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Ports:
    """Rows of the database by table and id, as the ports of bridges."""
    interfaces = rows["Interface"]
    found: dict[str, dict[str, PortState]] = {}
    for bridge in rows["Bridge"].values():
        members = (rows["Port"].get(port, {}) for port in _set(bridge["ports"]))
        ids = (name for port in members for name in _set(port.get("interfaces", ["set", []])))
        states = [_port(interfaces[name]) for name in ids if name in interfaces]
        found[bridge["name"]] = {state.name: state for state in sorted(states, key=lambda state: state.name)}
    return found


def decode(text: str) -> tuple[list[dict[str, Any]], str]:
    """The whole JSON objects at the start of a text, and the rest: nothing else divides messages (RFC 7047, 4)."""
    decoder, found, position = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (start := _skip_space(text, position)) < len(text):
        try:
            value, position = decoder.raw_decode(text, start)
        except ValueError:
            return found, text[start:]
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is no message")
        found.append(value)
    return found, ""


async def _connect(db: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reason = ""
    for target in db.split(","):
        kind, _, where = target.partition(":")
        try:
            if kind == "unix":
                return await asyncio.open_unix_connection(where)
            host, _, port = where.rpartition(":")
            return await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError as error:
            reason = explain(error.strerror or str(error))
    raise SwitchUnreachable(target=db, reason=reason)


async def _messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, db: str
) -> AsyncIterator[dict[str, Any]]:
    rest, is_asked = "", False
    parts: list[bytes] = []
    while True:
        data = await _read_within(reader, _SILENCE_S)
        if data is None:
            if is_asked:
                raise SwitchUnreachable(target=db, reason="ovsdb-server has stopped answering")
            is_asked = True
            writer.write(b'{"method":"echo","id":"alive","params":[]}')
            continue
        if not data:
            raise SwitchUnreachable(target=db, reason="ovsdb-server has closed the connection")
        is_asked = False
        parts.append(data)
        # Only a closing brace can end a message, and a long one comes in many parts.
        if data.rstrip().endswith(b"}"):
            try:
                whole, rest = decode(rest + b"".join(parts).decode())
            except ValueError as error:
                raise SwitchUnreachable(target=db, reason=f"this is no ovsdb-server: {error}") from None
            parts = []
            for message in whole:
                yield message


async def _read_within(reader: asyncio.StreamReader, timeout_s: float) -> bytes | None:
    """Return what can be read; None: nothing came in time."""
    # Not wait_for(): before Python 3.12 it may swallow a cancellation that comes together with data.
    reading = asyncio.ensure_future(reader.read(_READ_BYTES))
    try:
        await asyncio.wait({reading}, timeout=timeout_s)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()


def _updates(message: Mapping[str, Any], db: str) -> Mapping[str, Any] | None:
    """What changed, by table and row; None: the message is about something else."""
    if message.get("method") == "update":
        updates: Mapping[str, Any] = message["params"][1]
        return updates
    if message.get("id") != _REQUEST["id"]:
        return None
    if message.get("error") is not None:
        raise SwitchUnreachable(target=db, reason=f"ovsdb-server refuses to tell of changes: {message['error']}")
    result: Mapping[str, Any] = message["result"]
    return result


def _take(rows: _Rows, updates: Mapping[str, Any]) -> None:
    for table, changes in updates.items():
        for row, change in changes.items():
            if "new" in change:
                rows[table][row] = change["new"]
            else:
                rows[table].pop(row, None)


def _port(row: Mapping[str, Any]) -> PortState:
    ofport, link = _one(row["ofport"]), _one(row["link_state"])
    return PortState(
        name=row["name"],
        # -1 says that the port could not be made (ovs-vswitchd.conf.db(5), column ofport).
        ofport=ofport if ofport is not None and ofport >= 0 else None,
        type=row["type"] or "system",
        link_up=None if link is None else link == "up",
        mac=_one(row["mac_in_use"]),
        error=_one(row["error"]),
    )


def _set(value: Any) -> Iterator[str]:
    """The ids in a column: one alone stands without a set around it (RFC 7047, 5.1)."""
    kind, content = value
    return iter([content]) if kind == "uuid" else (identity for _, identity in content)


def _one(value: Any) -> Any:
    """An optional value: an empty set, or the value itself."""
    return (value[1][0] if value[1] else None) if isinstance(value, list) and value[0] == "set" else value


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position
