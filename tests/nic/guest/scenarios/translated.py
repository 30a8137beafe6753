"""NAT without connection tracking: real connections of clients with servers that know nothing of the VIP."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Thread

from tests.nic.guest import nic
from tests.nic.guest.bench import Bench
from tests.nic.guest.frames import CLIENT_MAC, VIP, VIP_MAC
from tests.nic.guest.namespace import inside
from tests.nic.guest.record import Transfer
from tests.nic.truth import parse_ports
from xenoovs.switch.process import run

SERVERS = {"10.3.20.11": "02:00:5e:10:00:02", "10.3.20.12": "02:00:5e:10:00:03"}
"""Addresses and MACs of balancers/nat.yaml."""
CLIENTS = ("10.9.0.4", "10.9.0.5", "10.9.0.7")
"""One of each block."""
_PORT, _SERVER_PORT = 80, 8080
_CLIENT_NETNS = "client"
_BYTES = 1_000_000
_PIECE = 65536
_SEGMENT = 1460
_TIMEOUT_S = 600.0


def nat(bench: Bench) -> None:
    """Each client sends a datagram and files; the server answers the one, and sends the others back."""
    bench.begin("nat", ports=("p0", "p1"))
    with _hosts(), _servers():
        for client in CLIENTS:
            _exchange_datagram(client)
            _transfer(client, b"first")
        for number, client in enumerate(CLIENTS):
            data = bytes([number + 1]) * _BYTES
            bench.wait_until(
                partial(_goes_through_the_nic, bench, client, data), f"the NIC forwards a file of {client}"
            )
        bench.wait_until_quiet()
        bench.look("after a datagram and a file of each client")
        bench.judge("nat", "verify-offload", recorded=True, simulated=True)


@contextmanager
def _hosts() -> Iterator[None]:
    """Hosts behind the wire ends, each with a MAC of its own (macvlan)."""
    run(["modprobe", "macvlan"])
    nic.ip_batch(f"netns add {_CLIENT_NETNS}")
    wire = nic.WIRE_NETNS
    lines = [f"link add link p0-w name c0 address {CLIENT_MAC} netns {_CLIENT_NETNS} type macvlan"]
    for number, (address, mac) in enumerate(SERVERS.items(), 1):
        lines += [
            f"link add link p1-w name b{number} address {mac} type macvlan",
            f"addr add {address}/32 dev b{number}",
        ]
    nic.ip_batch(*lines, netns=wire)
    for device in ("b1", "b2"):
        nic.set_up_silent(device)
    neighbours = (f"neigh add {client} lladdr {CLIENT_MAC} dev b1" for client in CLIENTS)
    nic.ip_batch("route add 10.9.0.0/24 dev b1", *neighbours, netns=wire)
    nic.set_up_silent("c0", netns=_CLIENT_NETNS)
    nic.ip_batch(
        *(f"addr add {client}/32 dev c0" for client in CLIENTS),
        f"route add {VIP} dev c0",
        f"neigh add {VIP} lladdr {VIP_MAC} dev c0",
        netns=_CLIENT_NETNS,
    )
    try:
        yield
    finally:
        nic.ip_batch(f"netns del {_CLIENT_NETNS}")
        nic.ip_batch("link del b1", "link del b2", netns=wire)


@contextmanager
def _servers() -> Iterator[None]:
    """Servers that send back what they get."""
    with ExitStack() as stack:
        threads = []
        for address in SERVERS:
            for kind, serve in ((socket.SOCK_STREAM, _return_files), (socket.SOCK_DGRAM, _return_datagrams)):
                server = stack.enter_context(_socket(nic.WIRE_NETNS, kind, address, _SERVER_PORT))
                threads.append(Thread(target=serve, args=(server,), daemon=True))
        for thread in threads:
            thread.start()
        yield


def _return_files(server: socket.socket) -> None:
    server.listen()
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            data = _received(connection)
            connection.sendall(data)


def _return_datagrams(server: socket.socket) -> None:
    while True:
        try:
            data, client = server.recvfrom(_PIECE)
        except OSError:
            return
        server.sendto(data, client)


def _exchange_datagram(client: str) -> None:
    with _socket(_CLIENT_NETNS, socket.SOCK_DGRAM, client, 0) as datagrams:
        datagrams.sendto(client.encode(), (VIP, _PORT))
        data, server = datagrams.recvfrom(_PIECE)
    if (data.decode(), server) != (client, (VIP, _PORT)):
        raise RuntimeError(f"{client} got {data!r} from {server}")


def _goes_through_the_nic(bench: Bench, client: str, data: bytes) -> bool:
    """Send a file and record it, unless the CPU forwarded much of it: a slow machine installs rules late."""
    found = _transfer(client, data)
    if found.missed < len(data) // _SEGMENT // 2:
        bench.record.transfers.append(found)
        return True
    return False


def _missed() -> int:
    return sum(port.miss for port in parse_ports(nic.port_counters()).values())


def _transfer(client: str, data: bytes) -> Transfer:
    before = _missed()
    with _socket(_CLIENT_NETNS, socket.SOCK_STREAM, client, 0) as connection:
        connection.connect((VIP, _PORT))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        back = _received(connection)
    sent, received = hashlib.sha256(data).hexdigest(), hashlib.sha256(back).hexdigest()
    return Transfer(client, len(data), sent, received, _missed() - before)


def _received(connection: socket.socket) -> bytes:
    pieces = list(iter(lambda: connection.recv(_PIECE), b""))
    return b"".join(pieces)


def _socket(netns: str, kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    with inside(netns):
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(_TIMEOUT_S)
    made.bind((address, port))
    return made
