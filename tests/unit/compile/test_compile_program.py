"""The whole program: order, ids, and text."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address, ip_network
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.golden.cases import ROOT
from tests.predicted import predict_megaflows
from tests.strategies import port_ranges
from tests.switch_tunnels import VIP as TUNNELED_VIP
from tests.switch_tunnels import behind_tunnels
from tests.unit.balancer import claim, program, service
from xenoovs.compile.encoding import port_masks
from xenoovs.compile.pipeline import (
    ARP_PRIORITY,
    LEARNED,
    NEIGHBOUR_DISCOVERY_PRIORITY,
    OTHER_PRIORITY,
    PROGRAM,
    RETURN_PRIORITY,
    TUNNEL_RETURN_PRIORITY,
    Stage,
    below,
    service_priority,
)
from xenoovs.compile.plan import hardware_entries, most_entries
from xenoovs.errors import CompileError
from xenoovs.model.address import Mac, PortRange
from xenoovs.model.balancer import Claim, Protocol
from xenoovs.model.packet import Packet
from xenoovs.model.values import SHORTEST_PREFIX
from xenoovs.openflow.flow import OURS, Field, encode_cookie

_COMPILE = """
import sys
from pathlib import Path
from xenoovs.compile.program import compile_config
from xenoovs.compile.program import sorted_flows
from xenoovs.model.load import load_config
program = compile_config(load_config(Path(sys.argv[1])))
print(sorted_flows(program.flows))
print(program)
"""


@pytest.mark.parametrize("case", ["several-services", "ipv6"])
def test_the_same_bytes_in_every_process(case: str) -> None:
    """Sets and dictionaries of another order, which PYTHONHASHSEED makes, must not show."""
    assert _compiled_with("1", case) == _compiled_with("4242", case)


def _compiled_with(seed: str, case: str) -> str:
    argv = [sys.executable, "-c", _COMPILE, str(ROOT / case / "config.yaml")]
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout


VIP = IPv4Address("192.0.2.1")
SHORTEST = {32: SHORTEST_PREFIX[4], 128: SHORTEST_PREFIX[6]}
KINDS = [
    claim(),
    claim(protocol=Protocol.UDP),
    claim(VIP),
    claim(VIP, protocol=Protocol.UDP),
]


def all_priorities() -> dict[tuple[bool, bool, int], int]:
    """By whether there is a VIP, a protocol, and by bits of the port (which only a protocol can have)."""
    pairs = ((kind, bits) for kind, bits in product(KINDS, range(17)) if kind.protocol or not bits)
    return {(bool(kind.vips), kind.protocol is not None, bits): priority(kind, bits) for kind, bits in pairs}


def priority(kind: Claim, bits: int) -> int:
    return service_priority(kind, kind.vips[0] if kind.vips else None, port_bits=bits)


def test_a_vip_with_two_macs_is_refused() -> None:
    one, two = (
        replace(service(claim(VIP, protocol=protocol), name=name), vip_mac=Mac(mac))
        for name, protocol, mac in (("one", Protocol.UDP, 1), ("two", Protocol.TCP, 2))
    )
    with pytest.raises(CompileError, match=r"service two: 00:00:00:00:00:02 cannot answer for 192\.0\.2\.1"):
        program(one, two)


def test_priority_falls_with_vip_then_port_bits_then_protocol_and_no_two_share_one() -> None:
    by_kind = all_priorities()
    found = [by_kind[kind] for kind in sorted(by_kind, key=lambda kind: (kind[0], kind[2], kind[1]))]
    assert found == sorted(set(found), reverse=True)
    assert len(found) == 2 + 2 * 17
    assert NEIGHBOUR_DISCOVERY_PRIORITY > max(found) > min(found) > ARP_PRIORITY > OTHER_PRIORITY > 0


@pytest.mark.parametrize("bits", [32, 128])
def test_longer_prefixes_come_first_below_all_addresses_and_above_arp(bits: int) -> None:
    nets = [ip_network((0 if bits == 32 else 1 << 100, length), strict=False) for length in range(SHORTEST[bits], bits)]
    kinds = [(Protocol.UDP, 16), (Protocol.UDP, 14 if bits == 32 else 3), (Protocol.UDP, 0), (None, 0)]
    found = [priority(claim(net, protocol=protocol), ports) for net in nets for protocol, ports in kinds]
    assert found == sorted(set(found))
    assert min(all_priorities().values()) > found[-1]
    assert found[0] > ARP_PRIORITY
    for base, least in ((ARP_PRIORITY, RETURN_PRIORITY), (TUNNEL_RETURN_PRIORITY, OTHER_PRIORITY)):
        lower = [below(base, net) for net in nets if base != ARP_PRIORITY or net.version == 4]
        assert [*lower, base] == sorted({*lower, base})
        assert all(number > least for number in lower)


def test_tables_are_those_of_flows_that_are_installed() -> None:
    """An upgrade in place moves no client: a stage keeps its table and the number in its cookie. 3 is not in use."""
    assert {stage.name: (stage.table, stage.value) for stage in Stage} == {
        "CLASSIFY": (0, 0),
        "BALANCE": (1, 1),
        "DRAIN": (2, 2),
        "HOME": (4, 4),
        "DRAIN_TARGET": (5, 5),
        "LEARNED": (2, 6),
    }
    # Otherwise a dump of the program would leave out a stage, or show learned flows.
    assert max(stage.value for stage in Stage) < 8


@given(stage=st.integers(0, 255), service=st.integers(0, 1 << 32), generation=st.integers(0, 255))
def test_learned_flows_are_distinguished_by_their_cookies(stage: int, service: int, generation: int) -> None:
    cookie = encode_cookie(generation, stage, service & 0xFFFFFFFF)
    assert [sum(cookie in mask for mask in masks) for masks in (OURS, PROGRAM, LEARNED)] == (
        [1, 0, 1] if stage % 8 == Stage.LEARNED.value else [1, 1, 0]
    )


@given(port_ranges)
def test_masks_hold_every_port_of_the_ranges_once_and_no_two_could_be_one(ranges: tuple[PortRange, ...]) -> None:
    masks = port_masks(Field.TP_DST, ranges)
    sizes = [(mask, 0x10000 - mask.mask) for mask in masks]
    held = [port for mask, size in sizes for port in range(mask.value, mask.value + size)]
    assert sorted(held) == sorted({port for ports in ranges for port in range(ports.first, ports.last + 1)})
    assert not [mask for mask, size in sizes if mask._replace(value=mask.value ^ size) in masks]
    assert all(size.bit_count() == 1 for _, size in sizes)
    assert port_masks(Field.TP_DST, reversed(ranges)) == masks


def test_behind_a_tunnel_each_ecn_code_point_is_an_entry() -> None:
    tunneled = compiled(behind_tunnels())
    (made,) = tunneled.services
    packets = [
        Packet("p0", IPv4Address(0xC6336400 + client), TUNNELED_VIP, protocol=6, sport=4000, dport=80, tos=ecn)
        for client in range(8)
        for ecn in range(4)
    ]
    assert (hardware_entries(made), most_entries(made)) == (2, 8)
    assert len(predict_megaflows(tunneled.flows, packets)) == most_entries(made)
