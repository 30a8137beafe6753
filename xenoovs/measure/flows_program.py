"""The two programs of the completion experiment: TCP flows that begin together, and the time of each one's last byte.

    serve ADDRESS                                   prints the port, then a line of JSON for each flow: [key, at_s]
    send SOURCE ADDRESS PORT KEY FLOWS BYTES LIMIT_S
                                                    prints "ready", reads a time from stdin, begins then; prints a line
                                                    of JSON: {"began_s": [...], "done": 10}

Times are those of the monotonic clock, which all namespaces of a machine share. The key of a flow is KEY plus its
number. Flows use CUBIC (RFC 9438), whatever the default of the machine is. Needs only the standard library.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress

HEADER = struct.Struct("!QQ")
"""Key and number of bytes of a flow."""
PIECE_BYTES = 1 << 16
CUBIC = b"cubic"
# Not known to Python before 3.6 on all systems; linux/tcp.h.
TCP_CONGESTION = 13
_POLL_S = 0.05
_RESET = struct.pack("ii", 1, 0)
"""struct linger: close(2) discards unsent data."""


def open_socket(address: str, port: int) -> socket.socket:
    """Return a non-blocking TCP socket. Raises OSError."""
    opened = socket.socket(socket.AF_INET)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, CUBIC)
    opened.bind((address, port))
    opened.settimeout(0.0)
    return opened


class FlowServer:
    """Reads flows to their last byte."""

    def __init__(self, address: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.listener = open_socket(address, 0)
        self.listener.listen(1024)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.heads: dict[int, bytearray] = {}
        self.missing: dict[int, int] = {}

    def run(self) -> None:
        print(self.listener.getsockname()[1], flush=True)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                else:
                    self.read(key.fileobj)  # type: ignore[arg-type]

    def accept(self) -> None:
        with suppress(OSError):
            connection, _ = self.listener.accept()
            connection.settimeout(0.0)
            self.heads[connection.fileno()] = bytearray()
            self.selector.register(connection, selectors.EVENT_READ)

    def read(self, connection: socket.socket) -> None:
        number = connection.fileno()
        head = self.heads[number]
        try:
            piece = connection.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.close(connection)
            return
        if len(head) < HEADER.size:
            head += piece
            if len(head) < HEADER.size:
                return
            piece = bytes(head[HEADER.size :])
            self.missing[number] = HEADER.unpack_from(head)[1]
        self.missing[number] -= len(piece)
        if self.missing[number] == 0:
            print(json.dumps([HEADER.unpack_from(head)[0], time.monotonic()]), flush=True)

    def close(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self.heads.pop(connection.fileno(), None)
        self.missing.pop(connection.fileno(), None)
        connection.close()


class FlowClient:
    def __init__(self, source: str, address: str, port: int) -> None:
        self.source, self.peer = source, (address, port)
        self.selector = selectors.DefaultSelector()
        self.unsent: dict[socket.socket, memoryview] = {}

    def run(self, key: int, flows: int, size: int, limit_s: float) -> dict[str, object]:
        sockets = [open_socket(self.source, 0) for _ in range(flows)]
        texts = [memoryview(HEADER.pack(key + number, size) + bytes(size)) for number in range(flows)]
        print("ready", flush=True)
        start_s = float(sys.stdin.readline())
        time.sleep(max(0.0, start_s - time.monotonic()))
        began_s = list[float]()
        for sock, text in zip(sockets, texts, strict=True):
            began_s.append(time.monotonic())
            with suppress(BlockingIOError):
                sock.connect(self.peer)
            self.unsent[sock] = text
            self.selector.register(sock, selectors.EVENT_WRITE)
        deadline_s = time.monotonic() + limit_s
        done = 0
        while self.selector.get_map() and time.monotonic() < deadline_s:
            for ready, _ in self.selector.select(_POLL_S):
                done += self.advance(ready.fileobj)  # type: ignore[arg-type]
        for sock in sockets:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()
        return {"began_s": began_s, "done": done}

    def advance(self, sock: socket.socket) -> int:
        """Send what the socket takes, then wait for the peer to close. Return whether the flow has ended."""
        try:
            left = self.unsent[sock]
            if left:
                self.unsent[sock] = left[sock.send(left[:PIECE_BYTES]) :]
                if not self.unsent[sock]:
                    # The other side closes once it has every byte.
                    sock.shutdown(socket.SHUT_WR)
                    self.selector.modify(sock, selectors.EVENT_READ)
                return 0
            if sock.recv(1):
                return 0
        except BlockingIOError:
            return 0
        except OSError:
            self.selector.unregister(sock)
            return 0
        self.selector.unregister(sock)
        return 1


def main() -> None:
    try:
        if sys.argv[1] == "serve":
            FlowServer(sys.argv[2]).run()
        else:
            source, address, port, key, flows, size, limit_s = sys.argv[2:]
            client = FlowClient(source, address, int(port))
            print(json.dumps(client.run(int(key), int(flows), int(size), float(limit_s))), flush=True)
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
