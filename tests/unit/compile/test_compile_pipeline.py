"""The numbers of the program and the laws between them."""

from __future__ import annotations

from ipaddress import IPv4Address
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.balancer import claim
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
from xenoovs.model.balancer import Claim, Protocol
from xenoovs.openflow.flow import OURS, OWNER, Cookie, decode_cookie
from xenoovs.partition.block import MAX_WIDTH

VIP = IPv4Address("192.0.2.1")
KINDS = [claim(), claim(protocol=Protocol.UDP), claim(VIP), claim(VIP, protocol=Protocol.UDP)]


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
