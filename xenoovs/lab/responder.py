"""The program that answers in a backend machine: `python -m xenoovs.lab.responder`, its job on stdin.

Clients send to a VIP: over UDP the program returns the request followed by the machine's label and names, over TCP it
sends label and names and closes. Health checks go to the machine's own address, and get the answer that they expect. If
clients' packets are translated to that address, health checks are recognized by their source address. The kernel
answers ICMP and ARP. The program goes to the background once it listens. It imports only the standard library.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from xenoovs.dataclass import asdict, dataclass, field
from xenoovs.lab.sockets import ECHOED_BYTES, destination_of, from_address, udp_socket

if TYPE_CHECKING:
    import ssl

STATUS_PORT = 7
"""UDP port of a machine's own address at which it answers with its names: echo (RFC 862)."""

_BURST = 64
_MAX_REQUEST_BYTES = 16384
_HTTP_TIMEOUT_S = 10.0
_DNS_HEADER_BYTES = 12


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """The answer to one health check. `kind`: `udp`, `dns`, `http` or `https`."""

    kind: str
    port: int
    path: str = "/"
    status: int = 200
    text: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What a machine answers. `own_addresses`: the destinations of health checks. `translated`: ports of `listen` at
    which clients' packets arrive for an own address. `probe_addresses`: the sources of health checks."""

    label: str
    names: tuple[str, ...]
    listen: tuple[tuple[str, int], ...]
    log: str
    own_addresses: tuple[str, ...] = ()
    checks: tuple[CheckAnswer, ...] = ()
    delay_s: float = 0.0
    certificate: str | None = None
    translated: tuple[tuple[str, int], ...] = ()
    probe_addresses: tuple[str, ...] = ()

    @property
    def greeting(self) -> bytes:
        return f"{self.label} {'/'.join(self.names)}\n".encode()


def render_job(job: Job) -> str:
    return json.dumps(asdict(job))


def parse_job(text: str) -> Job:
    facts = json.loads(text)
    for key in ("names", "own_addresses", "probe_addresses"):
        facts[key] = tuple(facts[key])
    for key in ("listen", "translated"):
        facts[key] = tuple((str(protocol), int(port)) for protocol, port in facts[key])
    facts["checks"] = tuple(CheckAnswer(**check) for check in facts["checks"])
    return Job(**facts)


def main() -> int:
    """Listen, return to the caller, and answer in the background until killed."""
    job = parse_job(sys.stdin.read())
    try:
        responder = Responder(job, open_sockets(job.listen))
    except OSError as error:
        print(f"cannot listen: {error}", file=sys.stderr)
        return 1
    if os.fork():
        return 0
    detach(job.log)
    responder.serve()
    return 0


def open_sockets(listen: Iterable[tuple[str, int]]) -> list[socket.socket]:
    """Return a socket for each port, protocol and IP version; each receives for every address of the machine."""
    families = [socket.AF_INET, *([socket.AF_INET6] if os.path.exists("/proc/sys/net/ipv6") else [])]  # noqa: PTH110
    return [_open(protocol, port, family) for protocol, port in listen for family in families]


def detach(log: str) -> None:
    """Begin a new session, and write errors to a file."""
    os.setsid()
    os.chdir("/")
    with open(os.devnull, "rb") as nothing, open(log, "ab") as file:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


