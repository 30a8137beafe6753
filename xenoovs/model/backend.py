"""A backend: one real server that answers for a service."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.address import IPAddress
from xenoovs.model.next_hop import NextHop


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its next hop. Weight 0: configured, gets nothing.

    address: its own, at which health probes ask; no packet of a client is sent there.
    follows: it was given by its address alone: its MAC is found on its network; the next hop has none until then.
    """

    name: str
    next_hop: NextHop
    weight: Fraction
    address: IPAddress | None = None
    follows: bool = False
