"""Checks of backends, and the results of their probes. The config has validated all values; no name is resolved."""

from __future__ import annotations

import errno
import os
from fractions import Fraction
from ipaddress import IPv4Address
from zlib import crc32

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import SHORTAGES
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import Health


@dataclass(frozen=True, slots=True)
class Check:
    """A health check of a backend, or the polling of a server's agent (`min_change`: of the advertised weight).

    Attributes:
        health: How to probe. Its port is that of this backend. Without a probe the agent of a server is asked.
        address: Of the backend, or of a VIP that `mac`, the backend, resolves by ARP; 0.0.0.0 if a program needs none.
        environment: Of a program, besides PATH, the only variable that it inherits.
        seed: Its hash and its place in time: differs between most checks, and is the same in every run.
    """

    health: Health
    address: IPAddress = IPv4Address(0)
    mac: Mac | None = None
    environment: tuple[tuple[str, str], ...] = ()
    min_change: Fraction | None = None
    seed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        how = self.health
        names = how.probe, how.port, how.interface, how.netns, how.host, how.path, how.query, how.send, how.command
        named = repr((*names, self.address, self.mac, self.environment))
        object.__setattr__(self, "seed", crc32(named.encode()))

    def __hash__(self) -> int:
        # Each result looks up its check several times. Hashing all fields would take longer than the rest.
        return self.seed


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
