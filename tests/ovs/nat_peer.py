"""Both ends of an exchange through NAT: a server that returns what it got, and a client that compares. No imports of
xenoovs, so that it starts at once in any namespace."""

from __future__ import annotations

import hashlib
import json
import socket
import sys

CHUNK = 1000
PATTERN = bytes(range(250))


def serve_tcp(name: str) -> None:
    with socket.create_server(("0.0.0.0", 8080)) as listening:
        print("listening", flush=True)
        while True:
            connection, (address, _) = listening.accept()
            with connection:
                size = int.from_bytes(_exactly(connection, 4), "big")
                data = _exactly(connection, size)
                connection.sendall(data)
                connection.sendall(_about(name, address, connection.getsockname()[1], data))


def serve_udp(name: str) -> None:
    """One chunk at a time comes back; an empty one asks for what was seen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", 8080))
        print("listening", flush=True)
        got: dict[tuple[str, int], bytearray] = {}
        while True:
            chunk, peer = server.recvfrom(65_535)
            data = got.setdefault(peer, bytearray())
            data += chunk
            server.sendto(chunk or _about(name, peer[0], server.getsockname()[1], bytes(data)), peer)


def _about(name: str, client: str, port: int, data: bytes) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    return json.dumps({"backend": name, "seen": client, "server_port": port, "server_hash": digest}).encode()


def ask_tcp(source: str, vip: str, data: bytes) -> dict[str, object]:
    with socket.create_connection((vip, 80), timeout=60, source_address=(source, 0)) as connection:
        peer = connection.getpeername()
        connection.sendall(len(data).to_bytes(4, "big") + data)
        returned = _exactly(connection, len(data))
        about = b"".join(iter(lambda: connection.recv(65_536), b""))
    return {"peer": peer, "client_hash": hashlib.sha256(returned).hexdigest(), **json.loads(about)}


def ask_udp(source: str, vip: str, data: bytes) -> dict[str, object]:
    returned = bytearray()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((source, 0))
        client.settimeout(60)
        for start in range(0, len(data), CHUNK):
            client.sendto(data[start : start + CHUNK], (vip, 80))
            chunk, peer = client.recvfrom(65_535)
            returned += chunk
        client.sendto(b"", (vip, 80))
        about, _ = client.recvfrom(65_535)
    return {"peer": peer, "client_hash": hashlib.sha256(returned).hexdigest(), **json.loads(about)}


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(65_536, size - len(data)))
        if not part:
            raise ConnectionError(f"closed after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def main() -> None:
    role, protocol, *rest = sys.argv[1:]
    if role == "serve":
        {"tcp": serve_tcp, "udp": serve_udp}[protocol](*rest)
        return
    source, vip, size = rest
    data = PATTERN * (int(size) // len(PATTERN))
    answer = {"tcp": ask_tcp, "udp": ask_udp}[protocol](source, vip, data)
    print(json.dumps({"pattern": list(PATTERN), **answer}))


if __name__ == "__main__":
    main()
