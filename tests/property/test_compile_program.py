"""Law 1: packets end where intent allows; installed blocks stay, and a damaged table is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from tests.arp import arp_request
from tests.compiled import compiled
from tests.predicted import packets_of_every_region
from tests.strategies import (
    NESTED,
    NETS4,
    VIPS4,
    VIPS6,
    VLANS,
    addresses_in,
    apart,
    balancers,
    edits,
    packets,
    port_numbers,
    share,
    sources,
    with_backends,
)
from tests.unit import balancer as small
from tests.unit.controller.test_solicitation import solicitation
from xenoovs.compile.encoding import arrives, key_match, port_masks
from xenoovs.compile.plan import hardware_entries, plan
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.controller.neighbour_discovery import answer, macs_of
from xenoovs.decision.decision import moved
from xenoovs.errors import assert_never
from xenoovs.judge.expected import expected_services, index_blocks
from xenoovs.judge.simulate.megaflows import pipeline_of, predict
from xenoovs.judge.simulate.walk import headers_of, tables_of, walk
from xenoovs.model.address import Family, IPAddress, Mac, Vip, holds, prefix_of
from xenoovs.model.balancer import Balancer, Claim, OtherTraffic, Protocol, Service
from xenoovs.model.block_key import KeyField
from xenoovs.model.next_hop import NO_TAG
from xenoovs.model.packet import ANY_PORT, NEIGHBOUR_DISCOVERY, Packet, own_addresses, service_of
from xenoovs.openflow.flow import TAGGED, Field, Match, Output, tag_of
from xenoovs.openflow.wire.message import PacketIn, encode_packet_out


@given(st.data(), balancers())
def test_a_second_run_finds_nothing_to_do_and_shares_stay_within_the_tolerance(
    data: st.DataObject, before: Balancer
) -> None:
    """Whatever the config was before, and whichever of its flows were lost. A weight of 0 costs no block."""
    after = data.draw(st.just(before) | edits(before))
    installed = compiled(before).flows
    if data.draw(st.booleans()):
        installed = tuple(flow for flow in installed if data.draw(st.booleans()))
    program = compiled(after, installed=installed)
    assert plan(compiled(after, installed=program.flows).flows, program.flows).is_empty
    for made in program.services:
        assert sum(Fraction(1, 1 << block.depth) for block, _ in made.decision.active.rows) == 1
        for weight, found in zip(made.service.weights, made.shares, strict=True):
            wanted = Fraction(weight, sum(made.service.weights))
            assert abs(found - wanted) <= wanted * made.service.tolerance


@given(st.data(), balancers())
def test_another_order_of_backends_moves_no_client(data: st.DataObject, balancer: Balancer) -> None:
    before = compiled(balancer)
    services = tuple(
        replace(service, backends=tuple(data.draw(st.permutations(service.backends)))) for service in balancer.services
    )
    after = compiled(replace(balancer, services=services), installed=before.flows)
    for old, new in zip(before.services, after.services, strict=True):
        assert moved(old.decision, new.decision) == 0


@given(st.data(), balancers())
def test_new_names_and_another_order_change_no_flow(data: st.DataObject, balancer: Balancer) -> None:
    """Of services, VIPs and ports."""

    def shuffled(claim: Claim) -> Claim:
        vips, ports = data.draw(st.permutations(claim.vips)), data.draw(st.permutations(claim.ports))
        return replace(claim, vips=tuple(vips), ports=tuple(ports))

    mixed = data.draw(st.permutations(balancer.services))
    services = (replace(s, name=f"other-{s.name}", claim=shuffled(s.claim)) for s in mixed)
    after = replace(balancer, services=tuple(services))
    after = with_backends(after, lambda _, b: replace(b, name=f"other-{b.name}"))
    assert plan(compiled(after).flows, compiled(balancer).flows).is_empty


@given(st.data(), balancers() | balancers(vips=NESTED))
def test_a_packet_reaches_the_destination_of_the_intent(data: st.DataObject, balancer: Balancer) -> None:
    tables = tables_of(compiled(balancer).flows)
    for _ in range(5):
        packet = data.draw(packets(balancer))
        service, outcome = service_of(balancer, packet), walk(tables, packet)
        if service is None:
            assert [copy.port for copy in outcome.copies] == ports_of_other_traffic(balancer, packet)
            assert all((c.dl_src, c.dl_dst) == (packet.dl_src.value, packet.dl_dst.value) for c in outcome.copies)
        else:
            (copy,), original = outcome.copies, headers_of(packet).get
            hops = [backend.next_hop for backend in service.backends if backend.weight]
            assert any(arrives(hop, port=copy.port, sent=copy.headers.get, original=original) for hop in hops)
            assert copy.dl_src == (service.source_mac or packet.dl_src).value


@given(st.data(), balancers())
def test_the_key_alone_chooses_the_backend(data: st.DataObject, balancer: Balancer) -> None:
    tables = tables_of(compiled(balancer).flows)
    packet = data.draw(packets(balancer))
    service = service_of(balancer, packet)
    other = replace(packet, dport=data.draw(port_numbers), ttl=3)
    if service is not None and service.key.field is KeyField.SOURCE_PORT:
        other = replace(other, source=data.draw(sources(packet.family)))
    else:
        other = replace(other, sport=packet.sport ^ 1)
    if service is not None and service_of(balancer, other) is service:
        assert walk(tables, packet).copies[0].dl_dst == walk(tables, other).copies[0].dl_dst


def ports_of_other_traffic(balancer: Balancer, packet: Packet) -> list[str | None]:
    """Return the ports by which the policy sends the packet, computed independently; None: by MAC learning."""
    uplinks = balancer.uplinks
    if packet.in_port not in balancer.ports:
        return []
    match uplinks.other_traffic:
        case OtherTraffic.PASSTHROUGH:
            return [uplinks.egress if packet.in_port in uplinks.ingress else uplinks.ingress[0]]
        case OtherTraffic.NORMAL:
            return [None]
        case OtherTraffic.DROP:
            return []
        case OtherTraffic.LEAVE:
            return [None] if is_guarded(balancer, packet) else []
        case _:
            assert_never(uplinks.other_traffic)


def is_guarded(balancer: Balancer, packet: Packet) -> bool:
    """Return whether a flow keeps this neighbour discovery out of a service; it is then forwarded by MAC learning."""
    if packet.family is not Family.IPV6 or packet.protocol != 58 or packet.sport not in NEIGHBOUR_DISCOVERY:
        return False
    takes = (s.claim for s in balancer.services if s.claim.protocol is None or s.claim.protocol.value == "icmp")
    return packet.in_port in balancer.uplinks.ingress and any(Family.IPV6 in claim.served_families for claim in takes)


_MOST = 600


def _beside_a_vip_without_a_tag() -> Balancer:
    """A service without a VIP, whose packets a VIP of packets without a tag must not widen by their destination."""
    of_vip = replace(small.claim(IPv4Address("10.3.10.45"), protocol=Protocol.UDP), vlan=NO_TAG)
    every = small.service(small.claim(protocol=Protocol.TCP), 1, 1, name="every")
    return small.balancer(every, small.service(of_vip, 1, 1, name="untagged"))


@share(0.4)
@example(_beside_a_vip_without_a_tag())
@given(balancers())
def test_entries_are_as_predicted_beside_other_services_and_as_many_again_for_each_rewritten_client_mac(
    balancer: Balancer,
) -> None:
    program = compiled(balancer)
    for service in program.services:
        if hardware_entries(service) <= _MOST:
            macs = 2 if service.service.source_mac else 1
            assert megaflows(program, service, balancer) == macs * hardware_entries(service)


@st.composite
def nested(draw: st.DrawFn) -> Balancer:
    """Up to five services with prefixes of IPv4, of which most are inside others, in VLANs too."""
    claims = st.builds(
        lambda vips, protocol, port, vlan: replace(
            small.claim(*vips, protocol=protocol, ports=[(port, port)] if protocol and port else ()), vlan=vlan
        ),
        st.lists(st.sampled_from((*VIPS4, *NETS4)), min_size=1, max_size=2, unique=True),
        st.sampled_from((None, Protocol.UDP, Protocol.TCP)),
        st.sampled_from((0, 53, 80)),
        st.sampled_from(draw(st.sampled_from(((None,), (None, NO_TAG, 100))))),
    )
    kept = apart(draw(st.lists(claims, min_size=2, max_size=5)))
    drawn = (small.service(claim, 1, 1, name=f"s{i}") for i, claim in enumerate(kept))
    return small.balancer(*drawn)


@share(0.8)
@given(nested())
def test_entries_of_nested_prefixes_are_as_predicted_and_those_of_their_service(balancer: Balancer) -> None:
    program, sources = compiled(balancer), [IPv4Address("198.51.100.2"), IPv4Address("198.51.100.3")]
    pipeline, index = pipeline_of(program.flows), index_blocks(expected_services(program))
    for made in program.services:
        packets = packets_of_every_region(balancer, made.service, sources)
        found = {predict(pipeline, packet)[0] for packet in packets}
        assert len(found) == hardware_entries(made)
        located = [index.locate(megaflow.in_port, megaflow.fields()) for megaflow in found]
        assert {at and at[0].service.name for at in located} <= {made.service.name}


def _in_a_prefix_without_a_tag() -> Balancer:
    """A service whose second VIP is in the prefix of one of packets without a tag, which goes first."""
    shorter = replace(small.claim(IPv4Network("10.3.0.0/16")), vlan=NO_TAG)
    addresses = small.claim(IPv4Address("10.7.0.1"), IPv4Address("10.3.10.45"))
    return small.balancer(small.service(addresses, 1, 1, name="every"), small.service(shorter, 1, 1, name="untagged"))


def _of_one_port_without_a_tag() -> Balancer:
    """A service of any port: one VIP is within that of one port, the other within a VIP of packets without a tag."""
    any_port = small.claim(IPv4Network("10.7.0.0/24"), IPv4Network("10.3.10.0/24"), protocol=None, ports=())
    port = replace(small.claim(IPv4Network("10.0.0.0/8"), protocol=Protocol.UDP, ports=[(53, 53)]), vlan=NO_TAG)
    untagged = replace(small.claim(IPv4Network("10.3.0.0/16"), protocol=None, ports=()), vlan=NO_TAG)
    claims = {"any": any_port, "port": port, "untagged": untagged}
    return small.balancer(*(small.service(claim, 1, 1, name=name) for name, claim in claims.items()))


@share(0.8)
@example(_in_a_prefix_without_a_tag())
@example(_of_one_port_without_a_tag())
@given(nested())
def test_packets_to_the_addresses_of_a_service_are_its_own(balancer: Balancer) -> None:
    """Where a longer VIP, or one of a VLAN, leaves any: a trace, a probe by ARP, or a load goes to these."""
    for service in balancer.services:
        claim = service.claim
        number = (claim.protocol or Protocol.UDP).number(Family.IPV4)
        port = claim.ports[0].first if claim.ports else ANY_PORT
        one = Packet("p0", IPv4Address("198.51.100.2"), IPv4Address(0), number, 8, port, vlan=tag_of(claim.vlan or 0))

        def is_own(address: IPAddress, one: Packet = one, service: Service = service) -> bool:
            return service_of(balancer, replace(one, destination=address)) is service

        ends = {end for each in balancer.services for end in map(_behind, each.claim.vips)}
        bounds = {prefix_of(vip)[0] for vip in claim.vips} | {
            end for end in ends if any(holds(vip, end) for vip in claim.vips)
        }
        found = own_addresses(service, Family.IPV4, balancer.services)
        assert found
        assert all(claim.prefix_length(address) for address in found)
        if any(map(is_own, bounds)):
            assert all(map(is_own, found))


def _behind(vip: Vip) -> IPAddress:
    """The first address behind a VIP."""
    first, length = prefix_of(vip)
    return IPv4Address(int(first) + (1 << 32 - length))


@st.composite
def answering(draw: st.DrawFn) -> Balancer:
    """Services with prefixes and VLANs, of which some answer ARP and neighbour solicitations, each with its own MAC."""
    vips = st.lists(st.sampled_from(NESTED), min_size=1, max_size=3, unique=True)
    drawn = draw(st.lists(st.tuples(vips, st.sampled_from(VLANS)), min_size=2, max_size=6))
    kept = apart(replace(small.claim(*vips), vlan=vlan) for vips, vlan in drawn)
    made = (replace(small.service(each), vip_mac=Mac(0xC470BDA05600 + i)) for i, each in enumerate(kept))
    return small.balancer(*(each if draw(st.integers(0, 3)) else replace(each, vip_mac=None) for each in made))


@given(st.data(), answering())
def test_an_address_is_answered_for_by_the_service_that_gets_its_packets(
    data: st.DataObject, balancer: Balancer
) -> None:
    """Of those that answer: of one without `vip_mac`, the next shorter prefix."""
    tables, macs = tables_of(compiled(balancer).flows), macs_of(balancer)
    owners = replace(balancer, services=tuple(each for each in balancer.services if each.vip_mac))
    for target in data.draw(st.lists(st.sampled_from(NESTED).flatmap(addresses_in), min_size=3, max_size=6)):
        vlan = tag_of(data.draw(st.sampled_from((NO_TAG, 100, 200, 300))))
        source = prefix_of(VIPS4[0] if target.version == 4 else VIPS6[0])[0]
        owner = service_of(owners, Packet("p0", source, target, 17, vlan=vlan))
        if target.version == 4:
            asked = arp_request("p0", sender_mac=1, sender=int(source), target=int(target), vlan=vlan)
            copies = [copy for copy in walk(tables, asked).copies if copy.headers.get(Field.ARP_OP) == 2]
            found = [(copy.port, copy.headers.get(Field.ARP_SHA), copy.headers.get(Field.VLAN)) for copy in copies]
            assert found == ([] if owner is None else [("p0", owner.vip_mac and owner.vip_mac.value, vlan)])
        else:
            tags = b"\x81\x00" + (vlan & ~TAGGED).to_bytes(2, "big") if vlan else b""
            frame = solicitation(target=target.packed, tags=tags)
            out = answer(PacketIn(Match(in_port="p0"), frame), macs, {"p0": 1})
            start = len(encode_packet_out((Output("p0"),), b"", {"p0": 1}, xid=0))
            sender = None if out is None else out[start + 6 : start + 12].hex(":")
            assert sender == (None if owner is None else str(owner.vip_mac))


def megaflows(program: Program, service: ServiceProgram, balancer: Balancer) -> int:
    """Of clients with two MACs."""
    pipeline = pipeline_of(program.flows)
    packets = all_clients(service, balancer)
    sent = (replace(each, dl_src=Mac(each.dl_src.value + more)) for each in packets for more in (0, 1))
    return len({predict(pipeline, packet)[0] for packet in sent})


def all_clients(service: ServiceProgram, balancer: Balancer) -> Iterator[Packet]:
    """Packets of each class of clients, by each port, to each VIP (two where there is none) and each port mask.

    Two of each class, which differ in all that does not choose their block.
    """
    claim, field = service.service.claim, service.service.key.field
    ports = [mask.value for mask in port_masks(Field.TP_DST, claim.ports)] or [0]
    deepest = max(block.rule for block in service.blocks).mask
    for in_port, family, port in product(balancer.uplinks.ingress, claim.served_families, ports):
        known: tuple[Vip, ...] = VIPS4 if family is Family.IPV4 else VIPS6
        protocol = (claim.protocol or Protocol.UDP).number(family)
        sport = {1: 8, 58: 128}.get(protocol, 4000)
        for vip, bits in product(claim.vips_of(family) or known[:2], submasks(deepest)):
            chosen = key_match(field, family, bits, deepest).value
            of_address = field is KeyField.SOURCE_ADDRESS
            for rest in (0, 0xFFFF):
                # Types of ICMP stay those that no flow is for.
                by_address = chosen, sport ^ rest if claim.protocol and claim.protocol.has_ports else sport
                source, source_port = by_address if of_address else (rest, chosen)
                address = IPv4Address(source) if family is Family.IPV4 else IPv6Address(source)
                tag = tag_of(claim.vlan or NO_TAG)
                yield Packet(in_port, address, prefix_of(vip)[0], protocol, source_port, port, vlan=tag)


def submasks(mask: int) -> Iterator[int]:
    """Every number whose bits lie in the mask."""
    value = 0
    while True:
        yield value
        value = (value - mask) & mask
        if value == 0:
            return
