"""The tuple-space model against a real ovs-vswitchd: the same megaflows, bit by bit, and the same packets out.

Chance programs, the cases of flows/, ARP, blocks that move, the published figures of "one rule, one megaflow", and
services by source port beside services by source address: the masks of one key widen no megaflow of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from random import Random

import pytest

from tests.arp import arp_request
from tests.compiled import compiled, draining, observed
from tests.golden.cases import CASES, balancer_of, examples_of, program_of
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import (
    install,
    observed_shapes,
    packet_text,
    predicted_shapes,
    send,
    send_as_predicted,
    without_learned_ports,
)
from tests.predicted import packets_of_every_region
from tests.property.programs import random_packets, random_program
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram, compile_config
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.tunnel import TUNNEL_DEVICES
from xenoovs.decision.advance import Progress
from xenoovs.decision.decision import Phase
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion
from xenoovs.judge.offload import check_dump
from xenoovs.judge.simulate.megaflows import pipeline_of, predict
from xenoovs.judge.simulate.walk import Headers, tables_of, walk
from xenoovs.judge.trace import render_packet
from xenoovs.model.address import IPAddress, Mac, family_of, parse_mac
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import TAGGED, Field, Flow
from xenoovs.openflow.text import parse_dump, parse_flow


@pytest.mark.each_release
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 16))])
def test_megaflows_and_packets_are_as_predicted(wide: DummyBridge, seed: int) -> None:
    random = Random(seed)
    flows, packets = random_program(random), random_packets(random, count=200)
    send_as_predicted(wide, flows, packets)
    learned = {int(p.source) for p in packets if any(c.port is None for c in walk(tables_of(flows), p).copies)}
    received = {copy for copy in _received(wide) if copy[1] not in learned}
    assert received == {copy for copy in _copies(flows, packets) if copy[1] not in learned}


@pytest.mark.parametrize("seed", [200, 201])
def test_other_prefix_fields_are_predicted_too(wide: DummyBridge, seed: int) -> None:
    # As many as the database of 3.1 takes; the order counts.
    fields = (Field.NW_SRC, Field.IPV6_DST, Field.IPV6_SRC)
    for table in (0, 1):
        tracked = ["--id=@t", "create", "Flow_Table", f"name=t{table}", "prefixes=ip_src,ipv6_dst,ipv6_src"]
        wide.ovs.vsctl("--", *tracked, "--", "set", "Bridge", wide.name, f"flow_tables:{table}=@t")
    random = Random(seed)
    send_as_predicted(wide, random_program(random), random_packets(random, count=200), prefix_fields=fields)


def test_flags_beside_ports_are_predicted(wide: DummyBridge) -> None:
    rules = ("priority=200,tcp,tp_dst=53,tcp_flags=+psh actions=drop", "priority=100,ip actions=output:p1")
    packet = Packet("p0", IPv4Address("198.51.100.7"), IPv4Address("10.3.10.45"), 6, 4000, 53, tcp_flags=0)
    send_as_predicted(wide, [parse_flow(rule) for rule in rules], [packet])


@pytest.mark.each_release
@pytest.mark.parametrize("seed", [100])
def test_the_switch_itself_traces_the_packets_the_same_way(wide: DummyBridge, seed: int) -> None:
    random = Random(seed)
    flows = random_program(random)
    install(wide, flows)
    pipeline = pipeline_of(flows, wide.prefix_fields)
    for packet in random_packets(random, count=20):
        text = wide.trace(render_packet(packet))
        actions = text.split("Datapath actions: ")[1].splitlines()[0]
        predicted = ",".join(predict(pipeline, packet)[0].actions)
        assert predicted in ("", actions)


Copy = tuple[str, int, int, int]
"""Egress port, IP source, dl_dst, dl_src."""


def _copies(flows: list[Flow], packets: list[Packet]) -> set[Copy]:
    tables = tables_of(flows)
    return {
        (str(copy.port), int(packet.source), copy.dl_dst, copy.dl_src)
        for packet in packets
        for copy in walk(tables, packet).copies
    }


def _received(bridge: DummyBridge) -> set[Copy]:
    return {(port, *_addresses(frame)) for port in bridge.ports for frame in bridge.sent(port)}


def _addresses(frame: bytes) -> tuple[int, int, int]:
    # Offsets: Ethernet header of 14 bytes (IEEE 802.3), source address at 12 (RFC 791) and at 8 (RFC 8200).
    source = frame[26:30] if frame[12:14] == b"\x08\x00" else frame[22:38]
    return int.from_bytes(source, "big"), int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big")


NOT_ON_A_DUMMY = "tunnel-locals"
"""No route of a dummy datapath is local, so ports there lose `local_ip`. test_lab_tunnels.py sends these packets."""


@pytest.mark.each_release
@pytest.mark.parametrize("case", [case for case in CASES if case != NOT_ON_A_DUMMY])
def test_megaflows(dpu: DummyBridge, case: str) -> None:
    flows, packets = program_of(case).flows, [example.packet for example in examples_of(case)]
    install(dpu, flows)
    dpu.settle(removed_s=0)
    send(dpu, packets)
    predicted = predicted_shapes(flows, packets, dpu.prefix_fields)
    devices = {end.port: TUNNEL_DEVICES[end.tunnel.type.value] for end in balancer_of(case).remote_ends}
    expected = {(in_port, fields, in_datapath(actions, devices)) for in_port, fields, actions in predicted}
    observed = {(in_port, fields, in_datapath(actions, devices)) for in_port, fields, actions in observed_shapes(dpu)}
    assert without_learned_ports(observed, expected) == expected


def in_datapath(actions: tuple[str, ...], devices: Mapping[str, str]) -> tuple[str, ...]:
    """The actions, with tunnels in a form that prediction and datapath share.

    A userspace datapath pushes the outer header after it has set the inner one, and calls the port by its device.
    """
    tunnels = encapsulations(actions)
    if not tunnels:
        return actions
    sets = tuple(action for action in actions if action.startswith("set(eth("))
    names = (devices.get(each.device, each.device.rstrip("0123456789")) for each in tunnels)
    return (*sets, *(f"{name} {each.remote} {each.key}" for name, each in zip(names, tunnels, strict=True)))


CLAIMS = (
    "vlan: 100, vip: 10.3.0.0/16",
    "vlan: 100, vip: 10.3.10.0/24, protocol: udp, ports: 53",
    'vlan: 200, vip: [10.3.0.0/16, "2001:db8::/64"]',
    'vlan: 300, vip: [10.3.10.45, "2001:db8::45"]',
    "vip: 10.0.0.0/8, protocol: tcp",
    "vip: 10.3.10.46, protocol: tcp, ports: 80",
)
BACKENDS = "backends: [{name: a, mac: 02:00:5e:10:00:02, weight: 1}, {name: b, mac: 02:00:5e:10:00:03, weight: 1}]"
IN_VLANS = "\n".join(
    [
        "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\nservices:",
        *(f"  - {{name: s{number}, {claim}, {BACKENDS}}}" for number, claim in enumerate(CLAIMS)),
    ]
)


@pytest.mark.each_release
@pytest.mark.parametrize(
    "program",
    [program_of("prefix"), compile_config(parse_config(IN_VLANS, file="vlans.yaml"))],
    ids=["prefix", "in-vlans"],
)
def test_nested_prefixes_have_as_many_megaflows_as_are_counted(bridge: DummyBridge, program: Program) -> None:
    sources: list[IPAddress] = [first + n for first in (CLIENT4, CLIENT6) for n in range(4)]
    sent = {made: list(packets_of_every_region(program.balancer, made.service, sources)) for made in program.services}
    install(bridge, list(program.flows))
    bridge.settle(removed_s=0)
    for made, packets in sent.items():
        before = observed_shapes(bridge)
        send(bridge, packets)
        assert len(observed_shapes(bridge) - before) == hardware_entries(made)


CLIENT4, CLIENT6 = IPv4Address("198.51.100.0"), IPv6Address("2001:db8:c::")
VIP, OTHER = 0x0A030A2D, 0x0A030A70
REQUESTS = [
    arp_request("p0", sender_mac=0x0200000000A0 + i, sender=0xC6336400 + i, target=OTHER + i if i % 3 == 0 else VIP)
    for i in range(12)
]


def _arp_text(request: Headers) -> str:
    mac, sender = Mac(request.get(Field.ARP_SHA)), IPv4Address(request.get(Field.ARP_SPA))
    target = IPv4Address(request.get(Field.ARP_TPA))
    return (
        f"in_port(1),packet_type(ns=0,id=0),eth(src={mac},dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),"
        f"arp(sip={sender},tip={target},op=1,sha={mac},tha=00:00:00:00:00:00)"
    )


def _reply_fields(frame: bytes) -> tuple[int, ...]:
    """dl_dst, dl_src, then operation, sender and target of the ARP packet (RFC 826)."""
    cuts = ((0, 6), (6, 12), (20, 22), (22, 28), (28, 32), (32, 38), (38, 42))
    return tuple(int.from_bytes(frame[start:end], "big") for start, end in cuts)


@pytest.mark.parametrize("case", ["weighted-70-30", "prefix"])
def test_replies_and_megaflows_are_as_simulated(bridge: DummyBridge, case: str) -> None:
    flows = program_of(case).flows
    install(bridge, flows)
    bridge.settle(removed_s=0)
    bridge.send("p0", [_arp_text(request) for request in REQUESTS])

    order = (Field.DL_DST, Field.DL_SRC, Field.ARP_OP, Field.ARP_SHA, Field.ARP_SPA, Field.ARP_THA, Field.ARP_TPA)
    copies = [copy for request in REQUESTS for copy in walk(tables_of(flows), request).copies]
    for port in ("p0", "p1"):
        simulated = [tuple(map(copy.headers.get, order)) for copy in copies if copy.port == port]
        assert list(map(_reply_fields, bridge.sent(port))) == simulated

    predicted = predicted_shapes(flows, REQUESTS, bridge.prefix_fields)
    assert {shape[:2] for shape in observed_shapes(bridge)} == {shape[:2] for shape in predicted}


def test_a_frame_with_a_priority_alone_is_of_no_vlan_and_not_untagged(bridge: DummyBridge) -> None:
    packet = Packet("p0", CLIENT4, IPv4Address("10.3.10.45"), 17, 50001, 53, vlan=TAGGED)
    install(bridge, list(program_of("vlan").flows))
    send(bridge, [packet])
    (frame,) = bridge.sent("p1")
    assert frame[:16] == bytes.fromhex("02000000000202000000000181000000")
    assert [copy.port for copy in walk(tables_of(program_of("vlan").flows), packet).copies] == ["p1"]


NINE = "".join(
    f"      - {{name: b{depth}, mac: '02:00:5e:10:00:0{depth}', weight: {1 << 8 - min(depth, 8)}}}\n"
    for depth in range(1, 10)
)
"""A half, a quarter, ... 1/256, 1/256: a block of each depth from 1 to 8, and two of the last."""

SERVICES = {
    "udp-port": ("udp", 443, "source_port"),
    "udp-address": ("udp", 53, "source_address"),
    "tcp-port": ("tcp", 443, "source_port"),
    "tcp-address": ("tcp", 80, "source_address"),
    "sctp-port": ("sctp", 5060, "source_port"),
    "sctp-address": ("sctp", 5061, "source_address"),
}
BOTH_VIPS = (IPv4Address("192.0.2.10"), IPv6Address("2001:db8::10"))
BESIDE = "version: 1\nswitch: {ingress: [p0], egress: p1, other_traffic: drop}\nservices:\n" + "".join(
    f"  - name: {name}\n    vip: ['192.0.2.10', '2001:db8::10']\n    protocol: {protocol}\n    ports: [{port}]\n"
    f"    match: {{field: {field}}}\n    backends:\n{NINE}"
    for name, (protocol, port, field) in SERVICES.items()
)


def test_megaflows_are_as_many_as_blocks_whatever_stands_beside_and_verify_finds_each(bridge: DummyBridge) -> None:
    program = compiled(parse_config(BESIDE, file="c.yaml"))
    packets = [packet for service in program.services for packet in everybody(service)]
    found = send_as_predicted(bridge, program.flows, packets)
    assert len(found) == sum(map(hardware_entries, program.services)) == 18 * len(SERVICES)
    lines = [line.replace("dp:ovs", "offloaded:yes, dp:tc") for line in bridge.megaflows()]
    verified = check_dump(expected_services(program), lines)
    assert verified.conclusion is Conclusion.IN_HARDWARE
    assert [each.verdicts for each in verified.blocks] == [{Verdict.HW: 1}] * 18 * len(SERVICES)
    assert (verified.unwildcardings, verified.overrides, verified.outside, verified.unparsed) == ((), (), (), ())


def everybody(service: ServiceProgram) -> Iterator[Packet]:
    """Every value of the low 9 bits of the port, 512 clients for it, to each VIP."""
    claim = service.service.claim
    assert claim.protocol is not None
    for vip in BOTH_VIPS:
        for number in range(512):
            port = 40_448 + (number * 37 + 5) % 512
            protocol = claim.protocol.number(family_of(vip))
            yield Packet("p0", client(vip, number), vip, protocol, port, claim.ports[0].first)


def client(vip: IPAddress, number: int) -> IPAddress:
    return IPv4Address(0xC6120000 + number) if vip.version == 4 else IPv6Address((0x20010DB8000C << 80) + number)


DRAINING = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin}
services:
  - name: any
    vip: [192.0.2.1, "2001:db8::1"]
    rewrite_source_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, vlan: 300}
""" + "".join(
    f"  - {{name: {name}, {claim}, {BACKENDS}}}\n"
    for name, claim in (
        ("dns", "vip: 192.0.2.2, protocol: udp"),
        ("web", "vip: 192.0.2.3, protocol: tcp, ports: [80], match: {field: source_port}"),
        ("quic", "vip: 192.0.2.3, protocol: udp, ports: [80], match: {field: source_port}"),
    )
)
SYN, ACK = 0x002, 0x010


