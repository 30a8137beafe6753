"""Finds what services cannot share: names, packets, VIP MACs, servers of NAT.

Claims are intervals of ports, which avoids comparing all pairs of services.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from xenoovs.dataclass import dataclass, field
from xenoovs.model.address import Family, IPAddress, IPNetwork, Mac, Vip, family_of
from xenoovs.model.balancer import Claim, PortRange, Protocol, Service, share_frames
from xenoovs.model.next_hop import l4_port_of, vlan_of
from xenoovs.model.tunnel import HostTunnel, SwitchTunnel
from xenoovs.model.values import OTHER, Remark

_ALL_PORTS = PortRange(0, 65_535)

# None stands for the protocols that have no name in a config: a claim without a protocol holds them too.
_Space = tuple[Family | Vip, Protocol | None, int | None]


def family_label(family: Family) -> str:
    return "IPv4" if family is Family.IPV4 else "IPv6"


@dataclass(frozen=True, slots=True)
class Clash:
    """Packets that another owner has. `place`: a VIP, or a family if neither claim has one."""

    owner: int
    place: Family | Vip
    protocol: Protocol | None
    ports: PortRange
    vlan: int | None = None

    def __str__(self) -> str:
        tag = "" if self.vlan is None else f"VLAN {self.vlan}, " if self.vlan else "untagged, "
        where = tag + (family_label(self.place) if isinstance(self.place, Family) else str(self.place))
        if self.protocol is None:
            return f"{where}, any protocol"
        if self.ports == _ALL_PORTS:
            return f"{where}, {self.protocol.value}"
        return (
            f"{where}, {self.protocol.value} {'port' if self.ports.first == self.ports.last else 'ports'} {self.ports}"
        )


@dataclass(slots=True)
class Occupancy:
    """Claims added so far. Claims without VIPs must come before those with VIPs. A longer prefix, or an address, in a
    prefix does not clash: the longer one has its packets."""

    _held: dict[_Space, list[tuple[PortRange, int]]] = field(default_factory=dict)
    _vlans: dict[int | None, None] = field(default_factory=lambda: {None: None})

    def add(self, claim: Claim, *, owner: int) -> Clash | None:
        """Add the packets of `claim`. If some are taken, return the first clash and add nothing."""
        wanted = tuple(_spaces(claim))
        for place, protocol, ports in wanted:
            clash = self._holder(place, protocol, ports, claim.vlan)
            if clash is not None:
                return clash
        for place, protocol, ports in wanted:
            insort(self._held.setdefault((place, protocol, claim.vlan), []), (ports, owner))
        self._vlans[claim.vlan] = None
        return None

    def _holder(
        self, place: Family | Vip, protocol: Protocol | None, ports: PortRange, vlan: int | None
    ) -> Clash | None:
        places = (place,) if isinstance(place, Family) else (family_of(place), place)
        for where, tag in product(places, self._vlans if vlan is None else (None, vlan)):
            held = self._held.get((where, protocol, tag), [])
            index = bisect_left(held, (ports, -1))
            # Held intervals are disjoint, so that only the neighbours can overlap.
            for other, owner in held[max(index - 1, 0) : index + 1]:
                if other.overlaps(ports):
                    common = PortRange(max(other.first, ports.first), min(other.last, ports.last))
                    return Clash(owner, place, protocol, common, tag if vlan is None else vlan)
        return None


def _spaces(claim: Claim) -> Iterator[tuple[Family | Vip, Protocol | None, PortRange]]:
    """Yield the packets of a claim as boxes: any protocol becomes every named one, and None for the rest."""
    families = sorted(claim.families, key=lambda family: family.bits)
    places: tuple[Family | Vip, ...] = claim.vips or tuple(families)
    protocols = (*Protocol, None) if claim.protocol is None else (claim.protocol,)
    for place in places:
        for protocol in protocols:
            for ports in claim.ports or (_ALL_PORTS,):
                yield place, protocol, ports


def _answers(service: Service) -> Iterator[tuple[int, IPAddress, Claim]]:
    """Yield, with NAT, the packets that each server sends to clients, with its index and its address, which stands in
    place of a VIP. Without others of its own they have the ports and the VLAN of the service."""
    claim = service.claim
    for index, backend in enumerate(service.backends if service.nat is not None else ()):
        if (address := backend.address) is not None:
            port, vlan = l4_port_of(backend.next_hop), vlan_of(backend.next_hop)
            ports = claim.ports if port is None else (PortRange(port, port),)
            vlan = claim.vlan if vlan is None else vlan
            yield index, address, Claim(frozenset({Family.IPV4}), (address,), claim.protocol, ports, vlan=vlan)


def claimed(service: Service) -> object:
    """Return what `check_between` compares of a service: with the same, a change needs no check."""
    return service.name, service.claim, service.vip_mac, tuple(_answers(service))


Numbered = tuple[int, Service]


def check_between(services: Iterable[Numbered], groups: Sequence[frozenset[str]] = ()) -> Iterator[Remark]:
    """Find what more than one service claims. `groups`: by the number of a service, the groups of DPUs that have it;
    empty if all have it. Services without a common group may claim the same."""
    numbered = tuple(services)
    yield from check_names("services", numbered)
    if not (together := tuple(_check_claimed(numbered))) or not any(groups):
        yield from together
        return
    for group in sorted(frozenset[str]().union(*groups)):
        yield from _check_claimed(tuple(each for each in numbered if not groups[each[0]] or group in groups[each[0]]))


def _check_claimed(services: tuple[Numbered, ...]) -> Iterator[Remark]:
    """Find what more than one service of one bridge claims."""
    yield from _check_claims(services)
    yield from _check_vip_macs(services)
    yield from _check_answers(services)


def check_names(key: str, numbered: Iterable[tuple[int, Service | HostTunnel | SwitchTunnel]]) -> Iterator[Remark]:
    """Find what has the name of another item of the list `key`. `numbered`: with the indexes there."""
    first: dict[str, int] = {}
    for i, item in numbered:
        other = first.setdefault(item.name, i)
        if other != i:
            yield Remark((key, i, "name"), f"'{item.name}' is already {OTHER}; name each once", other=(key, other))


def _check_claims(services: tuple[Numbered, ...]) -> Iterator[Remark]:
    """Services without a VIP go first: they claim packets of every VIP."""
    occupancy, by_index = Occupancy(), dict(services)
    for i, service in sorted(services, key=lambda numbered: bool(numbered[1].claim.vips)):
        clash = occupancy.add(service.claim, owner=i)
        if clash is not None:
            one, other = sorted((i, clash.owner))
            anywhere = [each.name for each in (by_index[one], by_index[other]) if each.claim.vlan is None]
            advice = "change vip, protocol or ports of one"
            if len(anywhere) == 1:
                advice = f"{anywhere[0]} has no `vlan` and claims every VLAN; write `vlan: untagged` or an id there"
            yield Remark(
                ("services", other),
                f"{by_index[other].name} claims packets that {OTHER} ({by_index[one].name}) claims too ({clash}); "
                f"{advice}",
                other=("services", one),
            )


def _check_vip_macs(services: Iterable[Numbered]) -> Iterator[Remark]:
    first = defaultdict[Vip, dict[int | None, tuple[Mac, int]]](dict)
    for i, service in services:
        if service.vip_mac is None:
            continue
        for vip in service.claim.vips:
            known = first[vip]
            known.setdefault(service.claim.vlan, (service.vip_mac, i))
            shared = (found for vlan, found in known.items() if share_frames(vlan, service.claim.vlan))
            mac, other = next((found for found in shared if found[0] != service.vip_mac), (service.vip_mac, i))
            if mac != service.vip_mac:
                yield Remark(
                    ("services", i, "vip_mac"),
                    f"{service.vip_mac} answers for {vip}, for which {OTHER} answers {mac}; "
                    "write one MAC for one address",
                    other=("services", other),
                )
                break


def _check_answers(services: tuple[Numbered, ...]) -> Iterator[Remark]:
    """Find servers of NAT whose packets two services would both take for their own."""
    occupancy = Occupancy()
    vips = defaultdict[Vip, list[tuple[int | None, int]]](list)
    for i, service in services:
        for vip in service.claim.vips:
            vips[vip].insert(0, (service.claim.vlan, i))
    nets = [vip for vip in vips if isinstance(vip, IPNetwork)]
    for i, service in services:
        for j, address, answers in _answers(service):
            here = ("services", i, "backends", j, "address")
            places = (address, *(net for net in nets if address in net))
            near = ((place, *claimed) for place in places for claimed in vips.get(place, ()))
            taken = next((each for each in near if share_frames(each[1], answers.vlan)), None)
            if taken is not None:
                which = "" if taken[0] == address else f" in {taken[0]},"
                yield Remark(
                    here,
                    f"{address} is{which} a VIP of {OTHER}; NAT needs an address that only the server has",
                    other=("services", taken[2]),
                )
                continue
            clash = occupancy.add(answers, owner=i)
            if clash is not None and clash.owner != i:
                yield Remark(
                    here,
                    f"{OTHER} has this server too ({clash}), so that NAT cannot know to which of the two its packets "
                    "belong; give it another port or address in one of them",
                    other=("services", clash.owner),
                )
