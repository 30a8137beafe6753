from __future__ import annotations

from collections import Counter
from fractions import Fraction
from ipaddress import ip_address, ip_network

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.traffic import Load, plan_trials
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    BlockKey,
    Claim,
    KeyField,
    OtherTraffic,
    PortRange,
    Protocol,
    Service,
    Uplinks,
)
from xenoovs.model.next_hop import Direct

V4, BOTH = frozenset({Family.IPV4}), frozenset(Family)
BACKENDS = (Backend("a", Direct(parse_mac("02:00:5e:10:00:02"), "p1"), Fraction(1)),)
VIP, VIP6 = ip_address("10.3.10.45"), ip_address("2001:db8:10::80")


def _balancer(*claims: Claim, bits: BlockKey | None = None) -> Balancer:
    services = (Service(f"s{i}", claim, BACKENDS, key=bits or BlockKey()) for i, claim in enumerate(claims))
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH), tuple(services))


@pytest.mark.parametrize("packets", [1, 7, 20_000])
def test_all_packets_are_sent_and_no_client_has_two_more_than_another(packets: int) -> None:
    claims = [Claim(V4, (VIP,), Protocol.UDP, (PortRange(53, 55),)), Claim(BOTH, (VIP, VIP6), Protocol.TCP)]
    trials, _ = plan_trials(_balancer(*claims), Load(clients=100, packets=max(packets, 2)))
    flights = [flight for trial in trials for flight in trial.flights]
    assert sum(len(flight.sources) for flight in flights) == max(packets, 2)
    for flight in flights:
        counts = Counter(flight.sources)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_every_vip_and_port_is_tried_from_addresses_of_its_version() -> None:
    claim = Claim(BOTH, (VIP, VIP6), Protocol.UDP, (PortRange(53, 54), PortRange(1000, 2000)))
    (trial,), _ = plan_trials(_balancer(claim), Load(clients=10, packets=800))
    assert {(flight.destination, flight.port) for flight in trial.flights} == {
        (str(vip), port) for vip in (VIP, VIP6) for port in (53, 54, 1000, 2000)
    }
    for flight in trial.flights:
        assert {ip_address(source).version for source in flight.sources} == {ip_address(flight.destination).version}
    assert trial.clients == 20


def test_sctp_is_left_out_with_the_reason() -> None:
    claims = [Claim(V4, (VIP,), Protocol.SCTP), Claim(V4, (VIP,), Protocol.UDP)]
    trials, skipped = plan_trials(_balancer(*claims), Load())
    assert [trial.service.name for trial in trials] == ["s1"]
    assert skipped == (("s0", "the lab cannot send SCTP"),)
    with pytest.raises(LabError, match="no service can be tried: s0: the lab cannot send SCTP"):
        plan_trials(_balancer(claims[0]), Load())


def test_ports_rule_out_icmp() -> None:
    with pytest.raises(LabError, match="s0: it does not serve icmp"):
        plan_trials(_balancer(Claim(V4, (VIP,), None, (PortRange(53, 53),))), Load(protocol=Protocol.ICMP))


def test_clients_differ_in_the_bits_that_split_them() -> None:
    bits = BlockKey(positions=(24, 25))
    (trial,), _ = plan_trials(_balancer(Claim(V4), bits=bits), Load(clients=200, packets=200))
    sources = {int(ip_address(source)) >> 24 & 3 for flight in trial.flights for source in flight.sources}
    assert sources == {0, 1, 2, 3}
    (usual,), _ = plan_trials(_balancer(Claim(V4)), Load(clients=200, packets=200))
    assert all(ip_address(source) in ip_network("198.18.0.0/15") for source in usual.flights[0].sources)


@pytest.mark.parametrize("key", KeyField)
def test_packets_to_a_service_by_source_port_come_from_many_ports(key: KeyField) -> None:
    claim = Claim(V4, (VIP,), Protocol.UDP, (PortRange(53, 55),))
    (trial,), _ = plan_trials(_balancer(claim, bits=BlockKey(key, (15, 14))), Load(clients=3, packets=9))
    assert {flight.fresh_ports for flight in trial.flights} == {key is KeyField.SOURCE_PORT}
    assert trial.clients == 3


@pytest.mark.parametrize("load", [Load(clients=0), Load(packets=0), Load(clients=-1)])
def test_no_traffic_is_refused(load: Load) -> None:
    with pytest.raises(LabError, match="use 1 or more of each"):
        plan_trials(_balancer(Claim(V4)), load)
