"""The program that answers in a backend machine: `python -m xenoovs.lab.responder`, its job on stdin.

UDP: it returns the request with the machine's label and names behind it. TCP: it sends label and names and closes. The
kernel answers ICMP. It goes to the background once it listens. Needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from xenoovs.lab.sockets import ECHOED_BYTES, destination_of, from_address, udp_socket

_BURST = 64


@dataclass(frozen=True, slots=True)
class Job:
    """`listen`: pairs of protocol and port. `log`: file for what goes wrong later."""

    label: str
    names: tuple[str, ...]
    listen: tuple[tuple[str, int], ...]
    log: str

    @property
    def greeting(self) -> bytes:
        return f"{self.label} {'/'.join(self.names)}\n".encode()


def main() -> int:
    """Listen, return to the caller, and answer in the background until killed."""
    facts = json.load(sys.stdin)
    listen = tuple((str(protocol), int(port)) for protocol, port in facts["listen"])
    job = Job(facts["label"], tuple(facts["names"]), listen, facts["log"])
    try:
        sockets = open_sockets(job.listen)
    except OSError as error:
        print(f"cannot listen: {error}", file=sys.stderr)
        return 1
    if os.fork():
        return 0
    detach(job.log)
    serve(sockets, job.greeting)
    return 0


def open_sockets(listen: Iterable[tuple[str, int]]) -> list[socket.socket]:
    """Return a socket for each port, protocol and IP version; each receives for every address of the machine."""
    families = [socket.AF_INET, *([socket.AF_INET6] if os.path.exists("/proc/sys/net/ipv6") else [])]  # noqa: PTH110
    return [_open(protocol, port, family) for protocol, port in listen for family in families]


def detach(log: str) -> None:
    """Become a process of its own session, which writes errors to a file."""
    os.setsid()
    os.chdir("/")
    with open(os.devnull, "rb") as nothing, open(log, "ab") as file:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def serve(sockets: Iterable[socket.socket], greeting: bytes) -> None:
    """Answer forever."""
    with selectors.DefaultSelector() as selector:
        for sock in sockets:
            answer = _answer_tcp if sock.type == socket.SOCK_STREAM else _answer_udp
            selector.register(sock, selectors.EVENT_READ, partial(answer, sock, greeting))
        while True:
            for key, _ in selector.select():
                # Until there is nothing more to read, or the client of this one has gone away.
                with suppress(OSError):
                    for _ in range(_BURST):
                        key.data()


def _open(protocol: str, port: int, family: socket.AddressFamily) -> socket.socket:
    if protocol == "udp":
        sock = udp_socket(family)
        sock.bind(("", port))
        return sock
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.settimeout(0)
    sock.bind(("", port))
    sock.listen(1024)
    return sock


def _answer_udp(sock: socket.socket, greeting: bytes) -> None:
    # The answer must come from the address that was asked, which is one of many on this machine.
    request, ancillary, _, client = sock.recvmsg(2048, 256)
    sock.sendmsg([request[:ECHOED_BYTES], b" ", greeting], from_address(destination_of(ancillary)), 0, client)


def _answer_tcp(sock: socket.socket, greeting: bytes) -> None:
    connection, _ = sock.accept()
    with connection:
        connection.send(greeting)


if __name__ == "__main__":
    sys.exit(main())
