"""Paths of tunnels on a real Open vSwitch: where packets leave and as what, what that costs, and what commands say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install
from tests.tunnels import LOCAL, PORTS, REMOTE, TUNNEL, UPLINKS, tunnelled
from xenoovs.compile.program import compile_config
from xenoovs.model.balancer import Balancer, OtherTraffic
from xenoovs.model.packet import Packet
from xenoovs.model.tunnel import Paths, PathSelector

GOLDEN = Path(__file__).parents[1] / "golden" / "cli"
BY_UPLINK = tunnelled(
    replace(TUNNEL, paths=Paths(PathSelector.UPLINK, 2, uplinks=("p0", "p1"))),
    uplinks=replace(UPLINKS, ingress=("p0", "p1"), other_traffic=OtherTraffic.DROP),
)
ALIAS, OUR_ALIAS = IPv4Address("192.168.201.1"), IPv4Address("192.168.201.2")
BY_ADDRESS = tunnelled(
    replace(
        TUNNEL, paths=Paths(PathSelector.ADDRESS), remotes=(replace(REMOTE, aliases=(ALIAS,)),), aliases=(OUR_ALIAS,)
    )
)
CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: pf0hpf}
services: []
tunnels:
  - name: rack7
    local: 192.168.200.2
    host_port: pf0hpf
    source_ports: 49152-49215
    remotes: [{name: b, address: 192.168.200.1}]
    paths: {by: source_port, ports: [50001, 50002, 50003, 50004]}
    probe: {port: xoar0}
"""


@pytest.fixture
def case() -> str:
    """A case of flows/ with the ports of the configs here, and none that is a tunnel itself."""
    return "tunnel-source-port"


@dataclass(frozen=True, slots=True)
class Datagram:
    """The parts of a UDP frame over IPv4 that paths change. `is_intact`: both checksums are right, or absent."""

    macs: tuple[bytes, bytes]
    source: IPv4Address
    destination: IPv4Address
    ports: tuple[int, int]
    is_intact: bool


