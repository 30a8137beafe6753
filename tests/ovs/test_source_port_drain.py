"""A drain of services by source port on a real ovs-vswitchd: a connection has one port, and so one block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.compiled import draining, observed
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, packet_text, predicted_shape
from tests.predicted import predict_megaflows
from xenoovs.compile.program import Program, compile_config, compile_onto
from xenoovs.decision.advance import Progress
from xenoovs.decision.decision import Phase
from xenoovs.judge.simulate.walk import tables_of
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_dump

pytestmark = pytest.mark.ovs

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin}
services:
  - name: web
    vip: [192.0.2.1, "2001:db8::1"]
    protocol: tcp
    ports: [443]
    match: {field: source_port}
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
  - name: quic
    vip: [192.0.2.1, "2001:db8::1"]
    protocol: udp
    ports: [443]
    match: {field: source_port}
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""
BEFORE = parse_config(CONFIG, file="c.yaml")
AFTER = parse_config(CONFIG.replace("00:02, weight: 1", "00:02, weight: 0"), file="c.yaml")
PORTS = {"p0": 1, "p1": 2}
TCP, UDP, SYN, ACK = 6, 17, 0x002, 0x010
WAYS = (
    (IPv4Address("203.0.113.7"), IPv4Address("192.0.2.1")),
    (IPv6Address("2001:db8:c::7"), IPv6Address("2001:db8::1")),
)


def packets(protocol: int, ports: Sequence[int], *, flags: int = ACK) -> list[Packet]:
    """Of one client by each IP version."""
    return [
        Packet("p0", source, destination, protocol, port, 443, tcp_flags=flags)
        for source, destination in WAYS
        for port in ports
    ]


OPEN = [*packets(TCP, range(1000, 1008)), *packets(UDP, range(1000, 1008))]
FRESH = packets(TCP, range(2000, 2008), flags=SYN)
LATER = [replace(packet, tcp_flags=ACK) for packet in FRESH]


def moving() -> Program:
    """The half of `one` goes to `two`, and new connections go there already."""
    begun = draining(AFTER, observed(compile_config(BEFORE).flows), Progress(0.0, PORTS), ofports=PORTS)
    program = draining(AFTER, observed(begun.flows), Progress(0.0, PORTS, settle_s=0.0), ofports=PORTS)
    assert [[move.phase for move in made.moves] for made in program.services] == [[Phase.OPEN], [Phase.OPEN]]
    return program


def receivers(bridge: DummyBridge, sent: Sequence[Packet]) -> list[int]:
    """The MACs to which these packets leave."""
    before = len(bridge.sent("p1"))
    flags = {SYN: "syn", ACK: "ack"}
    for packet in sent:
        told = f",tcp_flags({flags[packet.tcp_flags]})" if packet.protocol == TCP else ""
        bridge.send("p0", [packet_text(packet) + told])
    return [int.from_bytes(frame[:6], "big") for frame in bridge.sent("p1")[before:]]


def owners(program: Program, sent: Sequence[Packet]) -> list[int]:
    tables = tables_of(program.flows)
    return [copy.dl_dst for packet in sent for copy in tables.run(packet).copies]


def flows_of(bridge: DummyBridge) -> list[Flow]:
    return [each.flow for each in parse_dump(bridge.ofctl("dump-flows"))]


def test_connections_stay_and_new_ones_go_on_by_port(bridge: DummyBridge) -> None:
    program, plain = moving(), compile_onto(AFTER, observed(compile_config(BEFORE).flows))
    install(bridge, program.flows)
    old = owners(compile_config(BEFORE), OPEN)
    assert len(set(old)) == 2
    assert receivers(bridge, OPEN) == old
    assert receivers(bridge, FRESH) == owners(plain, FRESH)
    # Those of the moving half have a flow of their own each.
    assert len(flows_of(bridge)) == len(program.flows) + len(FRESH) // 2
    assert receivers(bridge, LATER) == owners(plain, FRESH)
    assert receivers(bridge, OPEN) == old


def test_megaflows_are_as_predicted(bridge: DummyBridge) -> None:
    install(bridge, moving().flows)
    receivers(bridge, FRESH)
    flows = flows_of(bridge)
    bridge.settle()
    receivers(bridge, [*OPEN, *LATER])
    predicted = {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, [*OPEN, *LATER])}
    assert observed_shapes(bridge) == predicted
    # UDP in a moving block needs no more than the block: its ports alone, by each IP version.
    of_udp = [fields for _, fields, _ in predicted if ("nw_proto", 0xFF, UDP) in fields]
    assert len(of_udp) == 2 * 2
    assert {mask for fields in of_udp for name, mask, _ in fields if name == "tp_src"} == {1}
