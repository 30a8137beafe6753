"""A backend: one real server that answers for a service."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.address import IPAddress, Mac

UNKNOWN_MAC = Mac(0)
"""What stands in an ARP request where the MAC is asked for; no machine has it (docs/adr/0012)."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its MAC through the port `egress` of the bridge. Weight 0: configured, gets nothing.

    address: its own, at which health probes ask; no packet of a client is sent there.
    follows: it was given by its address alone: its MAC is found on its network, and UNKNOWN_MAC until then.
    ramp:    0 < ramp <= 1, the part of its clients that it has by now, while it starts slowly; no config says this.
    """

    name: str
    mac: Mac
    weight: Fraction
    egress: str
    address: IPAddress | None = None
    follows: bool = False
    ramp: Fraction = Fraction(1)
