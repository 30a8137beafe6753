"""What a config means in a lab, and which addresses the lab chooses."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from ipaddress import ip_address, ip_network

import pytest

from tests.judged import assert_recorded
from xenoovs.errors import LabError
from xenoovs.lab.probing import in_lab, job_of
from xenoovs.lab.topology import WHOLE_SPACE, client_net, draw_clients, parse_net, plan_topology
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
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


def test_every_port_of_the_config_is_the_end_of_one_link_and_all_ports_are_in_the_switch() -> None:
    far = _service("far", Claim(BOTH, VIPS, Protocol.TCP), _backend("c", 3, egress="pf0hpf"))
    topology = plan_topology("x", _balancer(DNS, far, ports=("p0", "p2"), other="drop"))
    assert topology.ports_of("ovsbr1") == ("p0", "p2", "p1", "pf0hpf")
    assert {end.namespace for end in topology.ends if end.bridge} == {topology.switch_namespace}


def test_no_namespace_has_two_devices_of_one_name_or_a_name_that_linux_refuses() -> None:
    services = [_service(f"s{i}", Claim(BOTH, VIPS), _backend("b", i, egress=f"p{i}")) for i in range(1, 90)]
    topology = plan_topology("x" * 16, _balancer(*services, other="drop"))
    ends = [(end.namespace, end.interface) for link in topology.links for end in (link.near, link.far)]
    assert len(ends) == len(set(ends))
    assert max(len(interface) for _, interface in ends) <= 15


def test_a_mac_of_the_config_is_not_used_for_the_labs_own_ends() -> None:
    own = plan_topology("x", _balancer(DNS)).clients.gateway_mac
    taken = Backend("t", Direct(parse_mac(own), "p1"), Fraction(1))
    topology = plan_topology("x", _balancer(_service("s", Claim(BOTH, VIPS), taken)))
    macs = [end.mac for link in topology.links for end in (link.near, link.far) if end.mac]
    assert len(macs) == len(set(macs))
    assert topology.clients.gateway_mac != own


def test_the_same_seed_draws_the_same_clients_which_each_low_bit_splits_about_evenly() -> None:
    net = client_net(Family.IPV4, ())
    first = draw_clients(net, count=4000, seed=0, excluded=())
    assert first == draw_clients(net, count=4000, seed=0, excluded=())
    assert len(set(first)) == 4000
    assert set(first) != set(draw_clients(net, count=4000, seed=2, excluded=()))
    for bit in range(16):
        assert 1800 < sum(int(client) >> bit & 1 for client in first) < 2200  # six standard deviations


@pytest.mark.parametrize("family", list(Family))
def test_the_whole_space_holds_no_address_that_a_client_cannot_have(family: Family) -> None:
    for client in draw_clients(WHOLE_SPACE[family], count=3000, seed=0, excluded=()):
        assert not any((client.is_multicast, client.is_loopback, client.is_unspecified, client.is_link_local))
        assert family is Family.IPV6 or 0 < int(client) >> 24 < 240


def test_all_hosts_of_a_small_net_can_be_drawn_but_neither_its_ends_nor_a_vip() -> None:
    net = ip_network("203.0.113.0/29")
    clients = draw_clients(net, count=5, seed=0, excluded=[ip_address("203.0.113.3")])
    assert sorted(map(str, clients)) == [f"203.0.113.{host}" for host in (1, 2, 4, 5, 6)]


def test_clients_move_out_of_the_way_of_a_vip() -> None:
    assert client_net(Family.IPV4, [ip_address("198.18.4.4")]) == ip_network("100.64.0.0/15")


def test_a_net_may_be_written_with_an_address_of_it() -> None:
    assert parse_net("198.51.100.7/24") == ip_network("198.51.100.0/24")


CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
health: {{probe: {probe}}}
services:
  - name: web
    vip: {vip}
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, weight: 1}}
      - {{name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 192.168.255.1}}
      - {{name: six, weight: 1, address: 10.3.10.6, egress: p9}}
      - {{name: any, mac: unchanged, weight: 1}}
"""


def config(
    probe: str = "tcp", vip: str = "10.3.10.45", *, text: str = CONFIG, old: str = "", new: str = "", more: str = ""
) -> Balancer:
    """The config, where `new` stands for `old`, and `more` at its end."""
    text = text.format(probe=probe, vip=vip).replace(old, new) + more
    return parse_config(text, file="my.yaml", for_lab=True)


