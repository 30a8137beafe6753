"""Clients for tests, in the namespace of the clients: opens connections and reads pieces as told by lines on stdin.

`open SOURCE` -> the server's name; the connection stays open, by the number of its line among all `open`.
`read NUMBER COUNT` -> `right`, `wrong`, or the name of the error. `fresh COUNT SOURCE...` -> for each source COUNT new
connections, each of which reads two pieces: the names of the servers, `-` for one that was cut.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drain_server import PIECE, piece  # type: ignore[import-not-found]

PATIENCE_S = 60.0


class Client:
    def __init__(self, address: str, port: int) -> None:
        self.target = address, port
        self.kept: list[tuple[socket.socket, int]] = []

    def connect(self, source: str) -> tuple[socket.socket, str]:
        connection = socket.create_connection(self.target, PATIENCE_S, (source, 0))
        return connection, receive(connection, 8).decode().strip()

    def open(self, source: str) -> str:
        connection, name = self.connect(source)
        self.kept.append((connection, 0))
        return name

    def read(self, index: int, count: int) -> str:
        connection, begin = self.kept[index]
        self.kept[index] = connection, begin + count
        try:
            for number in range(begin, begin + count):
                connection.sendall(b"x")
                if receive(connection, PIECE) != piece(number):
                    return "wrong"
        except OSError as error:
            return type(error).__name__
        return "right"

    def fresh(self, count: int, sources: list[str]) -> str:
        return " ".join(self.visit(source) for source in sources for _ in range(count))

    def visit(self, source: str) -> str:
        try:
            connection, name = self.connect(source)
            with connection:
                for number in range(2):
                    connection.sendall(b"x")
                    if receive(connection, PIECE) != piece(number):
                        return "wrong"
        except OSError:
            return "-"
        return name


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the server has closed the connection")
        data += more
    return data


def main() -> None:
    client = Client(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        match line.split():
            case ["open", source]:
                said = client.open(source)
            case ["read", index, count]:
                said = client.read(int(index), int(count))
            case ["fresh", count, *sources]:
                said = client.fresh(int(count), sources)
            case _:
                said = "?"
        print(said, flush=True)


if __name__ == "__main__":
    main()
