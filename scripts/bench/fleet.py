"""A fleet of five sites: three servers, two relays and many light clients that ask a relay for what an agent asks for.

A light client sends the request of an agent (`fleet_columns`), and reads all that comes; it compiles nothing.
Times on the clock count the clients too, which are one process; times of a processor are those of servers and relays.
"""

from __future__ import annotations

import json
import os
import re
import resource
import selectors
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import uniform
from uuid import uuid4

from scripts.bench.measure import Row
from xenoovs.decision.decision import Blocks
from xenoovs.model.values import site_name
from xenoovs.partition.block import Block
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.replica import spread_s
from xenoovs.store.rows import READER_ROLE, StoreDatabase, fleet_columns
from xenoovs.store.servers import (
    OvsdbServer,
    StorePort,
    create_databases,
    parse_server,
    start_server,
    stop_server,
)
from xenoovs.store.view import Changes, Dpu, StoredService

_SERVERS, _RELAYS, _SITES, _ROWS, _DEPTH, _CHANGES = 3, 2, 5, 1000, 4, 20
_SIZES = (10, 100, 1000)
_PATIENCE_S = 300.0
_NEVER = "00000000-0000-0000-0000-000000000000"


def rows(sizes: Sequence[int] = _SIZES) -> Iterator[Row]:
    """Yield the figures of a fleet for each number of clients."""
    # Relays inherit it; 1,024 is the usual soft limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        servers, relays, ports = _start(Path(work), stack)
        remotes = ",".join(each.remote for each in servers)
        writer = stack.enter_context(StoreClient(remotes, with_intents=True))
        dpus = {
            name: Dpu(name, frozenset((_site(number),))) for number in range(max(sizes)) for name in (f"dpu{number}",)
        }
        _commit(writer, Changes(_services(0, range(_ROWS)), dpus))
        for size in sizes:
            yield from _fleet(size, writer, servers, relays, ports)


def _start(work: Path, stack: ExitStack) -> tuple[list[OvsdbServer], list[OvsdbServer], list[StorePort]]:
    network = f"127.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
    members = [parse_server(f"{network}.{number + 1}") for number in range(_SERVERS)]
    servers, relays, ports = list[OvsdbServer](), list[OvsdbServer](), list[StorePort]()
    for number, member in enumerate(members):
        create_databases(work / f"s{number}", name="bench", servers=members, local=number)
        port = StorePort(member.host, 6661, READER_ROLE)
        server = OvsdbServer(work / f"s{number}", StoreDatabase.FLEET.value, [port])
        stack.callback(stop_server, server)
        _serves(start_server(server))
        servers.append(server)
    source = ",".join(f"tcp:{member.host}:6661" for member in members)
    for number in range(_RELAYS):
        port = StorePort(f"{network}.{101 + number}", 6662, READER_ROLE)
        relay = OvsdbServer(work / f"r{number}", "relay", [port], source=source)
        stack.callback(stop_server, relay)
        _serves(start_server(relay))
        relays.append(relay)
        ports.append(port)
    return servers, relays, ports


def _serves(reason: str) -> None:
    if reason:
        raise RuntimeError(reason)


def _site(number: int) -> str:
    return f"site{number % _SITES}"


def _services(turn: int, numbers: Iterable[int]) -> dict[str, StoredService]:
    """Rows of services, each for one site, of 16 blocks; each `turn` gives the first block another backend."""
    owners = [f"b{block}" for block in range(1 << _DEPTH)]
    owners[0] = f"b{turn % 2 * 2}"
    blocks = Blocks.of((Block(value, _DEPTH), owner) for value, owner in enumerate(owners))
    made = dict[str, StoredService]()
    for number in numbers:
        service, site = f"s{number // _SITES:04}", _site(number)
        name, text = site_name(service, site), json.dumps({"name": service})
        made[name] = StoredService(name, frozenset((site,)), text, service, 0, active=blocks, home=blocks)
    return made


def _commit(writer: StoreClient, changes: Changes) -> int:
    view = writer.view() or writer.wait_changed(None, timeout_s=_PATIENCE_S)
    if view is None or writer.commit(view.generation, changes, timeout_s=60) is not CommitOutcome.COMMITTED:
        raise RuntimeError("the change was not written")
    return view.generation + 1


