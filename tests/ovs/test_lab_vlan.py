"""Tenants in VLANs: real packets of clients on a trunk, servers in VLANs of their own, and a controller-less switch."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from functools import partial
from ipaddress import ip_network

import pytest

from tests.ovs.lab_support import install, lab_fixture, load_text
from tests.patience import eventually
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.diagnosis.host import Question
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.judge.doctor.check import CheckState
from xenoovs.judge.doctor.examine import HOST_CHECKS, examine
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.sockets import from_address, udp_socket
from xenoovs.lab.traffic import Load, send
from xenoovs.measure.echo import echo_experiment
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.process import run

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: passthrough}
services:
  - name: blue
    vlan: 100
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: same, mac: 02:00:00:00:0b:01, weight: 1}
      - {name: changed, mac: 02:00:00:00:0b:02, weight: 1, vlan: 300}
  - name: red
    vlan: 200
    vip: 10.3.10.46
    protocol: udp
    ports: [53]
    backends:
      - {name: removed, mac: 02:00:00:00:0b:03, weight: 1, vlan: untagged}
      - {name: same, mac: 02:00:00:00:0b:01, weight: 1}
  - name: plain
    vlan: untagged
    vip: [10.3.11.0/24, "2001:db8::47"]
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:03
    backends:
      - {name: added, mac: 02:00:00:00:0b:05, weight: 1, vlan: 300}
      - {name: none, mac: 02:00:00:00:0b:06, weight: 1}
  - name: web
    vlan: 100
    vip: 10.3.10.48
    protocol: tcp
    ports: [80]
    mode: nat
    backends:
      - {name: near, mac: 02:00:00:00:0b:07, address: 10.3.20.11, port: 8080, weight: 1}
      - {name: far, mac: 02:00:00:00:0b:08, address: 10.3.20.12, port: 8080, weight: 1, vlan: 300}
"""


BALANCER = load_text(CONFIG)


lab = lab_fixture("vlan", BALANCER, lambda made: install(made, BALANCER))


def test_tags_are_kept_changed_removed_and_added(lab: Lab) -> None:
    """One MAC in two VLANs is two servers; each gets the clients of its own service alone."""
    report = send(lab, BALANCER, load=Load(clients=64, packets=800))
    assert report.is_served
    assert [(s.service, s.lost, {b.name for b in s.backends if b.answered}) for s in report.services] == [
        ("blue", 0, {"same", "changed"}),
        ("red", 0, {"removed", "same"}),
        ("plain", 0, {"added", "none"}),
        ("web", 0, {"near", "far"}),
    ]
    # Each address of a prefix has the MAC of its service.
    shown = run(["ip", "-n", lab.topology.clients.namespace, "neigh", "show"]).stdout.splitlines()
    asked = {line.split()[0] for line in shown if "lladdr 02:00:5e:10:00:03" in line}
    assert asked >= {"10.3.11.0", "10.3.11.1", "10.3.11.255"}


def test_an_answer_from_the_vlan_of_another_tenant_is_of_another_service(lab: Lab) -> None:
    """It was counted for the server of the same name and MAC in the VLAN of the service."""
    mac = "02:00:00:00:0b:01, weight: 1}"
    install(lab, load_text(CONFIG.replace(mac, mac.replace("}", ", vlan: 200}"), 1)))
    blue = send(lab, BALANCER, load=Load(clients=16, packets=160)).services[0]
    install(lab, BALANCER)
    assert (blue.is_served, {b.name for b in blue.backends if b.answered}) == (False, {"changed"})


IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # linux/in.h: nothing is fragmented
HEADERS = 28


def answered(sock: socket.socket, vip: str, size: int, clients: list[str]) -> int:
    """Send UDP packets of a size to a VIP, each with a small one behind it; how many clients' were answered."""
    sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    seen = set[bytes]()

    def send(client: str, data: bytes) -> None:
        sock.sendmsg([data], from_address(socket.inet_aton(client)), 0, (vip, 53))

    def are_answered(small: dict[bytes, str]) -> bool:
        for word in small.keys() - seen:
            send(small[word], word + b" ")
        time.sleep(0.05)
        with suppress(BlockingIOError):
            while True:
                seen.add(sock.recv(100).split()[0])
        return small.keys() <= seen

    # In the first round Open vSwitch has no megaflow yet, and keeps no order. A packet that does not fit takes others
    # of its batch with it (netdev_linux_send() of lib/netdev-linux.c): the small ones are sent until they are answered.
    for number in range(3):
        small = {f"{number}/{client}".encode(): client for client in clients}
        for client in clients:
            send(client, f"large/{client} ".encode().ljust(size - HEADERS))
        eventually(partial(are_answered, small), "answers to small packets")
    return sum(each.startswith(b"large") for each in seen)


@pytest.mark.parametrize("offload", ["on", "off"])
@pytest.mark.parametrize("mtu", [1496, 1500, 1504])
def test_doctor_finds_where_a_full_packet_does_not_fit_and_a_tag_needs_no_room(
    lab: Lab, mtu: int, offload: str
) -> None:
    """Packets of the MTU of the ingress port, whose tag is kept, changed, removed and added."""
    switch = lab.topology.switch_namespace
    for port in ("p0", "p1"):
        run(["ip", "netns", "exec", switch, "ethtool", "-K", port, "txvlan", offload, "rxvlan", offload])
    LabNetns().batch([f"link set dev p1 mtu {mtu}"], namespace=switch)
    management = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
    question = Question(BALANCER, management, lab, target=THIS_HOST, backends=False)
    rows = examine(question.read(), checks=HOST_CHECKS)
    is_ok = {row.subject: row.state is CheckState.OK for row in rows if row.name == "MTU"}
    assert is_ok == {"p0": True, "p1": mtu >= 1500}
    clients = [str(ip_network(lab.topology.clients.nets[0])[number]) for number in range(1, 9)]
    for vip in ("10.3.10.45", "10.3.10.46", "10.3.11.47"):
        for size in (1500, min(mtu, 1500)):
            with in_namespace(lab.topology.clients.namespace, lambda: udp_socket(socket.AF_INET)) as sock:
                assert answered(sock, vip, size, clients) == (len(clients) if size <= mtu else 0), (vip, size)


@pytest.mark.parametrize("name", ["blue", "red", "plain"])
def test_echoes_reach_a_backend_in_the_vlan_of_its_service_and_in_another_one(lab: Lab, name: str) -> None:
    """The clients of the lab send them without a tag."""
    with open_lab_bed(lab.name, BALANCER, service=name) as bed:
        made = echo_experiment(bed, offloads=["unchanged"], quick=False, sizes=[64], messages=2)
        assert isinstance(rtt_us := made.measure(made.points[0], {}).values["rtt_us"], list)
        assert len(rtt_us) == 2


def test_a_bed_has_the_machine_of_each_service_where_backends_have_one_name(lab: Lab) -> None:
    vlans = {machine.namespace: machine.vlan for machine in lab.topology.machines}
    with open_lab_bed(lab.name, BALANCER) as bed:
        found = {service: {name: vlans[at.netns] for name, at in of.items()} for service, of in bed.stations.items()}
    assert found == {
        "blue": {"same": 100, "changed": 300},
        "red": {"removed": 0, "same": 200},
        "plain": {"added": 300, "none": 0},
        "web": {"near": 100, "far": 300},
    }
