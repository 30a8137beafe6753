"""The whole program: order, ids, and text."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.golden.cases import ROOT
from tests.strategies import port_numbers, port_ranges
from tests.unit.balancer import balancer, claim, lines, program, service
from xenoovs.compile.encoding import PortMask, port_masks
from xenoovs.compile.pipeline import (
    ARP_PRIORITY,
    LEARNED,
    NEIGHBOUR_DISCOVERY_PRIORITY,
    OTHER_PRIORITY,
    PROGRAM,
    Stage,
    block_priority,
    cookie_of,
    service_priority,
)
from xenoovs.compile.program import sorted_flows
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import BlockKey, Claim, OtherTraffic, PortRange, Protocol
from xenoovs.openflow.flow import OURS, OWNER, Cookie, decode_cookie
from xenoovs.openflow.text import render_flow
from xenoovs.partition.block import MAX_WIDTH

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


def test_nothing_is_left_without_services_and_policy() -> None:
    assert compiled(balancer(other=OtherTraffic.LEAVE)).flows == ()


def test_sorted_means_table_then_falling_priority_then_text() -> None:
    services = [service(claim(IPv4Address(f"192.0.2.{i}")), 5, 2, 1, name=f"s{i}") for i in range(9)]
    flows = sorted_flows(program(*services).flows)
    keys = [(flow.table, -flow.priority, render_flow(flow)) for flow in flows]
    assert keys == sorted(keys)


@pytest.mark.parametrize("case", ["several-services", "ipv6"])
def test_the_same_bytes_in_every_process(case: str) -> None:
    """Sets and dictionaries of another order, which PYTHONHASHSEED makes, must not show."""
    assert _compiled_with("1", case) == _compiled_with("4242", case)


def _compiled_with(seed: str, case: str) -> str:
    argv = [sys.executable, "-c", _COMPILE, str(ROOT / case / "config.yaml")]
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout


def tails(*, claimed_weights: tuple[int, ...], **changes: object) -> list[str]:
    """The flows of a table, from the priority to the actions, without the id."""
    made = replace(service(claim(), *claimed_weights), **changes)  # type: ignore[arg-type]
    compiled = program(made)
    return [line.replace(f",reg0={compiled.services[0].service_id:#x}", "") for line in lines(compiled, table=1)]


def test_a_backend_of_weight_0_has_no_flow() -> None:
    assert tails(claimed_weights=(0, 3, 0)) == ["priority=1000,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1"]


def test_bits_may_be_anywhere_in_the_address() -> None:
    found = tails(claimed_weights=(3, 1), key=BlockKey(positions=(31, 8)))
    assert [line.split(" ")[0].split("nw_src=")[1] for line in found] == [
        "0.0.0.0/1",
        "128.0.0.0/128.0.1.0",
        "128.0.1.0/128.0.1.0",
    ]


def test_the_source_mac_is_set_before_the_destination() -> None:
    (line,) = tails(claimed_weights=(1,), source_mac=Mac(0xC470BDA056BD))
    assert line.endswith(" actions=mod_dl_src:c4:70:bd:a0:56:bd,mod_dl_dst:0a:00:00:00:00:00,output:p1")


VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")
MAC = Mac(0x02005E100001)


def matches(claimed: Claim) -> list[str]:
    """Priority and conditions of the flows of one service in `classify`."""
    return [line.split(" actions=")[0] for line in lines(program(service(claimed)), table=0)]


def test_a_service_writes_its_id_to_a_register_and_continues() -> None:
    compiled = program(service(claim()))
    (line,) = lines(compiled, table=0)
    assert line.endswith(f" actions=load:{compiled.services[0].service_id:#x}->NXM_NX_REG0[],resubmit(,1)")


@pytest.mark.parametrize(
    ("protocol", "keywords"),
    [
        (Protocol.TCP, ["tcp", "tcp6"]),
        (Protocol.UDP, ["udp", "udp6"]),
        (Protocol.SCTP, ["sctp", "sctp6"]),
        (Protocol.ICMP, ["icmp", "icmp6"]),
        (None, ["ip", "ipv6"]),
    ],
)
def test_each_ip_version_has_its_keyword(protocol: Protocol | None, keywords: list[str]) -> None:
    services = [m for m in matches(claim(VIP, VIP6, protocol=protocol)) if not m.startswith("priority=2000")]
    assert [match.split(",")[1] for match in services] == keywords


def test_vips_ports_and_ingress_ports_multiply() -> None:
    web = service(claim(VIP, OTHER_VIP, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)]))
    made = compiled(balancer(web, ingress=("p0", "p2")))
    assert len(made.services[0].classify) == 2 * 2 * 2
    assert "priority=907,tcp,in_port=p2,nw_dst=192.0.2.2,tp_dst=0x1f40/0xfffc" in str(lines(made, table=0))


def test_a_family_without_a_vip_gets_no_flow() -> None:
    assert matches(Claim(frozenset(Family), (VIP,))) == ["priority=936,ip,in_port=p0,nw_dst=192.0.2.1"]


@pytest.mark.parametrize("protocol", [None, Protocol.ICMP])
def test_neighbour_discovery_is_kept_out(protocol: Protocol | None) -> None:
    guards = [match for match in matches(claim(VIP6, protocol=protocol)) if match.startswith("priority=2000")]
    assert guards == [f"priority=2000,icmp6,in_port=p0,icmp_type={number}" for number in range(133, 138)]


@pytest.mark.parametrize("claimed", [claim(), claim(VIP), claim(VIP6, protocol=Protocol.TCP)])
def test_no_guard_where_no_service_could_swallow_it(claimed: Claim) -> None:
    assert not [match for match in matches(claimed) if "icmp_type" in match]


def test_guards_are_written_once_for_all_services() -> None:
    both = program(service(claim(VIP6)), service(Claim(frozenset({Family.IPV6}), protocol=Protocol.ICMP), name="t"))
    assert sum("icmp_type" in line for line in lines(both, table=0)) == 5


def test_a_shared_vip_is_answered_for_once() -> None:
    """DNS over UDP and over TCP: two flows of one key would make every plan differ for ever."""
    udp, tcp = (
        replace(service(claim(VIP, protocol=protocol, ports=[(53, 53)]), name=protocol.value), vip_mac=MAC)
        for protocol in (Protocol.UDP, Protocol.TCP)
    )
    arp = [flow for flow in program(udp, tcp).flows if flow.priority == 500]
    assert len(arp) == 1
    assert arp == [flow for flow in program(tcp, udp).flows if flow.priority == 500]


def test_a_vip_with_two_macs_is_refused() -> None:
    one = replace(service(claim(VIP, protocol=Protocol.UDP), name="one"), vip_mac=MAC)
    two = replace(service(claim(VIP, protocol=Protocol.TCP), name="two"), vip_mac=Mac(2))
    with pytest.raises(CompileError, match=r"service two: 00:00:00:00:00:02 cannot answer for 192\.0\.2\.1"):
        program(one, two)


def test_the_answer_to_arp() -> None:
    answering = replace(service(claim(VIP, VIP6, protocol=Protocol.TCP)), vip_mac=MAC)
    (line,) = (line for line in lines(program(answering), table=0) if "arp_op" in line)
    assert line == (
        "priority=500,arp,in_port=p0,arp_tpa=192.0.2.1,arp_op=1 actions="
        "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:00:5e:10:00:01,load:0x2->NXM_OF_ARP_OP[],"
        "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0x2005e100001->NXM_NX_ARP_SHA[],"
        "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:0xc0000201->NXM_OF_ARP_SPA[],IN_PORT"
    )


@pytest.mark.parametrize(
    ("policy", "flows"),
    [
        (OtherTraffic.PASSTHROUGH, ["in_port=p0 actions=output:p1", "in_port=p1 actions=output:p0"]),
        (OtherTraffic.NORMAL, ["in_port=p0 actions=NORMAL", "in_port=p1 actions=NORMAL"]),
        (OtherTraffic.DROP, ["in_port=p0 actions=drop", "in_port=p1 actions=drop"]),
        (OtherTraffic.LEAVE, []),
    ],
)
def test_other_traffic(policy: OtherTraffic, flows: list[str]) -> None:
    assert lines(compiled(balancer(other=policy)), table=0) == [f"priority=1,{flow}" for flow in flows]


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (OtherTraffic.PASSTHROUGH, "output:p1"),
        (OtherTraffic.NORMAL, "NORMAL"),
        (OtherTraffic.DROP, "drop"),
        (OtherTraffic.LEAVE, "NORMAL"),
    ],
)
def test_neighbour_discovery_goes_where_other_traffic_goes(policy: OtherTraffic, action: str) -> None:
    made = compiled(balancer(service(claim(VIP6)), other=policy))
    assert {line.split(" actions=")[1] for line in lines(made, table=0) if "icmp_type" in line} == {action}


def test_shared_flows_carry_no_service_in_their_cookie() -> None:
    answering = replace(service(claim(VIP)), vip_mac=MAC)
    made = compiled(balancer(answering, other=OtherTraffic.NORMAL))
    cookies = [decode_cookie(flow.cookie) for flow in made.shared]
    assert [cookie.service for cookie in cookies if cookie] == [0] * len(made.shared) == [0, 0, 0]


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
    return service_priority(kind, port_bits=bits)


def test_unlike_conditions_never_share_a_priority() -> None:
    found = all_priorities()
    assert len(set(found.values())) == len(found) == 2 + 2 * 17


def test_priority_falls_with_vip_then_port_bits_then_protocol() -> None:
    ordered = sorted(all_priorities().items(), key=lambda item: -item[1])
    assert [kind for kind, _ in ordered] == sorted(all_priorities(), key=lambda kind: (kind[0], kind[2], kind[1]))


def test_services_lie_between_neighbour_discovery_and_arp() -> None:
    found = all_priorities().values()
    assert NEIGHBOUR_DISCOVERY_PRIORITY > max(found) > min(found) > ARP_PRIORITY > OTHER_PRIORITY > 0


def test_blocks_are_ordered_by_depth_alone() -> None:
    depths = range(MAX_WIDTH + 1)
    assert [block_priority(depth) for depth in depths] == list(range(1000, 1000 - len(depths), -1))


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


def test_cookies_are_ours() -> None:
    cookie = cookie_of(Stage.HOME, 0xFFFFFFFF)
    assert cookie >> 48 == OWNER
    assert decode_cookie(cookie) == Cookie(generation=1, stage=4, service=0xFFFFFFFF)


@given(stage=st.integers(0, 255), service=st.integers(0, 1 << 32), generation=st.integers(0, 255))
def test_learned_flows_are_distinguished_by_their_cookies(stage: int, service: int, generation: int) -> None:
    cookie = Cookie(generation, stage, service & 0xFFFFFFFF).encode()
    assert [sum(cookie in mask for mask in masks) for masks in (OURS, PROGRAM, LEARNED)] == (
        [1, 0, 1] if stage % 8 == Stage.LEARNED.value else [1, 1, 0]
    )


def test_no_stage_is_taken_for_another_by_its_last_bits() -> None:
    """Otherwise a dump of the program would leave out a stage, or show learned flows."""
    assert max(stage.value for stage in Stage) < 8


def held(mask: PortMask) -> range:
    return range(mask.value, mask.value + (1 << 16 - mask.bits))


@given(port_ranges())
def test_every_port_of_the_ranges_is_held_once_and_no_other(ranges: tuple[PortRange, ...]) -> None:
    wanted = {port for ports in ranges for port in range(ports.first, ports.last + 1)}
    found = [port for mask in port_masks(ranges) for port in held(mask)]
    assert len(found) == len(wanted)
    assert set(found) == wanted


@given(port_numbers, port_numbers)
def test_no_two_masks_could_be_one(first: int, last: int) -> None:
    masks = port_masks([PortRange(min(first, last), max(first, last))])
    found = {(mask.value, mask.bits) for mask in masks}
    assert not [(value, bits) for value, bits in found if (value ^ 1 << 16 - bits, bits) in found and bits]


@given(port_ranges())
def test_the_order_of_ranges_does_not_matter(ranges: tuple[PortRange, ...]) -> None:
    assert port_masks(reversed(ranges)) == port_masks(ranges)


@pytest.mark.parametrize(
    ("first", "last", "masks"),
    [
        (0, 65535, [(0, 0x0000)]),
        (0, 0, [(0, 0xFFFF)]),
        (65535, 65535, [(0xFFFF, 0xFFFF)]),
        (1, 65535, [(1 << bit, 0x10000 - (1 << bit)) for bit in range(16)]),
        (8000, 8003, [(8000, 0xFFFC)]),
        (32767, 32768, [(32767, 0xFFFF), (32768, 0xFFFF)]),
    ],
)
def test_known_ranges(first: int, last: int, masks: list[tuple[int, int]]) -> None:
    assert [(mask.value, mask.mask) for mask in port_masks([PortRange(first, last)])] == masks


def test_no_range_is_no_mask() -> None:
    assert port_masks([]) == ()
