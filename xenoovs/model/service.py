"""A service: what clients connect to, and how its clients are split over backends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from xenoovs.model.address import Family, IPAddress, Mac, family_of
from xenoovs.model.backend import Backend
from xenoovs.model.block_key import LOW_SOURCE_BITS, MAX_KEY_BITS, BlockKey, KeyField
from xenoovs.model.drain import AT_ONCE, Drain
from xenoovs.model.health import Health


class Protocol(Enum):
    """The IP protocols a service can be bound to."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"
    ICMP = "icmp"

    @property
    def has_ports(self) -> bool:
        return self is not Protocol.ICMP

    def number(self, family: Family) -> int:
        """Assigned Internet Protocol Numbers (IANA); ICMP is another protocol on IPv6 (RFC 4443)."""
        if self is Protocol.ICMP:
            return 1 if family is Family.IPV4 else 58
        return {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}[self]


def usual_positions(field: KeyField, protocol: Protocol | None) -> tuple[int, ...] | None:
    """Return the order of the bits of a service that lists none; None: 0, 1, 2, ...

    Linux opens TCP connections from even ports, as long as one is free (__inet_hash_connect() in
    net/ipv4/inet_hashtables.c), so that the lowest bit of a TCP source port comes last.
    """
    is_tcp_port = (field, protocol) == (KeyField.SOURCE_PORT, Protocol.TCP)
    return (*range(1, MAX_KEY_BITS), 0) if is_tcp_port else None


class Churn(Enum):
    """What a change of weights spares: clients that move, or blocks (= hardware entries), or both in balance."""

    LEAST = "least"
    BALANCED = "balanced"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Destination ports first..last, both included, 0..65535."""

    first: int
    last: int

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def overlaps(self, other: PortRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def merge_ports(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports in the fewest ranges, sorted: those that overlap or follow each other become one."""
    merged: list[PortRange] = []
    for ports in sorted(ranges):
        if merged and ports.first <= merged[-1].last + 1:
            merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, ports.last))
        else:
            merged.append(ports)
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class Claim:
    """The packets a service is for. No vips: every packet of `families`. No protocol: any. No ports: any.

    Ports stand only beside a protocol that has some. With vips, a family that none of them has gets no packet.
    """

    families: frozenset[Family]
    vips: tuple[IPAddress, ...] = ()
    protocol: Protocol | None = None
    ports: tuple[PortRange, ...] = ()

    @property
    def served_families(self) -> tuple[Family, ...]:
        """The IP versions of which some packet is claimed, IPv4 first."""
        named = {family_of(vip) for vip in self.vips} if self.vips else self.families
        return tuple(family for family in Family if family in self.families and family in named)

    def vips_of(self, family: Family) -> tuple[IPAddress, ...]:
        return tuple(vip for vip in self.vips if family_of(vip) is family)

    def overlaps(self, other: Claim) -> bool:
        """Whether some packet belongs to both."""
        return (
            bool(self.families & other.families)
            and (not self.vips or not other.vips or not set(self.vips).isdisjoint(other.vips))
            and (self.protocol is None or other.protocol is None or self.protocol is other.protocol)
            and (not self.ports or not other.ports or any(a.overlaps(b) for a in self.ports for b in other.ports))
        )


@dataclass(frozen=True, slots=True)
class Service:
    """Clients of `claim` are split over `backends` by the bits of `key`.

    tolerance:  relative, > 0; a share may differ from its weight by this fraction of itself.
    max_flows:  budget of OpenFlow flows for the blocks, which then sets the tolerance; None: no budget.
    vip_mac:    the MAC that answers ARP for the VIPs, and with a controller neighbour discovery; None: no answers.
    source_mac: rewrites the Ethernet source too; None: it stays (each client-side MAC then costs no extra entry).
    health:     None: backends are taken to serve.
    drain:      what becomes of open connections when clients move.
    """

    name: str
    claim: Claim
    backends: tuple[Backend, ...]
    key: BlockKey = LOW_SOURCE_BITS
    tolerance: Fraction = Fraction(1, 20)
    max_flows: int | None = None
    vip_mac: Mac | None = None
    source_mac: Mac | None = None
    churn: Churn = Churn.BALANCED
    health: Health | None = None
    drain: Drain = AT_ONCE

    @property
    def weights(self) -> tuple[Fraction, ...]:
        return tuple(backend.weight for backend in self.backends)
