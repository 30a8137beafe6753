"""A backend: one real server that answers for a service."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xenoovs.model.address import Mac


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its MAC through the port `egress` of the bridge. Weight 0: configured, gets nothing."""

    name: str
    mac: Mac
    weight: Fraction
    egress: str
