"""A backend: one real server that answers for a service."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.address import IPAddress, Mac


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its MAC through the port `egress` of the bridge. Weight 0: configured, gets nothing.

    address: its own, at which health probes ask; no packet of a client is sent there.
    """

    name: str
    mac: Mac
    weight: Fraction
    egress: str
    address: IPAddress | None = None
