"""Laws of NAT: an answer returns as from the VIP that its client sent to, and no two services are mixed up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled, draining, observed
from tests.unit import balancer as small
from xenoovs.compile.encoding import arrives
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.returns import return_flows
from xenoovs.decision.advance import Progress
from xenoovs.judge.simulate.megaflows import pipeline_of, predict
from xenoovs.judge.simulate.walk import Copy, headers_of, tables_of, walk
from xenoovs.model.address import Family, Mac, prefix_of
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    Drain,
    DrainMode,
    Nat,
    OtherTraffic,
    Protocol,
    Service,
    Uplinks,
)
from xenoovs.model.next_hop import Translated
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field, Flow

CLIENTS = (IPv4Network("10.9.0.0/16"), IPv4Network("10.12.0.0/14"))
SERVERS = [IPv4Address(f"10.3.20.{number}") for number in range(11, 15)]
EGRESS = ("p1", "p2")
NUMBERS = {"p0": 1, "p1": 2, "p2": 3}
ROUTER, RETURN_MAC = Mac(0x02000000A001), Mac(0x02000000A002)


@st.composite
def services(draw: st.DrawFn, number: int) -> Service:
    """`number`: keeps VIPs and the servers' ports of several services apart; the servers may be the same."""
    protocol = draw(st.sampled_from((Protocol.TCP, Protocol.UDP)))
    last = draw(st.sampled_from((0, 3)))
    l4_port = draw(st.none() | st.just(9000 + number)) if last == 0 else None
    servers = draw(st.lists(st.sampled_from(SERVERS), min_size=1, max_size=4, unique=True))
    backends = (
        Backend(
            f"b{i}",
            Translated(Mac(0x020000000B00 + int(server) % 256), draw(st.sampled_from(EGRESS)), server, l4_port),
            Fraction(draw(st.integers(0 if i else 1, 3))),
            server,
        )
        for i, server in enumerate(servers)
    )
    nets = draw(st.sampled_from(((), CLIENTS[:1], CLIENTS)))
    first = 8000 + 8 * number
    return Service(
        f"s{number}",
        small.claim(IPv4Address(0x0A030A2D + number), protocol=protocol, ports=[(first, first + last)]),
        tuple(backends),
        tolerance=Fraction(1, 2),
        nat=Nat(draw(st.none() | st.just(RETURN_MAC)), nets),
        drain=Drain(draw(st.sampled_from(DrainMode))),
    )


@st.composite
def balancers(draw: st.DrawFn) -> Balancer:
    made = tuple(draw(services(number)) for number in range(draw(st.integers(1, 3))))
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", draw(st.sampled_from(OtherTraffic))), made)


@st.composite
def requests(draw: st.DrawFn, service: Service) -> Packet:
    net = draw(st.sampled_from(service.nat.clients if service.nat and service.nat.clients else CLIENTS))
    ports, protocol = service.claim.ports[0], service.claim.protocol
    assert protocol is not None
    return Packet(
        in_port="p0",
        source=net[draw(st.integers(1, 65_000))],
        destination=prefix_of(service.claim.vips[0])[0],
        protocol=protocol.number(Family.IPV4),
        sport=draw(st.integers(1024, 65_535)),
        dport=draw(st.integers(ports.first, ports.last)),
        dl_src=ROUTER,
    )


def answers(flows: tuple[Flow, ...], request: Packet) -> tuple[Packet, Packet]:
    """The answer to a request, as the server sends it and as the client gets it."""
    (there,) = walk(tables_of(flows), request).copies
    got = packet_of(there)
    sent_back = replace(
        got,
        source=got.destination,
        destination=got.source,
        sport=got.dport,
        dport=got.sport,
        dl_src=got.dl_dst,
        dl_dst=ROUTER,
    )
    (back,) = walk(tables_of(flows), sent_back).copies
    return sent_back, packet_of(back)


def packet_of(copy: Copy) -> Packet:
    """The packet where a copy leaves."""
    get = copy.headers.get
    return Packet(
        in_port=str(copy.port),
        source=IPv4Address(get(Field.NW_SRC)),
        destination=IPv4Address(get(Field.NW_DST)),
        protocol=get(Field.NW_PROTO),
        sport=get(Field.TP_SRC),
        dport=get(Field.TP_DST),
        dl_dst=Mac(get(Field.DL_DST)),
    )


