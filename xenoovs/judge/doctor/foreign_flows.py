"""The cost of foreign flows, by simulation of packets of many clients with and without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address

from xenoovs.compile.program import Program
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown
from xenoovs.errors import SimulateError
from xenoovs.judge.simulate.classifier import prefix_fields_of
from xenoovs.judge.simulate.megaflows import pipeline_of, predict
from xenoovs.model.address import Family, IPAddress, IPNetwork
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.packet import Packet, service_of
from xenoovs.openflow.flow import Field, Flow, is_foreign, match_of, output_ports, tag_of
from xenoovs.openflow.text import render_flow

MAX_PACKETS = 2048
"""Simulated clients in total: enough for every block of common configs, in a second or two."""

_VARYING = frozenset(("nw_tos", "ip_dscp", "nw_ecn", "nw_ttl", "tcp_flags", "ipv6_label"))
"""Header fields (ovs-fields(7)) that differ between clients, or even between packets of one."""

_GOLDEN_RATIO = 2654435761
"""Knuth's multiplicative hash (The Art of Computer Programming, 3, 6.4): spreads 0, 1, 2 ... over 32 bits."""


@dataclass(frozen=True, slots=True)
class ForeignCost:
    """The cost of foreign flows, by simulation of packets of many clients."""

    packets: int
    entries: int
    entries_with_foreign: int
    overridden: int


@dataclass(frozen=True, slots=True)
class ForeignFlows:
    """Foreign flows on the bridge. `passed`: flows that our packets pass, as text. `others`: number of other flows. If
    the cost is unknown: `varying` has fields that they match and that differ between clients, such as `nw_tos`; `taken`
    has services of which they take every packet. `gone`: numbers of ports that they name; Open vSwitch prints the name
    of each port that the bridge has."""

    passed: tuple[str, ...] = ()
    others: int = 0
    cost: Fact[ForeignCost] = NOT_READ
    varying: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def foreign_flows(
    balancer: Balancer, program: Program, foreign: Iterable[Flow], *, version: str | None
) -> ForeignFlows:
    """Return the foreign flows that our packets pass, and their cost. Flows of our own controller are not foreign."""
    floors: dict[int, int] = {}
    for made in program.services:
        for flow in made.flows:
            floors[flow.table] = min(flow.priority, floors.get(flow.table, flow.priority))
    all_foreign = tuple(_as_varying(flow) for flow in foreign if is_foreign(flow.cookie))
    ports = (None, *balancer.uplinks.ingress)
    passed = tuple(
        flow
        for flow in all_foreign
        if flow.table in floors and flow.priority >= floors[flow.table] and flow.match.in_port in ports
    )
    cost: Fact[ForeignCost] = NOT_READ
    varying, taken = tuple[str, ...](), tuple[str, ...]()
    if passed:
        clients = _Clients(balancer, program, prefix_fields_of(version))
        cost = clients.cost(passed)
        if isinstance(cost, Unknown):
            varying, taken = clients.varying(passed), clients.taken(passed)
    named = {each.match.in_port for each in all_foreign if each.match.in_port is not None}
    named.update(port for each in all_foreign for port in output_ports(each.actions))
    gone = tuple(sorted(port for port in named if port.isascii() and port.isdigit()))
    return ForeignFlows(tuple(map(render_flow, passed)), len(all_foreign) - len(passed), cost, varying, taken, gone)


def _as_varying(flow: Flow) -> Flow:
    """Return the flow with its type of service as a condition that is not simulated: all samples have one value."""
    tos = flow.match.get(Field.NW_TOS)
    if tos is None:
        return flow
    others = (condition for condition in flow.match.masked if condition is not tos)
    foreign = (*flow.match.foreign, f"nw_tos={tos.value}")
    return replace(flow, key=replace(flow.key, match=match_of(others, in_port=flow.match.in_port, foreign=foreign)))


class _Clients:
    """Sends packets of many clients through our flows, alone and beside others."""

    def __init__(self, balancer: Balancer, program: Program, tries: tuple[Field, ...]) -> None:
        self._flows, self._tries, self._samples = program.flows, tries, tuple(sample_packets(balancer))
        alone = pipeline_of(self._flows, tries)
        self._ours = [predict(alone, packet) for _, packet in self._samples]

    def varying(self, passed: tuple[Flow, ...]) -> tuple[str, ...]:
        """Return the fields that are not simulated, of flows that our packets would meet without these conditions."""
        found: dict[str, None] = {}
        for flow in passed:
            names = [condition.partition("=")[0] for condition in flow.match.foreign]
            if names and _VARYING.issuperset(names):
                without = replace(flow, key=replace(flow.key, match=replace(flow.match, foreign=())))
                cost = self.cost((without,))
                if not isinstance(cost, Unknown) and cost.overridden:
                    found.update(dict.fromkeys(names))
        return tuple(found)

    def taken(self, passed: tuple[Flow, ...]) -> tuple[str, ...]:
        """Return the services of which these flows take every packet, whatever their actions."""
        dropping = (replace(flow, actions=()) for flow in passed if not flow.match.foreign)
        beside, missed = pipeline_of((*self._flows, *dropping), self._tries), dict[str, bool]()
        for (service, packet), (_, ours) in zip(self._samples, self._ours, strict=True):
            if not missed.get(service):
                missed[service] = ours.copies == predict(beside, packet)[1].copies
        return tuple(service for service, is_missed in missed.items() if not is_missed)

    def cost(self, passed: tuple[Flow, ...]) -> Fact[ForeignCost]:
        try:
            beside = pipeline_of((*self._flows, *passed), self._tries)
            theirs = [predict(beside, packet) for _, packet in self._samples]
        except SimulateError as error:
            return Unknown(str(error))
        overridden = sum(a.copies != b.copies for (_, a), (_, b) in zip(self._ours, theirs, strict=True))
        entries = len({each for each, _ in self._ours}), len({each for each, _ in theirs})
        return ForeignCost(len(theirs), *entries, overridden)


def sample_packets(balancer: Balancer) -> Iterator[tuple[str, Packet]]:
    """Yield packets of many clients to every service, each with its name; the same ones each time."""
    entries = [
        (port, service, family)
        for service in balancer.services
        for family in service.claim.served_families
        for port in balancer.uplinks.ingress
    ]
    each = max(1, MAX_PACKETS // max(1, len(entries)))
    for port, service, family in entries:
        has_prefixes = any(isinstance(vip, IPNetwork) for vip in service.claim.vips)
        for number in range(each):
            packet = _packet(service, family, in_port=port, number=number)
            # A packet to a prefix may belong to the service of a longer one.
            if not has_prefixes or service_of(balancer, packet) is service:
                yield service.name, packet


def _packet(service: Service, family: Family, *, in_port: str, number: int) -> Packet:
    claim, spread = service.claim, number * _GOLDEN_RATIO & 0xFFFFFFFF
    vips = claim.vips_of(family)
    vip = vips[number % len(vips)] if vips else _address(family, 0xC6336401)
    destination = vip[(spread >> 8) % vip.num_addresses] if isinstance(vip, IPNetwork) else vip
    protocol = claim.protocol.number(family) if claim.protocol else 6
    has_ports = claim.protocol is None or claim.protocol.has_ports
    sport, dport = (1024 + spread % 60000, claim.ports[0].first if claim.ports else 80) if has_ports else (8, 0)
    return Packet(in_port, _address(family, spread), destination, protocol, sport, dport, vlan=tag_of(claim.vlan or 0))


def _address(family: Family, low: int) -> IPAddress:
    return IPv4Address(low) if family is Family.IPV4 else IPv6Address(0x20010DB8 << 96 | low)
