"""What a config means in a lab, and which addresses the lab chooses."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from xenoovs.config.emit import render_config
from xenoovs.config.load import parse_config
from xenoovs.errors import ConfigError
from xenoovs.lab.probing import in_lab, job_of
from xenoovs.lab.topology import plan_topology
from xenoovs.model.balancer import Balancer

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


def config(probe: str = "tcp", vip: str = "10.3.10.45") -> Balancer:
    return parse_config(CONFIG.format(probe=probe, vip=vip), file="my.yaml", for_lab=True)


def addresses(balancer: Balancer) -> list[str]:
    return [str(backend.address) for backend in balancer.services[0].backends]


def test_backends_without_an_address_get_one_of_the_lab() -> None:
    balancer = config()
    inside = in_lab(balancer, plan_topology("x", balancer))
    assert addresses(inside) == ["192.168.255.2", "192.168.255.1", "10.3.10.6", "192.168.255.3"]


def test_an_address_that_came_after_the_lab_was_built_is_that_of_the_lab() -> None:
    """Probes of the new address had no route, so all backends were down."""
    topology = plan_topology("x", config())
    later = parse_config(
        CONFIG.format(probe="tcp", vip="10.3.10.45").replace("192.168.255.1", "10.9.9.9"), file="my.yaml", for_lab=True
    )
    assert addresses(in_lab(later, topology))[1] == "192.168.255.1"
    assert plan_topology("x", in_lab(later, topology)) == topology


def test_the_lab_of_a_config_with_its_own_addresses_is_the_same() -> None:
    """Otherwise `lab traffic` would refuse the config that the lab wrote down."""
    balancer = config()
    topology = plan_topology("x", balancer)
    inside = in_lab(balancer, topology)
    assert plan_topology("x", inside) == topology
    assert in_lab(inside, topology) == inside
    assert plan_topology("x", parse_config(render_config(inside), file="my.yaml", for_lab=True)) == topology


def test_a_vip_moves_the_addresses_of_the_lab_to_another_net() -> None:
    balancer = config(vip="192.168.255.9")
    assert addresses(in_lab(balancer, plan_topology("x", balancer)))[0] == "172.31.255.1"


def test_probes_go_out_in_the_switch_and_accept_its_certificates() -> None:
    balancer = config("https, netns: host, interface: eth0, ca_file: /x")
    health = in_lab(balancer, plan_topology("x", balancer)).services[0].health
    assert health is not None
    assert (health.netns, health.interface, health.insecure, health.ca_file) == ("xo-x-sw", None, True, None)


def test_agents_of_servers_are_probed_in_the_lab() -> None:
    """Probes of agents were sent in the network of the host."""
    text = CONFIG.format(probe="tcp", vip="10.3.10.45") + "agent_check: {port: 9707, netns: host, interface: eth0}\n"
    balancer = parse_config(text, file="my.yaml", for_lab=True)
    for service in in_lab(balancer, plan_topology("x", balancer)).services:
        assert service.agent_check is not None
        assert (service.agent_check.netns, service.agent_check.interface) == ("xo-x-sw", None)
        assert all(backend.address is not None for backend in service.backends)


def test_an_arp_probe_gets_the_device_of_the_lab() -> None:
    text = CONFIG.format(probe="arp", vip="10.3.10.45")
    text = "\n".join(line for line in text.splitlines() if "name: six" not in line and "name: any" not in line)
    with pytest.raises(ConfigError, match="add `interface:`"):
        parse_config(text, file="my.yaml")
    balancer = parse_config(text, file="my.yaml", for_lab=True)
    health = in_lab(balancer, plan_topology("x", balancer)).services[0].health
    assert health is not None
    assert health.interface == "xo-probe1"


def test_outside_of_a_lab_a_health_check_needs_addresses() -> None:
    with pytest.raises(ConfigError, match="needs the server's own address"):
        parse_config(CONFIG.format(probe="tcp", vip="10.3.10.45"), file="my.yaml")


def test_each_port_towards_backends_has_a_device_for_probes() -> None:
    topology = plan_topology("x", config())
    assert [device.egress for device in topology.probe_devices] == ["p1", "p9"]
    assert topology.probe_addresses == ("192.168.255.254",)


def test_a_backend_given_by_its_address_has_a_mac_of_the_lab() -> None:
    machines = plan_topology("x", config()).machines
    (six,) = (machine for machine in machines if machine.names == ("six",))
    assert six.own_addresses == ("10.3.10.6",)
    assert six.mac not in {machine.mac for machine in machines if machine is not six}
    assert six.mac != "00:00:00:00:00:00"


def test_a_machine_listens_on_the_addresses_of_health_checks() -> None:
    balancer = config("http, port: 8080, path: /ready")
    topology = plan_topology("x", balancer)
    machine = topology.machines[0]
    job = job_of(machine, in_lab(balancer, topology), topology, log="/log", certificate=lambda: "/pem")
    assert set(job.listen) == {("tcp", 80), ("tcp", 8080), ("udp", 7)}
    assert [(check.kind, check.port, check.path) for check in job.checks] == [("http", 8080, "/ready")]
    assert job.certificate is None


def test_clients_have_none_of_the_addresses_of_backends() -> None:
    text = CONFIG.format(probe="tcp", vip="10.3.10.45").replace("10.3.10.6", "198.18.0.7")
    topology = plan_topology("x", parse_config(text, file="my.yaml", for_lab=True))
    assert topology.clients.nets == ("100.64.0.0/15",)
    assert ip_address("198.18.0.7") == ip_address(topology.machines[2].own_addresses[0])