def packet_of(source: int, vip: IPAddress, *, protocol: int = 6, flags: int = ACK, port: int = 1000) -> Packet:
    mac = parse_mac("c4:70:bd:a0:56:ac")
    return Packet("p0", client(vip, source), vip, protocol, port, 80, dl_dst=mac, tcp_flags=flags)


VIPS: tuple[IPAddress, ...] = (IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1"))
DNS, BY_PORT = IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3")
OPENINGS = [
    *(packet_of(source, vip, flags=SYN, port=2000) for vip in VIPS for source in range(4)),
    *(packet_of(7, BY_PORT, flags=SYN, port=port) for port in range(2000, 2008)),
]
REST = [
    *(packet_of(source, vip, port=port) for vip in VIPS for source in range(4) for port in (1000, 2000)),
    *(packet_of(source, vip, protocol=17) for vip in (*VIPS, DNS) for source in range(8)),
    *(packet_of(7, BY_PORT, port=port) for port in (*range(1000, 1008), *range(2000, 2008))),
    *(packet_of(7, BY_PORT, protocol=17, port=port) for port in range(1000, 1008)),
]


def send_one_by_one(bridge: DummyBridge, packets: list[Packet]) -> None:
    for each in packets:
        flags = f",tcp_flags({'syn' if each.tcp_flags == SYN else 'ack'})" if each.protocol == 6 else ""
        bridge.send("p0", [packet_text(each) + flags])


@pytest.mark.parametrize("phase", [Phase.SETTLING, Phase.OPEN])
def test_megaflows_of_blocks_that_move(bridge: DummyBridge, phase: Phase) -> None:
    before = compile_config(parse_config(DRAINING, file="before.yaml"))
    after = parse_config(DRAINING.replace("00:02, weight: 1", "00:02, weight: 0"), file="after.yaml")
    ports = {"p0": 1, "p1": 2}
    moving = draining(after, observed(before.flows), Progress(0.0, ports), ofports=ports)
    if phase is Phase.OPEN:
        moving = draining(after, observed(moving.flows), Progress(0.0, ports, settle_s=0.0), ofports=ports)
    # Blocks of UDP alone need not settle.
    assert [[move.phase for move in service.moves] for service in moving.services] == [[phase], [Phase.OPEN]] * 2
    install(bridge, moving.flows)
    send_one_by_one(bridge, OPENINGS)
    flows = [each.flow for each in parse_dump(bridge.ofctl("dump-flows"))]
    # One half of the connections.
    assert len(flows) == len(moving.flows) + len(OPENINGS) // 2
    bridge.settle()
    send_one_by_one(bridge, REST)
    assert observed_shapes(bridge) == predicted_shapes(flows, REST, bridge.prefix_fields)
