"""Matching of backends after a config change: next hops keep their clients under any name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

import pytest

from tests.unit import balancer as small
from xenoovs.decision.decision import (
    BlockMove,
    Blocks,
    Decision,
    Phase,
    ServiceDecision,
    Transition,
    follow,
    next_hop_of,
    next_hops,
    owner_of,
)
from xenoovs.model.address import Mac
from xenoovs.model.balancer import LOW_SOURCE_BITS, Backend, Balancer, Drain, DrainMode, service_ids
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, with_mac
from xenoovs.partition.block import Block

EVEN, ODD = Block(0, 1), Block(1, 1)
B0, B1 = small.backends(1, 1)
NEW = Direct(Mac(0x0A0000000077), "p1")
CLAIM = small.claim()
(SERVICE_ID,) = service_ids([CLAIM]).values()


def of(*backends: Backend) -> Balancer:
    return small.balancer(replace(small.service(CLAIM), backends=backends))


BEFORE = of(B0, B1)


def by_address(backend: Backend) -> Backend:
    return replace(backend, address=IPv4Address("192.0.2.1"), follows=True)


def followed(after: Balancer, *, before: Balancer = BEFORE) -> Mapping[Block, str]:
    """The owners of both halves, which b0 and b1 had."""
    halves = Blocks.of([(EVEN, "b0"), (ODD, "b1")])
    decision = Decision.of({SERVICE_ID: ServiceDecision(LOW_SOURCE_BITS, halves, halves)}, version=7)
    moving = Transition.of(
        {SERVICE_ID: [BlockMove(ODD, "b0", 1.0, Phase.OPEN), BlockMove(EVEN, "b1", 1.0, Phase.OPEN)]}
    )
    found, transition = follow(decision, moving, before=before, after=after)
    ((_, service),) = found.services
    assert found.version == 7
    assert service.home == service.active
    owners = dict(service.active.rows)
    assert {move.block: move.old for move in dict(transition.services)[SERVICE_ID]} == {
        ODD: owners[EVEN],
        EVEN: owners[ODD],
    }
    return owners


def test_the_same_config() -> None:
    assert followed(BEFORE) == followed(of(B0, B1)) == {EVEN: "b0", ODD: "b1"}


def test_names_that_two_backends_exchange_move_no_client() -> None:
    assert followed(of(replace(B0, name="b1"), replace(B1, name="b0"))) == {EVEN: "b1", ODD: "b0"}


def test_a_new_name_for_the_same_next_hop() -> None:
    assert followed(of(B0, replace(B1, name="other"))) == {EVEN: "b0", ODD: "other"}


def test_a_backend_that_is_gone_owns_its_blocks_by_its_next_hop() -> None:
    """Its clients move, and a drain has the next hop of their open connections."""
    assert followed(of(B0)) == {EVEN: "b0", ODD: "0a:00:00:00:00:01@p1"}


def test_a_new_next_hop_in_place_of_one_that_is_gone_is_the_same_backend() -> None:
    assert followed(of(B0, replace(B1, next_hop=NEW))) == {EVEN: "b0", ODD: "b1"}


def test_a_new_next_hop_leaves_open_connections_with_the_old_one_where_services_drain() -> None:
    draining = small.balancer(
        replace(small.service(CLAIM), backends=(B0, replace(B1, next_hop=NEW)), drain=Drain(DrainMode.PIN))
    )
    assert followed(draining) == {EVEN: "b0", ODD: "0a:00:00:00:00:01@p1"}


def test_a_name_that_moves_on_to_the_next_hop_of_another_one_takes_its_clients() -> None:
    """b1 is now what b0 was, and nothing is left of what b1 was."""
    assert followed(of(replace(B0, name="b1"))) == {EVEN: "b1", ODD: "0a:00:00:00:00:01@p1"}


def test_a_backend_found_by_its_address_is_what_answers_there() -> None:
    """Two machines that exchange their MACs keep their names, and so their clients."""
    first, second = by_address(B0), by_address(B1)
    exchanged = of(replace(first, next_hop=second.next_hop), replace(second, next_hop=first.next_hop))
    assert followed(exchanged, before=of(first, second)) == {EVEN: "b0", ODD: "b1"}


def test_a_backend_that_gets_another_address_is_matched_by_its_next_hop() -> None:
    first, second = by_address(B0), by_address(B1)
    moved = replace(first, address=IPv4Address("192.0.2.9"), next_hop=second.next_hop)
    assert followed(of(moved), before=of(first, second)) == {EVEN: "0a:00:00:00:00:00@p1", ODD: "b0"}


def test_a_followed_backend_with_a_new_mac_keeps_its_name() -> None:
    second = by_address(B1)
    assert followed(of(B0, replace(second, next_hop=NEW)), before=of(B0, second)) == {EVEN: "b0", ODD: "b1"}


def test_a_service_of_another_claim_is_another_service() -> None:
    other = small.balancer(replace(small.service(small.claim(IPv4Address("192.0.2.1"))), backends=(B1, B0)))
    assert followed(other) == {EVEN: "b0", ODD: "b1"}


def test_a_weight_is_no_part_of_the_identity_of_a_backend() -> None:
    assert followed(of(replace(B0, weight=Fraction(0)), replace(B1, name="b2"))) == {EVEN: "b0", ODD: "b2"}


def test_backends_without_a_mac_have_no_next_hop() -> None:
    unknown = replace(B1, next_hop=with_mac(B1.next_hop, UNKNOWN_MAC))
    assert next_hops(of(B0, unknown).services[0]) == {"b0": B0.next_hop}


@pytest.mark.parametrize(
    ("owner", "hop"), [("b0", B0.next_hop), ("0a:00:00:00:00:77@p1", NEW), ("b9", None), ("x@p1", None)]
)
def test_the_next_hop_of_an_owner(owner: str, hop: Direct | None) -> None:
    assert next_hop_of(owner, {"b0": B0.next_hop}) == hop


def test_the_owner_of_a_next_hop() -> None:
    owners = {B0.next_hop: "b0"}
    assert (owner_of(B0.next_hop, owners), owner_of(NEW, owners)) == ("b0", "0a:00:00:00:00:77@p1")
