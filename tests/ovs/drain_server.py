"""A server for tests: says who it is, then gives a file piece by piece, as asked. Arguments: NAME ADDRESS PORT."""

from __future__ import annotations

import socket
import sys
from threading import Thread

PIECE = 4096


def piece(number: int) -> bytes:
    """Bytes that are unlike those of every other piece."""
    return b"".join((number * 1_000_003 + i).to_bytes(8, "big") for i in range(PIECE // 8))


def answer(connection: socket.socket, name: str) -> None:
    with connection:
        connection.sendall(name.encode().ljust(8))
        number = 0
        while connection.recv(1):
            connection.sendall(piece(number))
            number += 1


def main() -> None:
    name, address, port = sys.argv[1:]
    with socket.create_server((address, int(port)), backlog=256) as server:
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            Thread(target=answer, args=(connection, name), daemon=True).start()


if __name__ == "__main__":
    main()