def monitor_request(last_id: str) -> bytes:
    """Return the request of an agent (ovsdb-server(7), 4.1.15) that knows the transaction `last_id`."""
    tables = {table: [{"columns": list(columns)}] for table, columns in fleet_columns(with_intents=False).items()}
    params = [StoreDatabase.FLEET.value, str(uuid4()), tables, last_id]
    request = {"id": 1, "method": "monitor_cond_since", "params": params}
    return json.dumps(request, separators=(",", ":"), sort_keys=True).encode()


@dataclass(eq=False)
class _Client:
    """A connection to a relay: what it knows, and what it has received.

    It parses nothing, so that what is measured is not Python: it counts bytes, and looks for what it needs in the text.
    """

    relay: StorePort
    start_s: float
    socket: socket.socket | None = None
    text: bytearray = field(default_factory=bytearray)
    open_braces: int = 0
    last_id: str = _NEVER
    generation: int = -1
    is_found: bool | None = None
    received_bytes: int = 0

    def connect(self) -> None:
        """Begin to connect. Its end is that the socket can be written."""
        self.socket = socket.socket(socket.AF_INET if ":" not in self.relay.host else socket.AF_INET6)
        self.socket.settimeout(0)
        self.is_found, self.text, self.open_braces = None, bytearray(), 0
        self.socket.connect_ex((self.relay.host, self.relay.port))

    def ask(self) -> None:
        """Send the request. Raises OSError if there is no connection."""
        assert self.socket is not None
        self.socket.sendall(monitor_request(self.last_id))

    def read(self) -> None:
        """Take what has come. Raises ConnectionError at its end."""
        assert self.socket is not None
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionResetError
        self.received_bytes += len(chunk)
        self.text += chunk
        # Texts in these rows have no brace without its partner, so that no string has to be parsed.
        self.open_braces += chunk.count(b"{") - chunk.count(b"}")
        if self.open_braces == 0:
            self._take(self.text)
            self.text = bytearray()

    def _take(self, text: bytearray) -> None:
        if b'"method":"echo"' in text[:100]:
            assert self.socket is not None
            self.socket.sendall(b'{"error":null,"id":"echo","result":[]}')
        for answer in _ANSWER.finditer(text):
            self.is_found, self.last_id = answer[1] == b"true", answer[2].decode()
        for notice in _NOTICE.finditer(text):
            self.last_id = notice[1].decode()
        for generation in _GENERATION.finditer(text):
            self.generation = int(generation[1])


_ANSWER = re.compile(rb'"result":\[(true|false),"([0-9a-f-]{36})"')
_NOTICE = re.compile(rb'"params":\["[0-9a-f-]{36}","([0-9a-f-]{36})"')
_GENERATION = re.compile(rb'"Fleet":\{"[0-9a-f-]{36}":\{"[a-z]+":\{[^{}]*?"generation":([0-9]+)')


class _Clients:
    """Clients that connect as agents do: after a random time, each for itself, and again after 1 to 8 s."""

    def __init__(self, size: int, ports: Sequence[StorePort]) -> None:
        self._spread_s = spread_s(size)
        self.all = [_Client(ports[number % len(ports)], self._start_s()) for number in range(size)]
        self._selector = selectors.DefaultSelector()
        self._idle = list(self.all)
        self._backoff_s = dict[int, float]()

    def _start_s(self) -> float:
        return time.monotonic() + uniform(0, self._spread_s)

    def wait(self, generation: int) -> None:
        """Read until every client is connected and has a generation. A lost connection is made again."""
        end_s = time.monotonic() + _PATIENCE_S
        while any(each.generation < generation or each.is_found is None for each in self.all):
            if time.monotonic() > end_s:
                raise TimeoutError(f"not all clients have generation {generation}")
            self._connect()
            for key, events in self._selector.select(0.02):
                try:
                    if events & selectors.EVENT_WRITE:
                        key.data.ask()
                        self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                    else:
                        key.data.read()
                        self._backoff_s.pop(id(key.data), None)
                except BlockingIOError:
                    pass
                except OSError:
                    self._lose(key.data)

    def _connect(self) -> None:
        now_s = time.monotonic()
        for client in [each for each in self._idle if each.start_s <= now_s]:
            self._idle.remove(client)
            client.connect()
            assert client.socket is not None
            self._selector.register(client.socket, selectors.EVENT_WRITE, client)

    def _lose(self, client: _Client) -> None:
        before_s = self._backoff_s.get(id(client))
        self._backoff_s[id(client)] = 1.0 if before_s is None else min(2 * before_s, 8.0)
        self._close(client)
        client.start_s = self._start_s() if before_s is None else time.monotonic() + self._backoff_s[id(client)]
        self._idle.append(client)

    def _close(self, client: _Client) -> None:
        if client.socket is not None:
            self._selector.unregister(client.socket)
            client.socket.close()
            client.socket, client.is_found = None, None

    def close(self) -> None:
        for client in self.all:
            self._close(client)
        self._selector.close()