def datagram(frame: bytes) -> Datagram:
    """Without options (RFC 791, 3.1; RFC 768)."""
    header, payload = frame[14:34], frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
    pseudo = header[12:20] + b"\0\x11" + payload[4:6]
    has_sum = payload[6:8] != b"\0\0"
    return Datagram(
        (frame[:6], frame[6:12]),
        IPv4Address(header[12:16]),
        IPv4Address(header[16:20]),
        (int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")),
        _sum(header) == 0xFFFF and (not has_sum or _sum(pseudo + payload) == 0xFFFF),
    )


def _sum(data: bytes) -> int:
    """The ones' complement sum (RFC 1071); 0xFFFF over data with its checksum."""
    total = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame_of(packet: Packet) -> bytes:
    """A whole frame with both checksums; the generator of Open vSwitch leaves them wrong."""
    payload = bytes(range(36))
    length = 8 + len(payload)
    ports = packet.sport.to_bytes(2, "big") + packet.dport.to_bytes(2, "big") + length.to_bytes(2, "big")
    addresses = packet.source.packed + packet.destination.packed
    pseudo = addresses + b"\0\x11" + length.to_bytes(2, "big")
    udp = ports + (_sum(pseudo + ports + payload) ^ 0xFFFF).to_bytes(2, "big") + payload
    before = bytes((0x45, packet.tos)) + (20 + length).to_bytes(2, "big") + bytes(4) + b"\x40\x11"
    header = before + (_sum(before + addresses) ^ 0xFFFF).to_bytes(2, "big") + addresses
    macs = packet.dl_dst.value.to_bytes(6, "big") + packet.dl_src.value.to_bytes(6, "big")
    return macs + b"\x08\0" + header + udp


def send(bridge: DummyBridge, packets: Sequence[Packet]) -> None:
    for port in bridge.ports:
        bridge.receive(port, [(frame_of(packet).hex(),) for packet in packets if packet.in_port == port])


def of_host(source_port: int) -> Packet:
    return Packet("pf0hpf", LOCAL, REMOTE.address, 17, source_port, 4789)


def installed(bridge: DummyBridge, balancer: Balancer) -> DummyBridge:
    install(bridge, compile_config(balancer).flows)
    bridge.settle(removed_s=0)
    return bridge


def sent(bridge: DummyBridge, port: str) -> list[Datagram]:
    return [datagram(frame) for frame in bridge.sent(port)]


def test_paths_by_source_port_are_written_and_checksums_stay_right(dpu: DummyBridge) -> None:
    installed(dpu, tunnelled())
    send(dpu, [of_host(port) for port in range(49_152, 49_216)])
    left = sent(dpu, "p0")
    assert {each.ports[1] for each in left} == {4789}
    assert sorted(each.ports[0] for each in left) == sorted(PORTS * 16)
    assert all(each.is_intact for each in left)


def test_each_source_port_in_use_is_one_megaflow_by_source_port_and_each_block_one_by_uplink(dpu: DummyBridge) -> None:
    """What an action writes is matched as a whole, so that rewriting the port costs one for each."""
    in_use = [of_host(port) for port in range(40_000, 40_300)]
    installed(dpu, tunnelled())
    send(dpu, in_use)
    assert len(dpu.megaflows()) == len(in_use)
    dpu.ofctl("del-flows")
    installed(dpu, BY_UPLINK)
    dpu.settle()
    send(dpu, in_use)
    assert len(dpu.megaflows()) == len(compile_config(BY_UPLINK).services[0].blocks)


def test_paths_by_uplink_leave_by_the_uplink_of_their_block_unchanged(dpu: DummyBridge) -> None:
    installed(dpu, BY_UPLINK)
    send(dpu, [of_host(port) for port in range(40_000, 40_100)])
    for port, bit in (("p0", 0), ("p1", 1)):
        left = sent(dpu, port)
        assert [each.ports[0] for each in left] == list(range(40_000 + bit, 40_100, 2))
        assert {each.destination for each in left} == {REMOTE.address}


def test_paths_by_address_go_to_it_and_are_given_to_the_host_under_its_own(dpu: DummyBridge) -> None:
    installed(dpu, BY_ADDRESS)
    send(dpu, [of_host(port) for port in range(40_000, 40_100)])
    left = sent(dpu, "p0")
    assert [each.destination for each in left] == [(REMOTE.address, ALIAS)[port & 1] for port in range(100)]
    assert all(each.is_intact for each in left)
    send(dpu, [Packet("p0", REMOTE.address, destination, 17, 40_001, 4789) for destination in (LOCAL, OUR_ALIAS)])
    received = sent(dpu, "pf0hpf")
    assert [each.destination for each in received] == [LOCAL, LOCAL]
    assert all(each.is_intact for each in received)


def test_a_probe_returns_by_its_port_with_one_source_port_and_the_main_address(dpu: DummyBridge) -> None:
    installed(dpu, BY_ADDRESS)
    for destination in (LOCAL, OUR_ALIAS):
        for tos, source_port in ((0x20, 4788), (0x24, 4787), (0x2C, 4786), (0x34, 4785)):
            before = len(sent(dpu, "p0"))
            probes = [Packet("p0", REMOTE.address, destination, 17, port, 4789, tos=tos) for port in PORTS]
            send(dpu, probes)
            answers = sent(dpu, "p0")[before:]
            assert len(answers) == len(PORTS)
            to, by = probes[0].dl_src.value.to_bytes(6, "big"), probes[0].dl_dst.value.to_bytes(6, "big")
            assert set(answers) == {Datagram((to, by), LOCAL, REMOTE.address, (source_port, 4788), is_intact=True)}
    assert not sent(dpu, "pf0hpf")


def compare(name: str, text: str, *, update: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if update:
        path.write_text(text)
    assert text == path.read_text()


def test_commands_serve_a_bridge_that_has_tunnels_and_no_service(
    xenoovs: CommandLine, dpu: DummyBridge, config: Path, *, update_golden: bool
) -> None:
    at = ("--db", dpu.ovs.db)
    planned = xenoovs("plan", config, *at)
    assert (planned.status, planned.err) == (2, "")
    compare("tunnels-plan", planned.out, update=update_golden)
    assert xenoovs("apply", config, *at, "--yes").status == 0
    assert xenoovs("plan", config, *at).status == 0
    compare("tunnels-status", xenoovs("status", config, *at).out, update=update_golden)
    assert xenoovs("remove", config, *at, "--yes").status == 0
    assert dpu.dump_flows() == []


def test_a_config_without_source_ports_keeps_those_of_the_flows(
    xenoovs: CommandLine, dpu: DummyBridge, config: Path
) -> None:
    """Where there are none yet, no path is known, and the host's packets are other traffic."""
    at = ("--db", dpu.ovs.db)
    unknown = CONFIG.replace("ports: [50001, 50002, 50003, 50004]", "discover: ttl")
    config.write_text(unknown)
    assert xenoovs("apply", config, *at, "--yes").status == 0
    send(dpu, [of_host(40_000)])
    (left,) = sent(dpu, "p0")
    assert left.ports == (40_000, 4789)
    config.write_text(CONFIG)
    assert xenoovs("apply", config, *at, "--yes").status == 0
    before = [line for line in dpu.dump_flows() if "mod_tp_src:5" in line]
    config.write_text(unknown)
    assert xenoovs("apply", config, *at, "--yes").status == 0
    assert [line for line in dpu.dump_flows() if "mod_tp_src:5" in line] == before != []


def test_every_megaflow_of_a_source_port_belongs_to_its_block_and_probes_are_not_counted(
    xenoovs: CommandLine, dpu: DummyBridge, config: Path, *, update_golden: bool
) -> None:
    at = ("--db", dpu.ovs.db)
    assert xenoovs("apply", config, *at, "--yes").status == 0
    dpu.settle(removed_s=0)
    send(dpu, [of_host(port) for port in range(49_152, 49_216)])
    send(dpu, [Packet("xoar0", LOCAL, REMOTE.address, 17, port, 4789, tos=0x20) for port in PORTS])
    send(dpu, [Packet("p0", REMOTE.address, LOCAL, 17, port, 4789, tos=0x20) for port in PORTS])
    found = json.loads(xenoovs("verify-offload", config, *at, "-o", "json").out)
    blocks = found["blocks_total"]
    assert (blocks["megaflows"], blocks["predicted_megaflows"]) == (64, 64)
    assert {row["backend"]: row["megaflows"] for row in found["backends"]} == dict.fromkeys(
        ("p1", "p2", "p3", "p4"), 16
    )
    assert not found["answers"]
    compare("tunnels-lint", xenoovs("lint", config).out, update=update_golden)
