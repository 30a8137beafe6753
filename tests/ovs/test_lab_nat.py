"""Labs with services that translate addresses: real packets to backends at their own address and port, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ovs.lab_support import install, lab_fixture, load_text, owners_of_blocks, running_lab
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.traffic import LabReport, Load, send
from xenoovs.model.balancer import Balancer


def _config(*, other: str = "passthrough", nat: str = "") -> Balancer:
    return load_text(
        f"""
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: {other}}}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:01
    mode: nat
    {nat}
    health: {{probe: dns, query: example.org}}
    backends:
      - {{name: u1, mac: 02:00:00:00:0b:01, address: 10.3.20.11, weight: 75}}
      - {{name: u2, mac: 02:00:00:00:0b:02, address: 10.3.20.12, port: 5353, weight: 25}}
  - name: web
    vip: 10.3.10.46
    protocol: tcp
    ports: [80]
    mode: nat
    {nat}
    health: {{probe: http}}
    backends:
      - {{name: w1, mac: 02:00:00:00:0b:03, address: 10.3.20.13, port: 8080, weight: 50}}
      - {{name: w2, mac: 02:00:00:00:0b:04, address: 10.3.20.14, port: 8080, weight: 50}}
  - name: direct
    vip: 10.3.10.47
    protocol: udp
    ports: [53]
    backends: [{{name: w1, mac: 02:00:00:00:0b:03, address: 10.3.20.13, weight: 1}}]
"""
    )


BALANCER = _config()


lab = lab_fixture("nat", BALANCER, lambda made: install(made, BALANCER))


LOAD = Load(clients=64, packets=3 * 640)


def assert_exact(report: LabReport) -> None:
    """Every client was answered, once, by the backend that has its block."""
    assert report.is_served
    assert [(one.service, one.answered, one.lost) for one in report.services] == [
        ("dns", 640, 0),
        ("web", 640, 0),
        ("direct", 640, 0),
    ]
    owners = {one.service: sorted(owners_of_blocks(one).values()) for one in report.services}
    assert owners == {"dns": ["u1", "u1", "u1", "u2"], "web": ["w1", "w1", "w2", "w2"], "direct": ["w1"] * 4}


def test_machines_do_not_have_the_vip_of_nat(lab: Lab) -> None:
    """Only the machine that also serves with direct server return has a VIP."""
    vips = {machine.names: machine.addresses for machine in lab.topology.machines}
    assert vips == {("u1",): (), ("u2",): (), ("w1",): ("10.3.10.47",), ("w2",): ()}


def test_health_checks_and_clients_ask_the_same_port(lab: Lab) -> None:
    """A DNS server is asked by probes, and by clients whose packets are translated: each gets its own answer."""
    probe = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10);"
        "s.sendto(bytes.fromhex('abcd01000001000000000000000001' + '0001'), ('10.3.20.12', 5353));"
        "print(s.recv(512)[:4].hex())"
    )
    answer = LabNetns(lab.marks).execute(lab.topology.switch_namespace, ["python3", "-c", probe]).stdout
    assert answer.strip() == "abcd8180"
    assert_exact(send(lab, BALANCER, load=LOAD))


@pytest.mark.parametrize(
    ("other", "nat"),
    [
        ("drop", "nat: {return_mac: 02:00:5e:10:00:fe}"),
        pytest.param("drop", "", marks=pytest.mark.long),
        pytest.param("passthrough", "nat: {clients: [198.18.0.0/15]}", marks=pytest.mark.long),
    ],
)
def test_answers_return_through_the_switch_whatever_else_it_forwards(other: str, nat: str, tmp_path: Path) -> None:
    wanted = _config(other=other, nat=nat)
    with running_lab("natway", wanted, tmp_path) as made:
        install(made, wanted)
        assert_exact(send(made, wanted, load=LOAD))
