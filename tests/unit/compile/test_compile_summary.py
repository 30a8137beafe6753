"""The summary of services in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from tests.compiled import compiled, draining, observed
from tests.unit.balancer import backends, balancer, claim, program, service
from xenoovs.compile.plan import ChangeKind, ServiceChange, summarise
from xenoovs.compile.program import Program
from xenoovs.compile.read import read
from xenoovs.decision.advance import Progress
from xenoovs.model.address import Mac
from xenoovs.model.balancer import BlockKey, Drain, DrainMode
from xenoovs.model.next_hop import with_mac
from xenoovs.openflow.flow import Flow

VIP = IPv4Address("192.0.2.1")
TWO = service(claim(VIP), 1, 1)
NOTHING, HALF, ALL = Fraction(0), Fraction(1, 2), Fraction(1)


def changes(made: Program, installed: Sequence[Flow]) -> Iterator[ServiceChange]:
    """What becomes of a bridge with these flows."""
    before, _ = read(observed(installed), balancer(*(each.service for each in made.services)))
    return summarise(made, before, installed)


def test_a_new_service() -> None:
    (change,) = changes(program(TWO), [])
    assert (change.kind, change.moved, change.blocks_before, change.blocks_after) == (ChangeKind.NEW, NOTHING, 0, 2)
    assert [(b.name, b.target, b.before, b.after) for b in change.backends] == [
        ("b0", HALF, NOTHING, HALF),
        ("b1", HALF, NOTHING, HALF),
    ]


def test_the_same_service_under_another_name() -> None:
    (change,) = changes(program(replace(TWO, name="new-name")), program(TWO).flows)
    assert (change.name, change.kind, change.moved) == ("new-name", ChangeKind.SAME, NOTHING)


def test_a_service_that_is_gone() -> None:
    (change,) = changes(program(), program(TWO).flows)
    assert (change.kind, change.blocks_before, change.blocks_after, change.hardware_entries) == (
        ChangeKind.REMOVED,
        2,
        0,
        0,
    )
    assert (change.hardware_entries_before, change.most_entries) == (2, change.hardware_entries)
    assert [(b.target, b.before, b.after) for b in change.backends] == [(None, HALF, NOTHING)] * 2


def test_a_replaced_server_moves_its_clients() -> None:
    first, second = backends(1, 1)
    changed = replace(TWO, backends=(first, replace(second, next_hop=with_mac(second.next_hop, Mac(0x0B0000000001)))))
    (change,) = changes(program(changed), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, HALF)
    assert [(b.name, b.before, b.after) for b in change.backends] == [
        ("b0", HALF, HALF),
        ("b1", NOTHING, HALF),
        ("(not in the config)", HALF, NOTHING),
    ]


def test_equal_backends_that_change_places_move() -> None:
    """The order of backends decides which one gets a block; the plan must show the cost of a swap."""
    swapped = replace(TWO, backends=tuple(reversed(TWO.backends)))
    (change,) = changes(program(swapped), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, ALL)


def test_entries_before_are_those_that_were_predicted_then() -> None:
    vips = (VIP, IPv4Address("192.0.2.2"))
    old = service(claim(*vips), 1, 2, 4)
    new = replace(old, backends=backends(1, 1, 1))
    (then,) = changes(program(old), [])
    (now,) = changes(program(new), program(old).flows)
    assert (then.hardware_entries_before, now.hardware_entries_before) == (0, then.hardware_entries)


def test_another_source_mac_is_a_change_that_moves_no_client() -> None:
    (change,) = changes(program(replace(TWO, source_mac=Mac(0x0B0000000001))), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, NOTHING)


def test_a_drain_that_goes_on_or_ends_is_no_change() -> None:
    """Blocks count as they are once it is over: clients moved when it began."""
    before = replace(TWO, backends=backends(1, 1, 0), drain=Drain(DrainMode.PIN))
    after, progress = balancer(replace(before, backends=backends(1, 0, 1))), Progress(0.0, {"p0", "p1"})
    made, installed = [], program(before).flows
    for age_s in (0.0, 30.0, 90.0):
        made.append(draining(after, observed(installed, age_s=age_s), progress, ofports={}))
        (change,) = changes(made[-1], installed)
        assert (change.kind, change.moved) == ((ChangeKind.SAME, NOTHING) if age_s else (ChangeKind.CHANGED, HALF))
        installed = made[-1].flows
    assert [len(each.services[0].moves) for each in made] == [1, 1, 0]


def test_another_key_moves_clients() -> None:
    """Of two backends, half of the clients have the other one by another bit."""
    (change,) = changes(program(replace(TWO, key=BlockKey(positions=(7,)))), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, HALF)


def test_ejected_backends_come_in_the_order_of_the_config() -> None:
    named = tuple(replace(one, name=name) for one, name in zip(backends(1, 1, 1), "zax", strict=True))
    three = replace(TWO, backends=named)
    ejected = compiled(balancer(three), ejected={"s": frozenset("za")})
    (change,) = changes(ejected, program(three).flows)
    assert change.ejected == ("z", "a")