def _fleet(
    size: int,
    writer: StoreClient,
    servers: Sequence[OvsdbServer],
    relays: Sequence[OvsdbServer],
    ports: list[StorePort],
) -> Iterator[Row]:
    name, everyone = f"fleet, {size:,} DPUs", (*servers, *relays)
    start_s, cpu_s = time.monotonic(), _cpu_s(everyone)
    clients = _Clients(size, ports)
    view = writer.view()
    assert view is not None
    clients.wait(view.generation)
    yield Row(f"{name}: first download, all", time.monotonic() - start_s, "s")
    yield Row(f"{name}: first download, servers' and relays' CPU", _cpu_s(everyone) - cpu_s, "s")
    yield Row(f"{name}: first download of one", clients.all[0].received_bytes / 1000, "kB")
    walls, cpu_s, before = list[float](), _cpu_s(everyone), clients.all[0].received_bytes
    for turn in range(1, _CHANGES + 1):
        start_s = time.monotonic()
        clients.wait(_commit(writer, Changes(_services(turn, [0]))))
        walls.append(time.monotonic() - start_s)
    yield Row(f"{name}: one change to the last, p50", statistics.median(walls), "s", 0.3)
    yield Row(f"{name}: one change to the last, worst of {_CHANGES}", max(walls), "s", 1.0)
    yield Row(f"{name}: one change, servers' and relays' CPU", (_cpu_s(everyone) - cpu_s) / _CHANGES, "s", 0.1)
    yield Row(f"{name}: one change, sent to one", (clients.all[0].received_bytes - before) / _CHANGES, "B")
    start_s, cpu_s = time.monotonic(), _cpu_s(relays)
    clients.wait(_commit(writer, Changes(_services(1, range(50, _ROWS)))))
    yield Row(f"{name}: 950 rows of services to the last", time.monotonic() - start_s, "s", 3.0)
    yield Row(f"{name}: 950 rows of services, CPU of a relay", (_cpu_s(relays) - cpu_s) / _RELAYS, "s", 0.3)
    _commit(writer, Changes(_services(0, range(50, _ROWS))))
    view = writer.view()
    assert view is not None
    clients.wait(view.generation)
    dead = relays[0]
    os.kill(int(dead.pid.read_text()), signal.SIGKILL)
    for client in clients.all:
        if client.relay is ports[0]:
            client.is_found, client.relay = None, ports[1]
    start_s = time.monotonic()
    clients.wait(view.generation)
    back = time.monotonic() - start_s
    moved = clients.all[::_RELAYS]
    yield Row(f"{name}: half of them back at the other relay", back, "s", 30.0)
    yield Row(
        f"{name}: of these, not found: true", 100 * sum(not each.is_found for each in moved) / len(moved), "%", 1.0
    )
    clients.close()
    _serves(start_server(dead))


def _cpu_s(files: Sequence[OvsdbServer]) -> float:
    """Return the seconds of a processor that processes have used (proc_pid_stat(5), utime and stime)."""
    ticks = 0
    for each in files:
        fields = Path(f"/proc/{int(each.pid.read_text())}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
