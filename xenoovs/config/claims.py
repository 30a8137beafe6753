"""Which packets are claimed already: claims are intervals of ports, which avoids comparing all pairs of services."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.model.balancer import Claim, PortRange, Protocol

_ALL_PORTS = PortRange(0, 65_535)

# None stands for the protocols that have no name in a config: a claim without a protocol holds them too.
_Space = tuple[Family | IPAddress, Protocol | None]


def family_label(family: Family) -> str:
    return "IPv4" if family is Family.IPV4 else "IPv6"


@dataclass(frozen=True, slots=True)
class Clash:
    """Packets that another owner holds: `place` is an address, or a family where neither claim has a VIP."""

    owner: int
    place: Family | IPAddress
    protocol: Protocol | None
    ports: PortRange

    def __str__(self) -> str:
        where = family_label(self.place) if isinstance(self.place, Family) else str(self.place)
        if self.protocol is None:
            return f"{where}, any protocol"
        if self.ports == _ALL_PORTS:
            return f"{where}, {self.protocol.value}"
        return (
            f"{where}, {self.protocol.value} {'port' if self.ports.first == self.ports.last else 'ports'} {self.ports}"
        )


@dataclass(slots=True)
class Occupancy:
    """Claims added so far. Claims without VIPs must come before those with VIPs."""

    _held: dict[_Space, list[tuple[PortRange, int]]] = field(default_factory=dict)

    def add(self, claim: Claim, *, owner: int) -> Clash | None:
        """Hold the packets of `claim`; the first packets that are held already, if any, and then nothing is added."""
        wanted = tuple(_spaces(claim))
        for place, protocol, ports in wanted:
            clash = self._holder(place, protocol, ports)
            if clash is not None:
                return clash
        for place, protocol, ports in wanted:
            insort(self._held.setdefault((place, protocol), []), (ports, owner))
        return None

    def _holder(self, place: Family | IPAddress, protocol: Protocol | None, ports: PortRange) -> Clash | None:
        for where in (place,) if isinstance(place, Family) else (family_of(place), place):
            held = self._held.get((where, protocol), [])
            index = bisect_left(held, (ports, -1))
            # Held intervals are disjoint, so that only the neighbours can overlap.
            for other, owner in held[max(index - 1, 0) : index + 1]:
                if other.overlaps(ports):
                    common = PortRange(max(other.first, ports.first), min(other.last, ports.last))
                    return Clash(owner, place, protocol, common)
        return None


def _spaces(claim: Claim) -> Iterator[tuple[Family | IPAddress, Protocol | None, PortRange]]:
    """The packets of a claim as boxes: any protocol is all that have a name, and None for the rest."""
    families = sorted(claim.families, key=lambda family: family.bits)
    places: tuple[Family | IPAddress, ...] = claim.vips or tuple(families)
    protocols = (*Protocol, None) if claim.protocol is None else (claim.protocol,)
    for place in places:
        for protocol in protocols:
            for ports in claim.ports or (_ALL_PORTS,):
                yield place, protocol, ports
