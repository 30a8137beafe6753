"""Clients for tests, in the namespace of the clients: opens connections and reads pieces as told by lines on stdin.

`open SOURCE` -> the server's name; the connection stays open, by the number of its line among all `open`.
`read NUMBER COUNT` -> `right`, `wrong`, or the name of the error. `fresh COUNT SOURCE...` -> for each source COUNT new
connections, each of which reads two pieces: the names of the servers, or what `read` says of one that was cut.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drain_server import PIECE, piece  # type: ignore[import-not-found]

PATIENCE_S = 60.0
TARGET = sys.argv[1], int(sys.argv[2])


class Connection:
    def __init__(self, source: str) -> None:
        self.socket, self.pieces = socket.create_connection(TARGET, PATIENCE_S, (source, 0)), 0
        self.server = self.receive(8).decode().strip()

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has closed the connection")
            data += more
        return data

    def read(self, count: int) -> str:
        begin, self.pieces = self.pieces, self.pieces + count
        try:
            for number in range(begin, self.pieces):
                self.socket.sendall(b"x")
                if self.receive(PIECE) != piece(number):
                    return "wrong"
        except OSError as error:
            return type(error).__name__
        return "right"


def visit(source: str) -> str:
    connection = Connection(source)
    with connection.socket:
        said = connection.read(2)
    return connection.server if said == "right" else said


def main() -> None:
    kept: list[Connection] = []
    for line in sys.stdin:
        match line.split():
            case ["open", source]:
                kept.append(Connection(source))
                print(kept[-1].server, flush=True)
            case ["read", index, count]:
                print(kept[int(index)].read(int(count)), flush=True)
            case ["fresh", count, *sources]:
                print(*(visit(source) for source in sources for _ in range(int(count))), flush=True)


if __name__ == "__main__":
    main()
