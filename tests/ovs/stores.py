"""Servers of a store that die with the test, and what tests write into it."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import eventually
from xenoovs.decision.decision import Blocks
from xenoovs.errors import StoreUnreachable
from xenoovs.partition.block import Block
from xenoovs.store.client import StoreClient
from xenoovs.store.rows import READER_ROLE, Row, StoreDatabase
from xenoovs.store.servers import (
    OvsdbServer,
    StorePort,
    create_databases,
    parse_server,
    server_command,
    server_of,
    server_state,
)
from xenoovs.store.view import FleetView, StoredService
from xenoovs.switch.certificates import Certificates

_NETWORKS = itertools.count(1)


def loopback(host: int, network: int) -> str:
    """An address of this host that no other test of any process uses."""
    return f"127.{100 + os.getpid() % 100}.{(os.getpid() // 100 + network) % 250}.{host}"


@dataclass
class StoreServer:
    """One ovsdb-server in the foreground."""

    files: OvsdbServer
    database: StoreDatabase = StoreDatabase.FLEET
    listen: Sequence[StorePort] = ()
    source: str = ""
    tls: Certificates | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, *, wait: bool = True) -> None:
        files = self.files
        server = OvsdbServer(files.directory, files.name, self.listen, source=self.source, tls=self.tls)
        command = server_command(server)
        # However this process ends, the server ends with it (prctl(2), PR_SET_PDEATHSIG).
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stderr=subprocess.DEVNULL)
        if wait:
            eventually(self.serves, f"{self.files.name} serves")

    def state(self) -> Row | None:
        with suppress(StoreUnreachable):
            return server_state(self.files.remote, self.database)
        return None

    def serves(self) -> bool:
        state = self.state()
        return state is not None and bool(state["connected"])

    @property
    def remote(self) -> str:
        return self.listen[0].remote if self.listen else self.files.remote

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> StoreServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def transact(self, *operations: Mapping[str, object]) -> list[dict[str, Any]]:
        """What an operator may do by hand, past xenoovs."""
        return transact(self.files.remote, None, *operations, database=self.database.value)


def running_store(directory: Path, database: StoreDatabase = StoreDatabase.FLEET) -> StoreServer:
    """A server without a cluster."""
    create_databases(directory / "store", name="test")
    return StoreServer(server_of(directory / "store", database), database)


@contextmanager
def running_cluster(
    directory: Path, *, size: int = 3, database: StoreDatabase = StoreDatabase.FLEET
) -> Iterator[list[StoreServer]]:
    """A cluster of servers, each with a read-only port for relays."""
    network = next(_NETWORKS)
    members = [parse_server(loopback(number, network)) for number in range(1, size + 1)]
    with ExitStack() as stack:
        servers = list[StoreServer]()
        for number, member in enumerate(members):
            create_databases(directory / f"s{number}", name="test", servers=members, local=number)
            ports = [StorePort(member.host, 6661, READER_ROLE if database is StoreDatabase.FLEET else "")]
            server = StoreServer(server_of(directory / f"s{number}", database), database, ports)
            servers.append(stack.enter_context(server))
        yield servers


def running_relay(directory: Path, source: str) -> StoreServer:
    (directory / "relay").mkdir(mode=0o700)
    port = StorePort(loopback(1, next(_NETWORKS)), 6662, READER_ROLE)
    return StoreServer(OvsdbServer(directory / "relay", "relay"), listen=[port], source=source)


def ovsdb_client(remote: str, who: Certificates | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What ovsdb-client(1) says to somebody with that certificate."""
    files = [] if who is None else ["-p", str(who.key), "-c", str(who.certificate), "-C", str(who.authority)]
    command, *rest = arguments
    argv = ["ovsdb-client", "--timeout=30", *files, command, remote, *rest]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def transact(
    remote: str, who: Certificates | None, *operations: Mapping[str, object], database: str
) -> list[dict[str, Any]]:
    said = ovsdb_client(remote, who, "transact", json.dumps([database, *operations]))
    assert said.returncode == 0, said.stderr
    answers: list[dict[str, Any]] = json.loads(said.stdout)
    return answers


def leader_of(servers: Sequence[StoreServer]) -> StoreServer | None:
    states = ((server, server.state()) for server in servers if server.process is not None)
    return next((server for server, state in states if state is not None and state["leader"]), None)


def first_view(client: StoreClient) -> FleetView:
    eventually(lambda: client.view() is not None, "the first view")
    view = client.view()
    assert view is not None
    return view


def wait_generation(client: StoreClient, generation: int) -> FleetView:
    eventually(
        lambda: (view := client.view()) is not None and view.generation >= generation, f"generation {generation}"
    )
    return first_view(client)


def service(name: str, *owners: str) -> StoredService:
    """A service whose clients are split evenly: 1, 2, 4, 8 ... owners."""
    depth = (len(owners) - 1).bit_length()
    blocks = Blocks.of((Block(value, depth), owner) for value, owner in enumerate(owners))
    return StoredService(name, frozenset({"all"}), f'{{"name":"{name}"}}', f"udp {name}", 0, active=blocks, home=blocks)


class Proxy:
    """Passes connections on to a unix socket, notes what client (`asked`) and server say, and cuts them."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self._target = path, target
        self.asked = self.said = b""
        self._sockets = list[socket.socket]()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def remote(self) -> str:
        return f"unix:{self.path}"

    def cut(self) -> None:
        """End all connections; new ones are passed on again."""
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._target))
                with self._lock:
                    self._sockets += [client, server]
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if source.getsockname() == str(self.path):
                    self.asked += data
                else:
                    self.said += data
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
