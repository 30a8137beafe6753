"""Megaflows while blocks move, IPv4 and IPv6: those of a real ovs-vswitchd are the predicted ones."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from tests.compiled import draining, observed
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, packet_text, predicted_shape
from tests.predicted import predict_megaflows
from xenoovs.compile.program import compile_config
from xenoovs.decision.advance import Progress
from xenoovs.model.address import IPAddress, parse_mac
from xenoovs.model.load import load_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.text import parse_dump

pytestmark = pytest.mark.ovs

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin}
services:
  - name: any
    vip: [192.0.2.1, "2001:db8::1"]
    rewrite_source_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
  - name: dns
    vip: 192.0.2.2
    protocol: udp
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""
SYN, ACK = 0x002, 0x010


def packet(source: int, vip: IPAddress, *, protocol: int = 6, flags: int = ACK, port: int = 1000) -> Packet:
    four = vip.version == 4
    address: IPAddress = IPv4Address(0xC6336400 + source) if four else IPv6Address((0x20010DB8 << 96) + source)
    return Packet("p0", address, vip, protocol, port, 80, dl_dst=parse_mac("c4:70:bd:a0:56:ac"), tcp_flags=flags)


VIPS: tuple[IPAddress, ...] = (IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1"))
OPENINGS = [packet(source, vip, flags=SYN, port=2000) for vip in VIPS for source in range(4)]
REST = [
    *(packet(source, vip) for vip in VIPS for source in range(4)),
    *(packet(source, vip, port=2000) for vip in VIPS for source in range(4)),
    *(packet(source, vip, protocol=17) for vip in VIPS for source in range(4)),
    *(packet(source, IPv4Address("192.0.2.2"), protocol=17) for source in range(8)),
]


def text_of(packet: Packet) -> str:
    flags = {SYN: "syn", ACK: "ack"}[packet.tcp_flags]
    return packet_text(packet) + (f",tcp_flags({flags})" if packet.protocol == 6 else "")


def send(bridge: DummyBridge, packets: list[Packet]) -> None:
    for each in packets:
        bridge.send("p0", [text_of(each)])


def test_predicted(bridge: DummyBridge, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG)
    before = compile_config(load_config(path))
    path.write_text(CONFIG.replace("00:02, weight: 1", "00:02, weight: 0"))
    ports = {"p0": 1, "p1": 2}
    moving = draining(load_config(path), observed(before.flows), Progress(0.0, ports), ofports=ports)
    assert [len(service.moves) for service in moving.services] == [1, 1]
    install(bridge, moving.flows)
    send(bridge, OPENINGS)
    flows = [each.flow for each in parse_dump(bridge.ofctl("dump-flows"))]
    # One half of the clients, by IPv4 and IPv6.
    assert len(flows) == len(moving.flows) + 4
    bridge.settle()
    send(bridge, REST)
    assert observed_shapes(bridge) == {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, REST)}
