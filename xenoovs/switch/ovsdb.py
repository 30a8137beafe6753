"""The database of Open vSwitch (ovs-vswitchd.conf.db(5)), read once or followed, by the protocol of RFC 7047.

Both use one `monitor` request: its answer has the tables now, and updates follow. Without a list of columns it has
every column of this Open vSwitch, also those of forks.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from xenoovs.datapath.database import BridgeState, Controller, Database, Mirror, PortState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.ovn import (
    INSTALLED,
    LOCALNET,
    LogicalFlow,
    OvnChassis,
    chassis_of,
    parse_logical_flows,
    use_of,
)
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, InterfaceMissing, SwitchUnreachable
from xenoovs.switch.endpoint import Endpoint, address_of, connected_to
from xenoovs.switch.process import run
from xenoovs.switch.stderr import explain, unreachable
from xenoovs.switch.tape import NO_ANSWER, asked, is_taped, number_of

if TYPE_CHECKING:
    import asyncio

DEFAULT_TIMEOUT_S = 10.0

T = TypeVar("T")

Ports = Mapping[str, Mapping[str, PortState]]
"""By name of bridge and of port."""

Tables = dict[str, dict[str, dict[str, Any]]]
"""Rows by table and id, with decoded columns."""

_TABLES = ("Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Mirror")
_EXPORTERS = ("sflow", "ipfix", "netflow")
"""Columns of table Bridge."""
_PORT_COLUMNS = {
    "Bridge": ["name", "ports"],
    "Port": ["interfaces"],
    "Interface": ["name", "type", "options", "ofport", "link_state", "error", "bfd_status"],
}
"""The columns for `follow_ports`: with all columns, each change of a counter would be an update."""

_REQUEST_ID = 0
_READ_BYTES = 1 << 16
_LONGEST_MESSAGE_BYTES = 1 << 28
"""The tables of a thousand ports have some 5 MB."""
_SILENCE_S = 10.0
"""After this silence we send an echo request (RFC 7047, 4.1.11); after twice the time we end the connection."""


def read_bridges(endpoint: Endpoint, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[BridgeState, ...]:
    """Return all bridges, sorted by name. Raises what `read_database` raises."""
    return read_database(endpoint, timeout_s=timeout_s).bridges


def read_database(endpoint: Endpoint, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Database:
    """Return the contents of the database. Raises SwitchUnreachable, also if no answer comes within `timeout_s`."""
    if not is_taped():
        tables = _read_tables(endpoint, timeout_s)
        with _well_formed(endpoint.db):
            return database_of(tables)
    text = asked(("ovsdb-client", "dump", endpoint.db), lambda: json.dumps(_read_tables(endpoint, timeout_s), indent=1))
    if text is None:
        raise SwitchUnreachable(target=endpoint.db, reason=NO_ANSWER)
    with _well_formed(endpoint.db, otherwise="the record does not have its tables as JSON"):
        tables = _tupled(json.loads(text))
        return database_of({table: tables.get(table, {}) for table in _TABLES})


@contextmanager
def _well_formed(
    db: str, *, otherwise: str = "this is no ovsdb-server of Open vSwitch: its messages have another form"
) -> Iterator[None]:
    """Raise SwitchUnreachable, which quotes no message, if a message or a table has another form than the context
    expects."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise SwitchUnreachable(target=db, reason=otherwise) from None


