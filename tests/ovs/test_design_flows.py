"""Every design on a real ovs-vswitchd: the megaflows that it makes, exactly, and where it sends the clients."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import packet_text
from xenoovs.compile.program import compile_config
from xenoovs.measure.design_flows import OPENFLOW_DESIGNS, Design, design_program
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet

CLIENTS = 2000
_VIP = IPv4Address("10.3.10.45")


def config_of(*weights: int) -> Balancer:
    backends = "\n".join(
        f"      - {{name: b{n}, mac: 02:00:00:00:00:{n:02x}, weight: {weight}, address: 192.0.2.{n}}}"
        for n, weight in enumerate(weights, start=1)
    )
    return parse_config(
        "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: drop}\n"
        f"services:\n  - name: web\n    vip: {_VIP}\n    protocol: udp\n    ports: [53]\n    backends:\n{backends}\n",
        file="my.yaml",
    )


NINE = (128, 64, 32, 16, 8, 4, 2, 1, 1)
"""The weights of docs/explanation/one-megaflow.md."""

MEGAFLOWS = {
    Design.MASKED: 9,
    Design.LONG_FIRST: 256,
    Design.LONGEST_MATCH: 256,
    # One for the packets before they are hashed, and one for each of 256 hashes.
    Design.DP_HASH: 257,
    Design.HASH_SOURCE: CLIENTS,
    Design.LEARN: CLIENTS,
    # One to track, one to hash, one for each of 256 hashes, one for each translated address.
    Design.CONNTRACK: 1 + 1 + 256 + 9,
}


@pytest.mark.parametrize("design", OPENFLOW_DESIGNS, ids=lambda design: design.value)
def test_as_many_megaflows_as_published_and_a_client_stays_with_its_backend(
    bridge: DummyBridge, design: Design
) -> None:
    balancer = config_of(*NINE)
    install(bridge, balancer, design)
    backends = send(bridge, CLIENTS)
    assert {1, 2, 3} <= set(backends.values())
    assert send(bridge, 300).items() <= backends.items()
    assert len(bridge.megaflows()) == MEGAFLOWS[design]
    if design in (Design.MASKED, Design.LONG_FIRST, Design.LONGEST_MATCH):
        blocks = compile_config(balancer).services[0].decision.active.rows
        assert backends == {
            client: int(owner[1:])
            for client in backends
            for block, owner in blocks
            if block.contains(int(IPv4Address(client)))
        }


def test_answers_through_the_bridge_come_from_the_vip(bridge: DummyBridge) -> None:
    install(bridge, config_of(1, 1), Design.CONNTRACK)
    ((client, backend),) = send(bridge, 1).items()
    answered = Packet("p1", IPv4Address(f"192.0.2.{backend}"), IPv4Address(client), 17, 53, 4000)
    bridge.receive("p1", [(packet_text(answered),)])
    (answer,) = bridge.sent("p0")
    assert (answer[26:30], answer[30:34]) == (_VIP.packed, IPv4Address(client).packed)


def install(bridge: DummyBridge, balancer: Balancer, design: Design) -> None:
    program = design_program(balancer, design)
    bridge.ofctl("add-groups", "-", stdin="".join(f"{group}\n" for group in program.groups), version="OpenFlow15")
    bridge.add_flows(program.text)


def send(bridge: DummyBridge, clients: int) -> dict[str, int]:
    """One packet of each client; every value of the low 8 bits is among them. Return the backends by client."""
    before = len(bridge.sent("p1"))
    packets = [Packet("p0", IPv4Address(0x0A000000 + client), _VIP, 17, 4000, 53) for client in range(clients)]
    bridge.receive("p0", [(packet_text(packet),) for packet in packets])
    bridge.ovs.appctl("revalidator/wait")
    backends = {str(IPv4Address(packet[26:30])): packet[5] for packet in bridge.sent("p1")[before:]}
    assert len(backends) == clients
    return backends
