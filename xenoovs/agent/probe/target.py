"""Whom a probe asks, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.health import ProbeKind


@dataclass(frozen=True, slots=True)
class Target:
    """One backend and the question to it. Two services that mean the same have equal targets.

    address: where to ask; for ARP the address asked for, which is the VIP where the backend has none of its own.
    port:    None for probes without ports. path, query, send, expect: as in `model.health.Health`.
    """

    kind: ProbeKind
    mac: Mac
    address: IPAddress
    port: int | None = None
    path: str = "/"
    query: str = "."
    send: str = ""
    expect: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`latency_s`: until the answer, or until it was given up. `reason`: why it failed; empty when it did not."""

    ok: bool
    latency_s: float
    reason: str = ""


class Probe(Protocol):
    """Asks once. Never raises for what the backend or the network does; always done soon after `timeout_s`."""

    def __call__(self, target: Target, *, timeout_s: float) -> Awaitable[ProbeResult]: ...