def _tupled(value: Any) -> Any:
    """Return a JSON value with tuples for lists, as `_decoded` does."""
    if isinstance(value, dict):
        return {key: _tupled(content) for key, content in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _read_tables(endpoint: Endpoint, timeout_s: float) -> Tables:
    tables: Tables = {table: {} for table in _TABLES}

    def take(message: Mapping[str, Any], reply: Callable[[bytes], Any]) -> Tables | None:
        return tables if _updated(tables, message, endpoint.db, reply=reply) else None

    return exchange(endpoint, _monitor(dict.fromkeys(_TABLES)), take, timeout_s=timeout_s)


def exchange(
    endpoint: Endpoint,
    request: bytes,
    take: Callable[[Mapping[str, Any], Callable[[bytes], Any]], T | None],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> T:
    """Send a request, and return the result of `take`. Raises SwitchUnreachable, also if other messages come without
    end.

    `take`: called with each message and a function that sends a reply; returns None if the message is not the answer.
    """
    deadline, problems = time.monotonic() + timeout_s, list[str]()
    for target in endpoint.db.split(","):
        try:
            with connected_to(address_of(target), max(0.001, deadline - time.monotonic())) as connection:
                connection.sendall(request)
                messages = Messages(endpoint.db)
                while (left_s := deadline - time.monotonic()) > 0:
                    connection.settimeout(left_s)
                    received = messages.feed(connection.recv(_READ_BYTES))
                    with _well_formed(endpoint.db):
                        for message in received:
                            if (found := take(message, connection.sendall)) is not None:
                                return found
                raise TimeoutError
        except TimeoutError:
            reason = "ovsdb-server does not answer in time; is it busy or hung?"
            raise SwitchUnreachable(target=endpoint.db, reason=reason) from None
        except OSError as error:
            problems.append(_text_of(error))
    raise unreachable(endpoint.db, problems[0])


async def follow_ports(db: str) -> AsyncIterator[Ports]:
    """Yield the ports now and after each change, as long as the connection lasts, then raise SwitchUnreachable. `db`:
    the first server that answers is used."""
    reader, writer = await _connect(db)
    tables: Tables = {table: {} for table in _PORT_COLUMNS}
    messages = Messages(db)
    try:
        writer.write(_monitor(_PORT_COLUMNS))
        async for data in _received(reader, writer, db):
            for message in messages.feed(data):
                with _well_formed(db):
                    is_changed = _updated(tables, message, db, reply=writer.write)
                    bridges = bridges_of(tables) if is_changed else ()
                if is_changed:
                    yield {bridge.name: {port.name: port for port in bridge.ports} for bridge in bridges}
    except OSError as error:
        raise unreachable(db, _text_of(error)) from None
    finally:
        writer.close()


# JSON-RPC 1.0 over a stream (RFC 7047, 4).


class Messages:
    """Splits the bytes of a connection into messages."""

    def __init__(self, db: str) -> None:
        self._db = db
        self._parts: list[bytes] = []
        self._rest = ""
        self._bytes = 0

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete now. Raises SwitchUnreachable at the end of the connection, and for
        what is no message."""
        if not data:
            raise SwitchUnreachable(target=self._db, reason="ovsdb-server has closed the connection")
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > _LONGEST_MESSAGE_BYTES:
            reason = f"ovsdb-server sends a message of more than {_LONGEST_MESSAGE_BYTES >> 20} MiB"
            raise SwitchUnreachable(target=self._db, reason=reason)
        # Only a closing brace can end a message, and a long one comes in many parts.
        if not data.rstrip().endswith(b"}"):
            return []
        with _well_formed(self._db):
            whole, self._rest = decode(self._rest + b"".join(self._parts).decode())
        self._parts, self._bytes = [], len(self._rest)
        return whole


def decode(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the complete JSON objects at the start of a text, and the rest. Nothing else separates messages."""
    decoder, found, rest = json.JSONDecoder(), list[dict[str, Any]](), text.lstrip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            break
        if not isinstance(value, dict):
            raise TypeError("no message")
        found.append(value)
        rest = rest[end:].lstrip()
    return found, rest


def _monitor(columns: Mapping[str, list[str] | None]) -> bytes:
    requests = {table: {} if names is None else {"columns": names} for table, names in columns.items()}
    return json.dumps(
        {"method": "monitor", "id": _REQUEST_ID, "params": ["Open_vSwitch", "xenoovs", requests]}
    ).encode()


def _updated(tables: Tables, message: Mapping[str, Any], db: str, *, reply: Callable[[bytes], Any]) -> bool:
    """Apply a message to the tables, or answer an echo request; return whether it was about the tables."""
    if message.get("method") == "echo":
        reply(json.dumps({"id": message["id"], "result": message["params"], "error": None}).encode())
        return False
    if message.get("method") == "update":
        updates = message["params"][1]
    elif message.get("id") == _REQUEST_ID and "result" in message:
        if message.get("error") is not None:
            raise SwitchUnreachable(target=db, reason=f"ovsdb-server refuses to send its tables: {message['error']}")
        updates = message["result"]
    else:
        return False
    for table, changes in updates.items():
        for row, change in changes.items():
            if "new" in change:
                tables[table][row] = {column: _decoded(value) for column, value in change["new"].items()}
            else:
                tables[table].pop(row, None)
    return True


async def _connect(db: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # Imported here: it imports ssl, and commands that read the database once need neither.
    import asyncio

    reason = ""
    for target in db.split(","):
        address = address_of(target)
        try:
            if isinstance(address, str):
                return await asyncio.open_unix_connection(address)
            return await asyncio.open_connection(*address)
        except OSError as error:
            reason = explain(_text_of(error))
    raise SwitchUnreachable(target=db, reason=reason)


async def _received(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, db: str) -> AsyncIterator[bytes]:
    import asyncio

    is_asked = False
    while True:
        # Not wait_for(): before Python 3.12 it may swallow a cancellation that comes together with data.
        reading = asyncio.ensure_future(reader.read(_READ_BYTES))
        try:
            await asyncio.wait({reading}, timeout=_SILENCE_S)
            data = reading.result() if reading.done() else None
        finally:
            reading.cancel()
        if data is not None:
            yield data
        elif is_asked:
            raise SwitchUnreachable(target=db, reason="ovsdb-server has stopped answering")
        else:
            writer.write(b'{"method":"echo","id":"alive","params":[]}')
        is_asked = data is None


def _text_of(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


# Rows to values. Columns are sets, maps and references (RFC 7047, 5.1).


def database_of(tables: Tables) -> Database:
    switch = _switch(tables)
    return Database(
        config=dict(sorted(_map(switch.get("other_config")).items())),
        bridges=bridges_of(tables),
        datapath_types=tuple(_items(switch.get("datapath_types"))),
        doca_initialized=_one(switch.get("doca_initialized"), bool),
        doca_version=_one(switch.get("doca_version"), str),
        chassis=_chassis(tables),
    )


def _switch(tables: Tables) -> dict[str, Any]:
    """Return the one row of table Open_vSwitch; empty if this reader lacks it."""
    return next(iter(tables.get("Open_vSwitch", {}).values()), {})


def _chassis(tables: Tables) -> tuple[OvnChassis, ...]:
    return chassis_of(_map(_switch(tables).get("external_ids")))


def bridges_of(tables: Tables) -> tuple[BridgeState, ...]:
    """Return the bridges, sorted by name, with defaults for missing columns."""
    config = _map(_switch(tables).get("other_config"))
    offload, chassis = config.get("hw-offload"), _chassis(tables)
    bridges = (
        BridgeState(
            name=_text(row["name"]),
            ports=tuple(sorted(_ports(tables, row), key=lambda port: port.name)),
            datapath_type=_one(row.get("datapath_type"), str) or "system",
            datapath_id=_one(row.get("datapath_id"), str),
            fail_mode=_one(row.get("fail_mode"), str) or "standalone",
            controllers=tuple(sorted(_controllers(tables, row), key=lambda controller: controller.target)),
            hw_offload=None if offload is None else offload == "true",
            max_idle_ms=number_of(config.get("max-idle")),
            max_revalidator_ms=number_of(config.get("max-revalidator")),
            exporters=tuple(name for name in _EXPORTERS if _items(row.get(name))),
            mirrors=tuple(sorted(_mirrors(tables, row), key=lambda mirror: mirror.name)),
            ovn=use_of(row["name"], chassis, *_marks(tables, row)),
        )
        for row in tables["Bridge"].values()
    )
    return tuple(sorted(bridges, key=lambda bridge: bridge.name))


def _ports(tables: Tables, bridge: Mapping[str, Any]) -> Iterator[PortState]:
    for port in _items(bridge["ports"]):
        for interface in _items(tables["Port"].get(port, {}).get("interfaces")):
            row = tables["Interface"].get(interface)
            if row is not None:
                ofport, link = _one(row["ofport"], int), _one(row["link_state"], str)
                yield PortState(
                    name=_text(row["name"]),
                    # -1 says that the port could not be made (ovs-vswitchd.conf.db(5), column ofport).
                    ofport=ofport if ofport is not None and ofport >= 0 else None,
                    type=_text(row["type"]) or "system",
                    link_up=None if link is None else link == "up",
                    error=_one(row["error"], str),
                    mtu=_one(row.get("mtu"), int),
                    iface_id=_map(row.get("external_ids")).get("iface-id"),
                    options=_without_secrets(_map(row.get("options"))),
                    mark=_map(row.get("external_ids")).get("xenoovs"),
                    offload_priority=_map(row.get("other_config")).get("hw-offload-priority"),
                    bfd=_map(row.get("bfd")),
                    bfd_status=_map(row.get("bfd_status")),
                )


_SECRETS = ("psk",)
"""Options of table Interface that are kept from the rest of xenoovs."""


def _without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {name: "(hidden)" if name in _SECRETS else value for name, value in options.items()}


def _marks(tables: Tables, bridge: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the marks of OVN on a bridge, as `use_of` takes them."""
    installed, localnet = list[str](), list[str]()
    for reference in _items(bridge["ports"]):
        port = tables["Port"].get(reference, {})
        if LOCALNET in _map(port.get("external_ids")):
            localnet.append(port["name"])
        for interface in _items(port.get("interfaces")):
            row = tables["Interface"].get(interface, {})
            if INSTALLED in _map(row.get("external_ids")):
                installed.append(row["name"])
    return sorted(installed), sorted(localnet)


def _mirrors(tables: Tables, bridge: Mapping[str, Any]) -> Iterator[Mirror]:
    for reference in _items(bridge.get("mirrors")):
        row = tables.get("Mirror", {}).get(reference)
        if row is not None:
            port = tables["Port"].get(_one(row.get("output_port"), str) or "", {}).get("name")
            vlan, snaplen = _one(row.get("output_vlan"), int), _one(row.get("snaplen"), int)
            yield Mirror(_text(row["name"]), port, vlan, snaplen)


def _controllers(tables: Tables, bridge: Mapping[str, Any]) -> Iterator[Controller]:
    for reference in _items(bridge.get("controller")):
        row = tables.get("Controller", {}).get(reference)
        if row is not None:
            role = _one(row["role"], str)
            yield Controller(_text(row["target"]), is_connected=row["is_connected"] is True, role=role)


def _decoded(value: Any) -> Any:
    """Return an atom as itself, a reference as text, a set as a tuple and a map as a dict."""
    match value:
        case ["uuid", str(text)]:
            return text
        case ["set", list(items)]:
            return tuple(map(_decoded, items))
        case ["map", list(pairs)]:
            return {_decoded(key): _decoded(content) for key, content in pairs}
    return value


def _items(value: Any) -> tuple[Any, ...]:
    # A set of one element comes as that element (RFC 7047, 5.1).
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _map(value: Any) -> dict[str, str]:
    """Return a column that maps texts to texts; empty if this Open vSwitch or this reader lacks it."""
    found = value if isinstance(value, dict) else {}
    return {_text(key): _text(content) for key, content in found.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _one(value: Any, kind: type[T]) -> T | None:
    """Return the value of a column that has one or none."""
    found = next(iter(_items(value)), None)
    if found is not None and type(found) is not kind:
        raise TypeError("another type than that of the schema (ovs-vswitchd.conf.db(5))")
    return found


# The southbound database of OVN by ovn-sbctl(8): which logical flows are behind the cookies of OpenFlow flows.


_SBCTL_TIMEOUT_S = 20


def read_logical_flows(
    remote: str | None, cookies: Iterable[int], *, timeout_s: int = _SBCTL_TIMEOUT_S
) -> Fact[dict[int, LogicalFlow]]:
    """Return the logical flows with these cookies (32 bits). Physical flows, such as those of ports, have none.
    `remote`: external_ids:ovn-remote of ovn-controller; None if unknown. `timeout_s`: of the whole read."""
    if remote is None:
        return Unknown("external_ids:ovn-remote of table Open_vSwitch is not set")
    if "ssl:" in remote:
        return Unknown(f"{remote} needs keys; `ovn-sbctl lflow-list COOKIE` with yours shows a logical flow")
    wanted = [f"{cookie:#010x}" for cookie in sorted(set(cookies)) if 0 < cookie < 1 << 32]
    if not wanted:
        return {}
    # A follower of a cluster has them too; this saves the leader the load.
    options = (f"--db={remote}", f"--timeout={timeout_s}", "--no-leader-only", "--uuid")
    try:
        output = run(["ovn-sbctl", *options, "lflow-list", *wanted], timeout_s=timeout_s + 5)
    except CommandMissing:
        return Unknown("ovn-sbctl is not installed")
    except CommandTimeout:
        return Unknown(f"{remote} did not answer within {timeout_s} s")
    except CommandFailed as failed:
        # ovn-sbctl ends itself by SIGALRM.
        if failed.exit_code == -signal.SIGALRM:
            return Unknown(f"{remote} did not answer within {timeout_s} s")
        lines = [line for line in failed.stderr.splitlines() if line.strip()]
        return Unknown(lines[-1].strip() if lines else f"ovn-sbctl ended with {failed.exit_code}")
    return parse_logical_flows(output.stdout)


# Options of an interface by transactions (RFC 7047, 4.1.3, 5.2). ovs-vsctl(8) takes values as arguments, which every
# user of the host can read (proc(5), cmdline). A pre-shared key must not be there, nor in a log.


_TRANSACTION_ID = 1


def has_options(endpoint: Endpoint, interface: str, options: Mapping[str, str]) -> bool:
    """Return whether an interface has these options with these values. Raises SwitchUnreachable, InterfaceMissing."""
    return options.items() <= _options_of(endpoint, interface).items()


def write_options(endpoint: Endpoint, interface: str, options: Mapping[str, str], *, without: tuple[str, ...]) -> None:
    """Set options of an interface and remove those in `without`, in one transaction, without waiting for ovs-vswitchd.
    `options` win over `without`. Raises SwitchUnreachable, InterfaceMissing: nothing was changed."""
    _options_of(endpoint, interface)
    removed = ["set", [*{*without, *options}]]
    mutations = [
        ["options", "delete", removed],
        ["options", "insert", ["map", [list(pair) for pair in options.items()]]],
    ]
    where = [["name", "==", interface]]
    _transact(endpoint, {"op": "mutate", "table": "Interface", "where": where, "mutations": mutations})


def _options_of(endpoint: Endpoint, interface: str) -> dict[str, str]:
    where = [["name", "==", interface]]
    found = _transact(endpoint, {"op": "select", "table": "Interface", "where": where, "columns": ["options"]})
    with _well_formed(endpoint.db):
        if not found["rows"]:
            raise InterfaceMissing(interface=interface)
        return _map(_decoded(found["rows"][0]["options"]))


def _transact(endpoint: Endpoint, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of one operation. Raises SwitchUnreachable, whose text never contains the request."""
    request = {"method": "transact", "id": _TRANSACTION_ID, "params": ["Open_vSwitch", operation]}
    return exchange(endpoint, json.dumps(request).encode(), lambda message, _reply: _result(message, endpoint.db))


def _result(message: Mapping[str, Any], db: str) -> dict[str, Any] | None:
    if message.get("id") != _TRANSACTION_ID or "result" not in message:
        return None
    results = message.get("result") or []
    errors = [each["error"] for each in results if isinstance(each, dict) and "error" in each]
    if message.get("error") is not None or errors or not results:
        # `details` may quote the value.
        reason = f"ovsdb-server refuses the change: {errors[0] if errors else 'no result'}"
        raise SwitchUnreachable(target=db, reason=reason)
    found: dict[str, Any] = results[0]
    return found
