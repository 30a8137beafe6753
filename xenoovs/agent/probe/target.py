"""What a probe asks of a backend, and what came of it. Addresses are values: no probe looks up a name.

`Via` says from where: a device (SO_BINDTODEVICE, socket(7)) and a network namespace (network_namespaces(7)), by its
name below /run/netns (ip-netns(8)) or by a path; None is what the kernel chooses, and the namespace of this process.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from xenoovs.model.address import IPAddress, Mac

# What came of a probe, and its reasons as short texts for people.


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """latency_s: seconds from the start of the probe to its verdict. reason: why not, or `answered`."""

    ok: bool
    latency_s: float
    reason: str


@dataclass(slots=True)
class Waiting:
    """What a probe waits for at the moment; the deadline makes its reason of it, so a probe keeps it up to date."""

    missing: str = "no answer"

    def overdue(self, timeout_s: float) -> str:
        """The reason when time is up."""
        return f"{self.missing} within {timeout_s:g} s"


# What the errors of connect(2), send(2) and socket(7) mean for a probe; others are told in the words of the C library.
_MEANING = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EPIPE: "connection reset",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.ENETDOWN: "the interface is down",
    errno.ENODEV: "the interface does not exist",
    errno.ENXIO: "the interface does not exist",
    errno.ETIMEDOUT: "no answer",
    errno.EPERM: "not permitted here: a firewall of this machine, or the right CAP_NET_RAW is missing",
    errno.EACCES: "not permitted here: a firewall of this machine, or a broadcast address",
    errno.EMFILE: "too many open files in this process: raise LimitNOFILE",
    errno.EADDRNOTAVAIL: "no address or port left here to send from",
    errno.EMSGSIZE: "too long for one datagram",
}


def reason_of(error: OSError) -> str:
    """An error of the operating system as a reason."""
    if error.errno is None:
        return str(error) or type(error).__name__
    text = _MEANING.get(error.errno) or os.strerror(error.errno).lower()
    return f"{error.filename}: {text}" if error.filename else text


def quoted(data: bytes, *, most: int = 40) -> str:
    """The beginning of bytes that somebody sent, safe to print on one line."""
    text = data[:most].decode("ascii", errors="backslashreplace")
    return ascii(text + ("..." if len(data) > most else "")).replace("\\\\x", "\\x")


@dataclass(frozen=True, slots=True)
class Via:
    """From where a probe is sent. A scope in an address (fe80::1%eth0, RFC 4007, section 11) counts as `interface`."""

    interface: str | None = None
    netns: str | None = None


ANYWHERE = Via()


class TcpClose(Enum):
    """How an open connection is ended: RESET leaves no TIME_WAIT (SO_LINGER of 0 s, socket(7)), FIN is polite."""

    RESET = "reset"
    FIN = "fin"


@dataclass(frozen=True, slots=True)
class IcmpTarget:
    """An echo request is answered by `address` (RFC 792, RFC 4443)."""

    address: IPAddress
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class ArpTarget:
    """The machine with this MAC, on the network of `interface`, answers.

    address: one that it has: asked by ARP (RFC 826). None: it has to have IPv6, for then the packet asks all nodes.
    """

    mac: Mac
    interface: str
    address: IPv4Address | None = None
    netns: str | None = None


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A TCP connection is accepted. Raises ValueError for a port outside 1-65535."""

    address: IPAddress
    port: int
    close: TcpClose = TcpClose.RESET
    via: Via = ANYWHERE

    def __post_init__(self) -> None:
        check_port(self.port)


@dataclass(frozen=True, slots=True)
class UdpTarget:
    """`send` is answered. expect: bytes that the answer contains; empty: any answer will do. One datagram each."""

    address: IPAddress
    port: int
    send: bytes
    expect: bytes = b""
    via: Via = ANYWHERE

    def __post_init__(self) -> None:
        check_port(self.port)


@dataclass(frozen=True, slots=True)
class DnsTarget:
    """A query is answered with NOERROR (RFC 1035). expected: record data in presentation form, all in the answer."""

    address: IPAddress
    query: str
    kind: str = "A"
    expected: tuple[str, ...] = ()
    port: int = 53
    via: Via = ANYWHERE

    def __post_init__(self) -> None:
        check_port(self.port)


@dataclass(frozen=True, slots=True)
class Tls:
    """verify: certificate and name are checked. ca_file: PEM, for the system's authorities. name: SNI (RFC 6066).

    Without a name that of the request counts, and without that the address.
    """

    verify: bool = True
    ca_file: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """GET is answered with a status within `status` (first and last, both included) and a body that contains `body`.

    path: with the query, as it is sent. host: the Host header; None: the address. tls: None for plain HTTP.
    Redirections are answers and are not followed. Raises ValueError for values that no request can have.
    """

    address: IPAddress
    port: int
    path: str = "/"
    host: str | None = None
    status: tuple[int, int] = (200, 399)
    body: bytes = b""
    tls: Tls | None = None
    via: Via = ANYWHERE

    def __post_init__(self) -> None:
        check_port(self.port)
        if not self.path.startswith("/") or not self.path.isprintable() or " " in self.path:
            raise ValueError(f"{self.path!r} is not a path of the form /health?full=1")
        if self.host is not None and (not self.host or not self.host.isprintable() or " " in self.host):
            raise ValueError(f"{self.host!r} is not the name of a host")
        if not 100 <= self.status[0] <= self.status[1] <= 599:
            raise ValueError(f"{self.status[0]}-{self.status[1]} is not a range of statuses within 100-599")


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A program ends with status 0. Raises ValueError for an empty argument list.

    environment: names and values that it finds beside PATH, the only variable of ours that it gets.
    """

    argv: tuple[str, ...]
    netns: str | None = None
    environment: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a program to run is missing")


Target = IcmpTarget | ArpTarget | TcpTarget | UdpTarget | DnsTarget | HttpTarget | ExecTarget


def check_port(port: int) -> None:
    """Raises ValueError for a port outside 1-65535 (RFC 6335, section 6, reserves 0)."""
    if not 1 <= port <= 65535:
        raise ValueError(f"{port} is not a port within 1-65535")
