"""The targets of probes, and their results. The config has validated all values; no name is resolved."""

from __future__ import annotations

import errno
import os
from ipaddress import IPv4Address

from xenoovs.dataclass import dataclass
from xenoovs.model.address import IPAddress, Mac


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe. `reason`: why it failed, or `answered`; `reply`: the line of the agent of a server."""

    ok: bool
    latency_s: float
    reason: str
    reply: str = ""


class ResourceShortage(Exception):
    """This host lacks descriptors or memory for a probe, so that the probe shows nothing about the backend."""


@dataclass(slots=True)
class Expectation:
    """What a running probe waits for: if its time is over, it fails with `missing` as the reason."""

    missing: str = "no answer"
    reply: str = ""

    def await_part(self, missing: str) -> None:
        self.missing = missing

    def answer(self, reply: str) -> None:
        self.reply = reply


SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors that show nothing about a backend. ENOBUFS is not among them: a device without carrier returns it."""
_REASONS = {
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
    errno.ENOBUFS: "the interface drops packets: it has no link, or its queue is full",
    errno.EADDRNOTAVAIL: "no address or port left here to send from",
    errno.EMSGSIZE: "too long for one datagram",
}
"""Texts of errors of connect(2), send(2) and socket(7). For others, the text of the C library is used."""


def failure_reason(error: OSError) -> str:
    """Return why a probe failed with an OSError. Raises ResourceShortage if this host is the reason, not the
    backend."""
    if error.errno is None:
        return str(error) or type(error).__name__
    text = _REASONS.get(error.errno) or os.strerror(error.errno).lower()
    if error.errno in SHORTAGES:
        raise ResourceShortage(text) from error
    return f"{error.filename}: {text}" if error.filename else text


def quoted(data: bytes, *, most: int = 40) -> str:
    """Return the first bytes of a peer's data, safe to print on one line."""
    text = data[:most].decode("ascii", errors="backslashreplace")
    return ascii(text + ("..." if len(data) > most else "")).replace("\\\\x", "\\x")


@dataclass(frozen=True, slots=True)
class Via:
    """Where a probe is sent from. `interface`: the device (SO_BINDTODEVICE, socket(7)); None for the scope of the
    address (fe80::1%eth0, RFC 4007, section 11), else for the kernel's choice. `netns`: the network namespace
    (network_namespaces(7)), by its name below /run/netns (ip-netns(8)) or by a path; None for that of this process."""

    interface: str | None = None
    netns: str | None = None


ANYWHERE = Via()


@dataclass(frozen=True, slots=True)
class IcmpTarget:
    """A target that answers an echo request (RFC 792, RFC 4443)."""

    address: IPAddress
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """The agent of a server, which advertises weight and state at `port` after it has received `send`."""

    address: IPAddress
    port: int
    send: bytes = b""
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class ArpTarget:
    """A machine with this MAC, on the network of `interface`, that answers ARP (RFC 826) for `address`."""

    mac: Mac
    interface: str
    address: IPv4Address
    netns: str | None = None


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A target that accepts a TCP connection."""

    address: IPAddress
    port: int
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class UdpTarget:
    """A target that answers a datagram. `expect`: bytes that the answer must contain; empty if any answer will do."""

    address: IPAddress
    port: int
    send: bytes
    expect: bytes = b""
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class DnsTarget:
    """A target that answers a query for A records with NOERROR and a record (RFC 1035)."""

    address: IPAddress
    query: str
    port: int = 53
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of an HTTPS probe. `name`: SNI (RFC 6066); None for the Host header, or without it the address."""

    verify: bool = True
    ca_file: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A target that answers GET with a status in the range and `body` in its body. Redirections are not followed."""

    address: IPAddress
    port: int
    path: str = "/"
    host: str | None = None
    status: tuple[int, int] = (200, 399)
    body: bytes = b""
    tls: Tls | None = None
    via: Via = ANYWHERE


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A program that exits with status 0. `environment`: its variables besides PATH, the only one that it inherits."""

    argv: tuple[str, ...]
    netns: str | None = None
    environment: tuple[tuple[str, str], ...] = ()


Target = IcmpTarget | ArpTarget | TcpTarget | UdpTarget | DnsTarget | HttpTarget | ExecTarget | AgentTarget
