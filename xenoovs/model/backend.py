"""A backend: one real server that answers for a service."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.address import IPAddress, Mac


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its MAC through the port `egress` of the bridge. Weight 0: configured, gets nothing.

    address: its own, at which health probes ask; no packet of a client is sent there.
    ramp:    0 < ramp <= 1, the part of its clients that it has by now, while it starts slowly; no config says this.
    """

    name: str
    mac: Mac
    weight: Fraction
    egress: str
    address: IPAddress | None = None
    ramp: Fraction = Fraction(1)
