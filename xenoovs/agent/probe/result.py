"""What came of a probe, and its reasons as short texts for people."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass


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