@dataclass(slots=True)
class Responder:
    job: Job
    sockets: list[socket.socket]
    _tls: ssl.SSLContext | None = None
    _late: deque[tuple[float, Callable[[], object]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.job.certificate is not None:
            # Imported here, as it would slow down `lab --help`.
            import ssl

            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(self.job.certificate)

    def serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            for sock in self.sockets:
                answer = self._accept if sock.type == socket.SOCK_STREAM else self._receive
                selector.register(sock, selectors.EVENT_READ, partial(answer, sock))
            while True:
                for key, _ in selector.select(self._pause_s()):
                    # Ends when nothing is left to read, or the client has disconnected.
                    with suppress(OSError):
                        for _ in range(_BURST):
                            key.data()
                while self._late and self._late[0][0] <= time.monotonic():
                    with suppress(OSError):
                        self._late.popleft()[1]()

    def _pause_s(self) -> float | None:
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else None

    def _answer(self, send: Callable[[], object]) -> None:
        """Send an answer after the delay of the job."""
        if self.job.delay_s:
            self._late.append((time.monotonic() + self.job.delay_s, send))
        else:
            send()

    def _receive(self, sock: socket.socket) -> None:
        # The source of the answer must be the destination of the request, one of many addresses of this machine.
        request, ancillary, _, client = sock.recvmsg(2048, 256)
        asked, port = destination_of(ancillary), sock.getsockname()[1]
        if self._is_check("udp", port, socket.inet_ntop(sock.family, asked), client[0]):
            answer = self._check_answer(request, port)
        else:
            answer = request[:ECHOED_BYTES] + b" " + self.job.greeting
        self._answer(lambda: sock.sendmsg([answer], from_address(asked), 0, client))

    def _check_answer(self, request: bytes, port: int) -> bytes:
        check = next((check for check in self.job.checks if check.port == port and check.kind in ("udp", "dns")), None)
        if check is None and port == STATUS_PORT:
            return self.job.greeting
        if check is not None and check.kind == "dns":
            return dns_answer(request)
        return request + b" " + self.job.greeting + (check.text.encode() if check is not None else b"")

    def _accept(self, sock: socket.socket) -> None:
        connection, client = sock.accept()
        asked, port = connection.getsockname()[:2]
        checks = [check for check in self.job.checks if check.port == port and check.kind in ("http", "https")]
        if checks and self._is_check("tcp", port, asked, client[0]):
            Thread(target=self._serve_http, args=(connection, checks), daemon=True).start()
        else:
            self._answer(partial(_greet, connection, self.job.greeting))

    def _serve_http(self, connection: socket.socket, checks: list[CheckAnswer]) -> None:
        with suppress(OSError), connection:
            connection.settimeout(_HTTP_TIMEOUT_S)
            if checks[0].kind == "https" and self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            request = b""
            while b"\r\n\r\n" not in request and len(request) < _MAX_REQUEST_BYTES:
                if not (piece := connection.recv(4096)):
                    return
                request += piece
            time.sleep(self.job.delay_s)
            connection.sendall(http_answer(request, checks, self.job.greeting))
            connection.close()

    def _is_check(self, protocol: str, port: int, asked: str, client: str) -> bool:
        """Return whether packets from `client` to the address `asked` are a health check."""
        is_translated = (protocol, port) in self.job.translated and client not in self.job.probe_addresses
        return asked in self.job.own_addresses and not is_translated


def http_answer(request: bytes, checks: Iterable[CheckAnswer], greeting: bytes) -> bytes:
    """Return the answer to an HTTP request: that of the check with its path, else 404."""
    words = request.split(b"\r\n", 1)[0].split()
    path = words[1].decode("ascii", errors="replace") if len(words) > 1 else ""
    check = next((check for check in checks if check.path == path), None)
    status, body = (404, b"no health check asks for this path\n") if check is None else (check.status, greeting)
    body += check.text.encode() if check is not None else b""
    head = (
        f"HTTP/1.1 {status} lab\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def dns_answer(query: bytes) -> bytes:
    """Return the answer to a query with one question (RFC 1035, section 4.1): an A record 192.0.2.1."""
    end = _DNS_HEADER_BYTES
    while end < len(query) and query[end]:
        end += query[end] + 1
    question = query[_DNS_HEADER_BYTES : end + 5]
    # QR, RD as in the query, RA, NOERROR; one question, one answer. The name points to the question's.
    header = query[:2] + bytes([0x80 | (query[2] & 0x79 if len(query) > 2 else 0), 0x80, 0, 1, 0, 1, 0, 0, 0, 0])
    return header + question + b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01"


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


def _greet(connection: socket.socket, greeting: bytes) -> None:
    with connection:
        connection.send(greeting)


if __name__ == "__main__":
    sys.exit(main())
