from __future__ import annotations

from collections import Counter
from fractions import Fraction
from ipaddress import ip_address

import pytest
from pydantic import TypeAdapter

from xenoovs.errors import LabError
from xenoovs.lab.topology import Topology, plan_topology
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.next_hop import Direct

BOTH = frozenset(Family)
VIPS = (ip_address("10.3.10.45"), ip_address("2001:db8:10::80"))


def _backend(name: str, number: int, *, egress: str = "p1") -> Backend:
    return Backend(name, Direct(parse_mac(f"02:00:5e:10:{number >> 8:02x}:{number & 255:02x}"), egress), Fraction(1))


def _service(name: str, claim: Claim, *backends: Backend) -> Service:
    return Service(name, claim, backends, vip_mac=parse_mac("02:00:5e:20:00:01") if claim.vips else None)


def _balancer(*services: Service, ports: tuple[str, ...] = ("p0",), other: str = "passthrough") -> Balancer:
    return Balancer(Uplinks("ovsbr1", ports, "p1", OtherTraffic(other)), services)


DNS = _service("dns", Claim(BOTH, VIPS, Protocol.UDP, (PortRange(53, 53),)), _backend("a", 1), _backend("b", 2))


def test_the_bridge_has_the_ports_of_the_config_in_order_and_the_host_port() -> None:
    topology = plan_topology("x", _balancer(DNS, ports=("p0", "p2")))
    assert topology.bridges[0].ports == ("p0", "p2", "p1", "pf0hpf")
    assert [bridge.secure for bridge in topology.bridges] == [True, False]


def test_every_port_of_every_bridge_is_the_end_of_one_link_in_the_switch() -> None:
    far = _service("far", Claim(BOTH, VIPS, Protocol.TCP), _backend("c", 3, egress="pf0hpf"))
    topology = plan_topology("x", _balancer(DNS, far, ports=("p0", "p2"), other="drop"))
    plugged = Counter(
        (end.bridge, end.interface)
        for link in topology.links
        for end in (link.near, link.far)
        if end.bridge and end.namespace == topology.switch_namespace
    )
    assert plugged == Counter((bridge.name, port) for bridge in topology.bridges for port in bridge.ports)


def test_no_namespace_has_two_devices_of_one_name_or_a_name_that_linux_refuses() -> None:
    services = [_service(f"s{i}", Claim(BOTH, VIPS), _backend("b", i, egress=f"p{i}")) for i in range(1, 90)]
    topology = plan_topology("x" * 16, _balancer(*services, other="drop"))
    ends = [(end.namespace, end.interface) for link in topology.links for end in (link.near, link.far)]
    assert len(ends) == len(set(ends))
    assert max(len(interface) for _, interface in ends) <= 15


def test_a_mac_behind_one_port_is_one_machine_for_all_its_services() -> None:
    web = _service("web", Claim(BOTH, VIPS[:1], Protocol.TCP, (PortRange(80, 81),)), _backend("w", 1))
    first, second = plan_topology("x", _balancer(DNS, web)).machines
    assert first.names == ("a", "w")
    assert first.addresses == ("10.3.10.45", "2001:db8:10::80")
    assert first.listen == (("tcp", 80), ("tcp", 81), ("udp", 53))
    assert second.names == ("b",)


def test_without_vip_a_machine_takes_a_whole_net_of_each_version() -> None:
    machine = plan_topology("x", _balancer(_service("all", Claim(BOTH), _backend("a", 1)))).machines[0]
    assert machine.nets == ("192.0.2.0/24", "2001:db8:5::/64")
    assert machine.listen == (("tcp", 7), ("udp", 7))


def test_ipv4_vips_are_resolved_by_arp_and_ipv6_ones_are_fixed() -> None:
    clients = plan_topology("x", _balancer(DNS)).clients
    assert clients.arp_vips == ("10.3.10.45",)
    assert clients.fixed_vips == (("2001:db8:10::80", "02:00:5e:20:00:01"),)


@pytest.mark.parametrize(("other", "interface"), [("passthrough", "cl1"), ("normal", "cl1"), ("drop", "ret1")])
def test_answers_go_to_where_the_policy_lets_them(other: str, interface: str) -> None:
    topology = plan_topology("x", _balancer(DNS, other=other))
    macs = {link.far.interface: link.far.mac for link in topology.links}
    assert {machine.gateway_mac for machine in topology.machines} == {macs[interface]}


def test_a_mac_of_the_config_is_not_used_for_the_labs_own_ends() -> None:
    own = plan_topology("x", _balancer(DNS)).clients.gateway_mac
    taken = Backend("t", Direct(parse_mac(own), "p1"), Fraction(1))
    topology = plan_topology("x", _balancer(_service("s", Claim(BOTH, VIPS), taken)))
    macs = [end.mac for link in topology.links for end in (link.near, link.far) if end.mac]
    assert len(macs) == len(set(macs))
    assert topology.clients.gateway_mac != own


@pytest.mark.parametrize("port", ["averylongportname", "xo-b1", "lo", "a/b", "ovs-netdev"])
def test_ports_that_cannot_be_devices_are_refused(port: str) -> None:
    with pytest.raises(LabError, match=f"'{port}'"):
        plan_topology("x", _balancer(DNS, ports=(port,)))


def test_more_backends_than_there_is_room_for() -> None:
    crowd = _service("s", Claim(BOTH, VIPS), *(_backend(f"b{i}", i) for i in range(1, 102)))
    with pytest.raises(LabError, match="101 backends with MACs of their own, the lab has room for 100"):
        plan_topology("x", _balancer(crowd))


def test_a_topology_can_be_written_down_and_read_back() -> None:
    topology, adapter = plan_topology("x", _balancer(DNS, other="drop")), TypeAdapter(Topology)
    assert adapter.validate_json(adapter.dump_json(topology)) == topology


def test_weights_do_not_shape_the_lab() -> None:
    heavier = Service(
        DNS.name,
        DNS.claim,
        tuple(Backend(b.name, b.next_hop, Fraction(9)) for b in DNS.backends),
        vip_mac=DNS.vip_mac,
    )
    assert plan_topology("x", _balancer(DNS)) == plan_topology("x", _balancer(heavier))
