"""The balancer: one bridge with its ports, and the services on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from xenoovs.model.service import Service


class OtherTraffic(Enum):
    """What happens to packets on our ports that belong to no service."""

    PASSTHROUGH = "passthrough"
    NORMAL = "normal"
    DROP = "drop"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Uplinks:
    """Bridge and ports. Clients enter by `ingress`; `egress` leads to backends that name no port of their own.

    datapath_id: of the bridge, 64 bits; None: whichever it has.
    """

    bridge: str
    ingress: tuple[str, ...]
    egress: str
    other_traffic: OtherTraffic
    datapath_id: int | None = None

    @property
    def label(self) -> str:
        """What tells the bridge from all others, also on other hosts: `ovsbr1`, or `ovsbr1@0000c470bda056ac`."""
        return label_of(self.bridge, self.datapath_id)


def label_of(bridge: str, datapath_id: int | None) -> str:
    """As `Uplinks.label`."""
    return bridge if datapath_id is None else f"{bridge}@{datapath_id:016x}"


@dataclass(frozen=True, slots=True)
class Balancer:
    """All that one config file says."""

    uplinks: Uplinks
    services: tuple[Service, ...]

    @property
    def egress_ports(self) -> tuple[str, ...]:
        """Every port that leads to a backend, the default first, then by name."""
        hops = (backend.next_hop for service in self.services for backend in service.backends)
        others = {port for hop in hops for port in hop.ports} - {self.uplinks.egress}
        return (self.uplinks.egress, *sorted(others))

    @property
    def ports(self) -> tuple[str, ...]:
        """Every port of the bridge that the config names, without repetition."""
        return tuple(dict.fromkeys((*self.uplinks.ingress, *self.egress_ports)))