def assert_returns(service: Service, request: Packet, flows: tuple[Flow, ...]) -> None:
    _, answer = answers(flows, request)
    assert (answer.source, answer.sport) == (request.destination, request.dport)
    assert (answer.destination, answer.dport) == (request.source, request.sport)
    assert answer.in_port == "p0", "it leaves to the clients"
    assert answer.dl_dst == ((service.nat.return_mac if service.nat else None) or ROUTER)


@given(st.data(), balancers())
def test_an_answer_returns_as_from_the_vip(data: st.DataObject, balancer: Balancer) -> None:
    program = compiled(balancer)
    for service in balancer.services:
        request = data.draw(requests(service))
        assert_returns(service, request, program.flows)
        (copy,) = walk(tables_of(program.flows), request).copies
        original = headers_of(request).get
        hops = [backend.next_hop for backend in service.backends if backend.weight]
        assert any(arrives(hop, port=copy.port, sent=copy.headers.get, original=original) for hop in hops)


@given(st.data(), balancers())
def test_what_is_not_for_a_client_keeps_its_source(data: st.DataObject, balancer: Balancer) -> None:
    service = data.draw(st.sampled_from(balancer.services))
    hop = data.draw(st.sampled_from([backend.next_hop for backend in service.backends]))
    assert isinstance(hop, Translated)
    own = Packet(hop.port, hop.address, IPv4Address("10.9.0.7"), 6, sport=22, dport=40_000)
    probed = replace(own, destination=IPv4Address("192.0.2.1"), sport=hop.l4_port or service.claim.ports[0].first)
    is_bound = all(each.nat is not None and each.nat.clients for each in balancer.services)
    for packet in (own, probed) if is_bound else (own,):
        for copy in walk(tables_of(compiled(balancer).flows), packet).copies:
            assert copy.headers.get(Field.NW_SRC) == int(hop.address)


@given(st.data(), balancers())
def test_connections_that_stay_with_a_backend_that_is_gone_return_too(data: st.DataObject, balancer: Balancer) -> None:
    """With a drain a backend that the config lacks serves on for a while; afterwards nothing is left of it."""
    service = data.draw(st.sampled_from(balancer.services))
    kept = replace(service, drain=Drain(DrainMode.PIN), backends=(replace(service.backends[0], weight=Fraction(1)),))
    others = tuple(each for each in balancer.services if each is not service)
    before, after = compiled(balancer), replace(balancer, services=(kept, *others))
    program = draining(after, observed(before.flows), Progress(0.0, NUMBERS.keys()), ofports=NUMBERS)
    for _ in range(3):
        assert_returns(kept, data.draw(requests(kept)), program.flows)
    ended = compiled(after, installed=program.flows)
    (made,) = (made for made in ended.services if made.service is kept)
    stays, *gone = (
        {flow.key for flow in return_flows(kept, [backend.next_hop], service_id=made.service_id, port="")}
        for backend in service.backends
    )
    assert not {flow.key for flow in made.returns} & set().union(*gone) - stays


@given(st.data(), balancers())
def test_entries_are_one_a_block_and_one_a_backend_and_network_back(data: st.DataObject, balancer: Balancer) -> None:
    """Predicted megaflows of one service, of requests to and answers from each block, are no more than its entries."""
    service = replace(balancer.services[0], tolerance=Fraction(1, 2))
    alone = replace(balancer, services=(service,))
    program = compiled(alone)
    pipeline, found = pipeline_of(program.flows), set()
    for _ in range(8):
        request = data.draw(requests(service))
        answer, _ = answers(program.flows, request)
        found |= {predict(pipeline, packet)[0] for packet in (request, answer)}
    assert len(found) <= sum(map(hardware_entries, program.services))


@given(st.data(), balancers())
def test_a_failed_backend_keeps_the_return_flows_of_its_connections(data: st.DataObject, balancer: Balancer) -> None:
    """Its blocks move to others and back; its return flows stay all the time."""
    service = data.draw(st.sampled_from(balancer.services))
    gone = frozenset({data.draw(st.sampled_from(service.backends)).name})
    if not any(backend.weight for backend in service.backends if backend.name not in gone):
        return
    before = compiled(balancer)
    after = compiled(balancer, installed=before.flows, ejected={service.name: gone})
    assert {flow for made in after.services for flow in made.returns} == {
        flow for made in before.services for flow in made.returns
    }
    assert_returns(service, data.draw(requests(service)), after.flows)
    back = compiled(balancer, installed=after.flows, ejected={service.name: frozenset()})
    assert set(back.flows) == set(before.flows)