def test_the_lab_keeps_its_addresses_whatever_the_config_gets_later() -> None:
    """Probes of a new address had no route; and `lab traffic` must not refuse the config that the lab wrote down."""
    balancer = config()
    topology = plan_topology("x", balancer)
    inside = in_lab(balancer, topology)
    assert in_lab(inside, topology) == inside
    for later in (inside, parse_config(render_config(inside), file="my.yaml", for_lab=True)):
        assert plan_topology("x", later) == topology
    later = in_lab(config(old="192.168.255.1", new="10.9.9.9"), topology)
    assert str(later.services[0].backends[1].address) == "192.168.255.1"
    assert plan_topology("x", later) == topology


CROWD = _service("s", Claim(BOTH, VIPS), *(_backend(f"b{i}", i) for i in range(1, 102)))
SMALL, ITS_VIP = ip_network("203.0.113.0/29"), ip_address("203.0.113.3")
PORTS = ("a-port-of-16-chr", "xo-b1", "lo", "a/b", "ovs-netdev")
IN_EACH = [ip_address("198.18.4.4"), ip_address("100.64.0.1")]
REFUSED: dict[str, Callable[[], object]] = {
    **{f"the port {port}": partial(plan_topology, "x", _balancer(DNS, ports=(port,))) for port in PORTS},
    "more backends than there is room for": partial(plan_topology, "x", _balancer(CROWD)),
    "more clients than a net has": partial(draw_clients, SMALL, count=6, seed=0, excluded=[ITS_VIP]),
    "addresses in each net for clients": partial(client_net, Family.IPV4, IN_EACH),
    "what is no net": partial(parse_net, "198.51.100/24"),
}


def test_what_is_refused(*, update_golden: bool) -> None:
    said = dict[str, str]()
    for title, refused in REFUSED.items():
        with pytest.raises(LabError) as caught:
            refused()
        said[title] = str(caught.value)
    assert_recorded("lab/refused.txt", said, update=update_golden)


WEB = _service("web", Claim(BOTH, VIPS[:1], Protocol.TCP, (PortRange(80, 81),)), _backend("w", 1))
TWIN = _service("twin", Claim(BOTH, VIPS[:1], Protocol.ICMP), _backend("t", 1, egress="pf0hpf"))
AGENTS = "agent_check: {port: 9707, netns: host, interface: eth0}\n"
WITH_MAC = re.sub(r".*(six|any).*\n", "", CONFIG)
LABS: dict[str, Balancer] = {
    "the bridge has the ports of the config in order, and the host port": _balancer(DNS, ports=("p0", "p2")),
    "a MAC behind one port is one machine for all its services": _balancer(DNS, WEB, TWIN),
    **{f"answers go where other traffic may: {other}": _balancer(DNS, other=other) for other in ("normal", "drop")},
    "backends without an address get one of the lab": config(),
    "that is no VIP": config(vip="192.168.255.9"),
    # Probes of agents were sent in the network of the host.
    "bug: servers and their agents are probed in the switch, without certificates of the host": config(
        "https, netns: host, interface: eth0, ca_file: /x", more=AGENTS
    ),
    "an ARP probe gets the device of the lab": config("arp", text=WITH_MAC),
    "a backend given by its address has a MAC of the lab, and no client has its address": config(
        old="10.3.10.6", new="198.18.0.7"
    ),
    "a machine listens on the addresses of health checks": config("http, port: 8080, path: /ready"),
}


def test_labs_of_configs(*, update_golden: bool) -> None:
    shown = dict[str, str]()
    for title, balancer in LABS.items():
        topology = plan_topology("x", balancer)
        inside = in_lab(balancer, topology)
        job = job_of(topology.machines[0], inside, topology, log="/log", certificate=lambda: "/pem")
        bridges = (f"{bridge}: {topology.ports_of(bridge)}" for bridge in (topology.bridge, *topology.fabrics))
        parts = (*bridges, topology.clients, *topology.machines, *topology.links, *topology.probe_devices, job)
        checks = (check for each in inside.services for check in (each.health, each.agent_check) if check is not None)
        addresses = (f"{b.name}: {b.address}" for each in inside.services for b in each.backends)
        shown[title] = "\n".join(map(str, (*parts, *checks, *addresses)))
    assert_recorded("lab/topology.txt", shown, update=update_golden)
