"""The Linux kernel asks for an IPv6 VIP in the lab, and takes the answer of the controller; also amid a flood."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address

import pytest

from tests.compiled import compiled
from tests.ovs.lab_support import VIP_MAC, balancer, running_lab, service
from tests.ovs.ways import Record, connect
from tests.patience import PATIENCE_S, eventually
from tests.unit.controller.test_solicitation import solicitation
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.controller.listen import parse_address
from xenoovs.controller.server import ControllerSettings, Server
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.lab.lab import Lab
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer, Claim, PortRange, Protocol
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

_VIP, _CLIENT = "2001:db8:10::80", "2001:db8:c::5"
_CLAIM = Claim(frozenset({Family.IPV6}), (ip_address(_VIP),), Protocol.UDP, (PortRange(53, 53),))
_BALANCER = balancer(service("six", _CLAIM, vip_mac=VIP_MAC))
_FLOOD = 5000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab("nd", _BALANCER, tmp_path_factory.mktemp("lab")) as made:
        # The kernel asks from an address of the interface; clients of the lab have theirs beside it.
        _ip(made, "addr", "add", f"{_CLIENT}/128", "dev", made.topology.clients.interface, "nodad")
        yield made


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    """A controller in the network namespace of the lab's switch."""
    settings = ControllerSettings(parse_address("127.0.0.1:0"))
    started = in_namespace(lab.topology.switch_namespace, lambda: Server(settings, log=Record().log))
    with started as running:
        running.expect(lab.topology.bridge)
        connect(lab.ovs, lab.topology.bridge, running)
        switch = ControllerSwitch(running.registry, timeout_s=PATIENCE_S)
        switch.apply(lab.topology.bridge, _program(_BALANCER))
        running.expect(lab.topology.bridge).proxy.follow(_BALANCER)
        eventually(lambda: "nd_target" in _dump(lab), "the flows that bring solicitations")
        _forget(lab)
        yield running
    lab.ovs.vsctl("del-controller", lab.topology.bridge)


def _program(wanted: Balancer) -> Bundle:
    return Bundle(tuple(FlowMod(Command.ADD, flow) for flow in compiled(wanted).flows))


def _dump(lab: Lab) -> str:
    target = f"unix:{lab.ovs.directory / lab.topology.bridge}.mgmt"
    return run(["ovs-ofctl", "-O", "OpenFlow14", "dump-flows", target], env=lab.ovs.env).stdout


def _ip(lab: Lab, *words: str) -> str:
    return run(["ip", "-6", "-n", lab.topology.clients.namespace, *words]).stdout


def _forget(lab: Lab) -> None:
    """The lab's entry for the VIP, which stands for the answer that flows cannot give."""
    _ip(lab, "neigh", "del", _VIP, "dev", lab.topology.clients.interface)


def _neighbour(lab: Lab) -> str:
    return _ip(lab, "neigh", "show", _VIP, "dev", lab.topology.clients.interface)


def _finds(lab: Lab) -> bool:
    """Whether the kernel has taken an answer. A client sends a datagram to the VIP; the kernel has to ask first.

    It asks three times, a second apart; where the machine is too busy for an answer by then, the client sends again.
    """

    def call() -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind((_CLIENT, 0))
            sock.sendto(b"?", (_VIP, 53))

    in_namespace(lab.topology.clients.namespace, call)
    return f"lladdr {VIP_MAC} REACHABLE" in _neighbour(lab)


def test_a_host_finds_the_vip(lab: Lab, server: Server) -> None:
    eventually(lambda: _finds(lab), "the kernel takes the answer")
    assert server.expect(lab.topology.bridge).proxy.answered >= 1


def test_a_host_finds_the_vip_amid_a_flood(lab: Lab, server: Server) -> None:
    frame = solicitation(target=IPv6Address(_VIP).packed)

    def flood() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind((lab.topology.clients.interface, 0))
            for _ in range(_FLOOD):
                sock.send(frame)

    in_namespace(lab.topology.clients.namespace, flood)
    eventually(lambda: _finds(lab), "the kernel takes the answer")
    assert server.expect(lab.topology.bridge).proxy.answered < _FLOOD
    assert [line.bridge for line in server.registry.connections] == [lab.topology.bridge]
