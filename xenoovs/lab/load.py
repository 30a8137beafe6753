"""What traffic to send: which clients, to which destinations of which services. Pure but for the seeded choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import product

from xenoovs.errors import LabError
from xenoovs.lab.addresses import IPNetwork, client_net, draw_clients, server_net, whole_space
from xenoovs.lab.machines import tried_ports, tried_protocols
from xenoovs.lab.tally import Flight
from xenoovs.lab.topology import vips_of
from xenoovs.model.address import Family, IPAddress
from xenoovs.model.balancer import Balancer
from xenoovs.model.block_key import KeyField
from xenoovs.model.service import Protocol, Service


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic. `packets` is split evenly over the services, and there over VIPs, ports and IP versions.

    clients:  different source addresses of each IP version, > 0.
    packets:  in all, > 0; for TCP connections. Packet after packet goes to the next client, round and round.
    protocol: None: each service's own, UDP where it takes any. Services of another protocol are left out.
    sources:  addresses or nets to draw clients from; empty: the lab's client net, or, for a service that splits by bits
              which are constant there, all unicast addresses.
    """

    clients: int = 2000
    packets: int = 20_000
    protocol: Protocol | None = None
    sources: tuple[IPNetwork, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """The traffic of one service. `clients`: how many source addresses send."""

    service: Service
    protocol: Protocol
    flights: tuple[Flight, ...]

    @property
    def clients(self) -> int:
        return len({source for flight in self.flights for source in flight.sources})


@dataclass(slots=True)
class _Clients:
    """Draws the clients of a family and net once."""

    load: Load
    vips: Collection[IPAddress]
    drawn: dict[tuple[IPNetwork, ...], tuple[str, ...]] = field(default_factory=dict)

    def of(self, service: Service, family: Family) -> tuple[str, ...]:
        nets = self._nets(service, family)
        if nets and nets not in self.drawn:
            addresses = draw_clients(
                nets, count=min(self.load.clients, self.load.packets), seed=self.load.seed, taken=self.vips
            )
            self.drawn[nets] = tuple(map(str, addresses))
        return self.drawn.get(nets, ())

    def _nets(self, service: Service, family: Family) -> tuple[IPNetwork, ...]:
        if self.load.sources:
            return tuple(net for net in self.load.sources if net.max_prefixlen == family.bits)
        usual = client_net(family, self.vips)
        highest = max(service.key.positions or (0,))
        return (usual if highest < family.bits - usual.prefixlen else whole_space(family),)


def plan_trials(balancer: Balancer, load: Load) -> tuple[tuple[Trial, ...], tuple[tuple[str, str], ...]]:
    """The trials of the services in their order, and those left out: pairs of service name and reason.

    Raises LabError when the load is empty or nothing is left to try.
    """
    if load.clients < 1 or load.packets < 1:
        raise LabError(f"traffic of {load.clients} clients and {load.packets} packets is none; take 1 or more of each")
    reasons = {service.name: _why_not(service, load) for service in balancer.services}
    tried = [service for service in balancer.services if reasons[service.name] is None]
    skipped = tuple((name, reason) for name, reason in reasons.items() if reason is not None)
    if not tried:
        raise LabError("no service can be tried: " + "; ".join(f"{name}: {reason}" for name, reason in skipped))
    clients = _Clients(load, vips_of(balancer))
    shares = _split(load.packets, len(tried))
    trials = (_trial(service, load, clients, packets=packets) for service, packets in zip(tried, shares, strict=True))
    return tuple(trials), skipped


def _why_not(service: Service, load: Load) -> str | None:
    possible = tried_protocols(service.claim)
    if not possible:
        return "the lab cannot send SCTP"
    if load.protocol is not None and load.protocol not in possible:
        return f"it does not take {load.protocol.value}"
    if load.sources and not {Family(net.max_prefixlen) for net in load.sources} & service.claim.families:
        return "none of the given sources has its IP version"
    return None


def _trial(service: Service, load: Load, clients: _Clients, *, packets: int) -> Trial:
    protocol = load.protocol or tried_protocols(service.claim)[0]
    ports = tried_ports(service.claim) if protocol.has_ports else (0,)
    sources = {family: clients.of(service, family) for family in Family if family in service.claim.families}
    targets = [(target, family) for family in sources if sources[family] for target in _destinations(service, family)]
    aims, by_port = list(product(targets, ports)), service.key.field is KeyField.SOURCE_PORT
    flights = []
    for i, ((destination, family), port) in enumerate(aims):
        senders = _round_robin(sources[family], range(i, packets, len(aims)), every=len(aims))
        flights.append(Flight(protocol.value, destination, port, senders, by_port))
    return Trial(service, protocol, tuple(flight for flight in flights if flight.sources))


def _destinations(service: Service, family: Family) -> tuple[str, ...]:
    if not service.claim.vips:
        return (str(server_net(family)[1]),)
    return tuple(map(str, service.claim.vips_of(family)))


def _round_robin(clients: Sequence[str], packets: range, *, every: int) -> tuple[str, ...]:
    return tuple(clients[packet // every % len(clients)] for packet in packets)


def _split(total: int, parts: int) -> list[int]:
    """`total` in `parts` as equal as can be, each at least 1."""
    return [max(1, (total + part) // parts) for part in range(parts)]
