"""From weights, budgets and keys to the owners of clients, and decisions as documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.compiled import only
from tests.tunnels import tunnelled
from tests.unit import balancer as small
from tests.unit.balancer import balancer, claim, service
from xenoovs.decision.decide import decide, parts_served, tolerance_of, undisturbed
from xenoovs.decision.decision import (
    BlockMove,
    Blocks,
    Decision,
    DesiredState,
    Phase,
    ServiceDecision,
    Transition,
    decision_document,
    follow,
    next_hops,
)
from xenoovs.decision.document import parse_decision
from xenoovs.decision.ejection import select_ejected
from xenoovs.errors import BudgetUnreachable, DecisionMalformed, ToleranceUnreachable
from xenoovs.model.address import Mac
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    BlockKey,
    Drain,
    DrainMode,
    Health,
    ProbeKind,
    Service,
    service_ids,
)
from xenoovs.model.block_key import LOW_SOURCE_BITS
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, with_mac
from xenoovs.model.remote import remotes_of
from xenoovs.partition.block import Block


def decided(made: Service) -> ServiceDecision:
    return only(decide(Decision(), DesiredState(balancer(made))))


@pytest.mark.parametrize("key", [BlockKey(width=1), BlockKey(positions=(5,)), BlockKey(positions=(5, 6), width=1)])
def test_too_few_bits_report_their_least_tolerance(key: BlockKey) -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        decided(replace(service(claim(), 3, 1), key=key))
    assert (caught.value.max_width, caught.value.least) == (1, Fraction(1))


def test_a_weight_that_no_tolerance_meets_is_named_with_its_service_and_backend() -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        decided(service(claim(), 10**9, 0, 30, name="dns"))
    assert str(caught.value) == (
        "a tolerance of 5% cannot be met with 16 bits, nor can any tolerance up to 100%: raise the smallest weight "
        "(backend dns/b2) or set it to 0, or allow more bits where they are limited"
    )
    with pytest.raises(ToleranceUnreachable, match=r"lowest possible is 50%.*\(backend dns/b1\)"):
        decided(replace(service(claim(), 5, 1, name="dns"), key=BlockKey(width=2), tolerance=Fraction(1, 100)))


def test_a_budget_trades_tolerance_for_flows() -> None:
    exact = replace(service(claim(), 70, 30), tolerance=Fraction(1, 1000))
    cheap = replace(exact, max_flows=3)
    assert len(decided(cheap).active.rows) <= 3 < len(decided(exact).active.rows)
    assert tolerance_of(cheap) > exact.tolerance == tolerance_of(exact)


def test_a_budget_below_the_backends_is_refused() -> None:
    with pytest.raises(BudgetUnreachable) as caught:
        decided(replace(service(claim(), 1, 1, 1, name="dns"), max_flows=2))
    assert str(caught.value) == (
        "service dns: 2 flows cannot serve 3 backends with a weight, of which each needs a flow; raise `max_flows` to "
        "at least 3"
    )


EQUAL = balancer(service(claim(), 1, 1))
EIGHTH, HALF = Fraction(1, 8), Fraction(1, 2)


def after(
    *, ejected: frozenset[str] = frozenset(), ramps: dict[tuple[str, str], Fraction] | None = None
) -> ServiceDecision:
    """What two equal backends have once these are ejected, or that far in their slow start."""
    whole = decide(Decision(), DesiredState(EQUAL))
    return only(decide(whole, DesiredState(EQUAL, {"s": ejected}, ramps or {})))


@pytest.mark.parametrize("part", [EIGHTH, HALF, Fraction(7, 8)])
def test_a_slow_start_serves_a_part_of_its_home(part: Fraction) -> None:
    found = after(ramps={("s", "b1"): part})
    assert found.active.shares()["b1"] == part / 2
    assert parts_served(found) == {"b0": Fraction(1), "b1": part}
    assert (found.ejected, found.displaced) == (frozenset[str](), frozenset({"b1"}))


def test_the_least_part_that_is_served_counts_as_one_step() -> None:
    """A backend with any clients is not ejected, however few it has of its own."""
    home, tiny = Blocks.of([(Block(0, 1), "b0"), (Block(1, 1), "b1")]), Blocks.of([(Block(1, 16), "b1")])
    found = ServiceDecision(BlockKey(), home, tiny.over(Blocks.of([(Block(0, 0), "b0")])))
    assert parts_served(found) == {"b0": Fraction(1), "b1": EIGHTH}


def test_undisturbed_ignores_backends_without_a_weight() -> None:
    """A weight of 0 in the config drains the backend; it is not ejected."""
    (service_id,) = service_ids(each.claim for each in EQUAL.services).values()
    before = Decision.of({service_id: after(ejected=frozenset({"b1"}))})
    drained = DesiredState(balancer(service(claim(), 1, 0)))
    assert undisturbed(before, drained).ejected == {"s": frozenset()}


def test_an_ejected_backend_stays_so_when_one_that_went_down_before_it_is_no_longer_held() -> None:
    health = Health(ProbeKind.ICMP, max_down=Fraction(1, 2))
    assert select_ejected(["a", "b"], total=3, health=health, stale={"a"}) == {"b"}
    assert select_ejected(["a", "b"], total=3, health=health, before={"b"}) == {"b"}


def test_a_decision_keeps_its_version() -> None:
    """A store counts its changes; deciding is none."""
    assert decide(Decision(version=3), DesiredState(EQUAL)).version == 3


def test_the_largest_new_backend_takes_over_from_the_largest_that_is_gone() -> None:
    made = service(claim(), 1, 3, 4)
    before = decide(Decision(), DesiredState(balancer(made)))
    small, large, stays = made.backends
    others = tuple(
        replace(each, name=f"new-{each.name}", next_hop=Direct(Mac(0x0A0000000100 + number), "p1"))
        for number, each in enumerate((small, large))
    )
    after = decide(before, DesiredState(balancer(replace(made, backends=(*others, stays)))))
    renamed = {"b0": "new-b0", "b1": "new-b1", "b2": "b2"}
    assert only(after).active == only(before).active.renamed(renamed)


def test_the_blocks_of_a_path_that_is_gone_are_spread_over_all_others() -> None:
    made = tunnelled()
    ((_, _, remote),) = remotes_of(made)
    before = decide(Decision(), DesiredState(made))
    gone, *others = (backend.name for backend in remote.backends)
    after = decide(before, DesiredState(made, ejected={remote.name: frozenset({gone})}))
    shares = only(after).active.shares()
    assert shares.keys() == set(others)
    assert max(shares.values()) - min(shares.values()) <= Fraction(1, 1 << remote.key.max_width)


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
    service = only(found)
    assert found.version == 7
    assert service.home == service.active
    owners = dict(service.active.rows)
    assert {move.block: move.old for move in dict(transition.services)[SERVICE_ID]} == {
        ODD: owners[EVEN],
        EVEN: owners[ODD],
    }
    return owners


F0, F1 = by_address(B0), by_address(B1)
NEXT = (B0, replace(B1, next_hop=NEW))
DRAINING = small.balancer(replace(small.service(CLAIM), backends=NEXT, drain=Drain(DrainMode.PIN)))
OTHER_CLAIM = small.balancer(replace(small.service(small.claim(IPv4Address("192.0.2.1"))), backends=(B1, B0)))
GONE0, GONE1 = "0a:00:00:00:00:00@p1", "0a:00:00:00:00:01@p1"


CHANGES = {
    "the same config": (BEFORE, BEFORE, "b0", "b1"),
    "names exchanged": (BEFORE, of(replace(B0, name="b1"), replace(B1, name="b0")), "b1", "b0"),
    "a new name of a next hop": (BEFORE, of(B0, replace(B1, name="other")), "b0", "other"),
    # Its clients move, and a drain has the next hop of their open connections.
    "a backend that is gone": (BEFORE, of(B0), "b0", GONE1),
    "a new next hop for one that is gone": (BEFORE, of(*NEXT), "b0", "b1"),
    "a new next hop where services drain": (BEFORE, DRAINING, "b0", GONE1),
    # b1 is now what b0 was, and nothing is left of what b1 was.
    "a name goes to another next hop": (BEFORE, of(replace(B0, name="b1")), "b1", GONE1),
    "a service of another claim": (BEFORE, OTHER_CLAIM, "b0", "b1"),
    "another weight": (BEFORE, of(replace(B0, weight=Fraction(0)), replace(B1, name="b2")), "b0", "b2"),
    # Whose MACs are exchanged: tests/property/test_agent_macs.py.
    "another address and next hop": (
        of(F0, F1),
        of(replace(F0, address=IPv4Address("192.0.2.9"), next_hop=F1.next_hop)),
        GONE0,
        "b0",
    ),
}


@pytest.mark.parametrize(("before", "after", "even", "odd"), CHANGES.values(), ids=CHANGES)
def test_who_owns_the_clients_after_a_change(before: Balancer, after: Balancer, even: str, odd: str) -> None:
    assert followed(after, before=before) == {EVEN: even, ODD: odd}


def test_backends_without_a_mac_have_no_next_hop() -> None:
    unknown = replace(B1, next_hop=with_mac(B1.next_hop, UNKNOWN_MAC))
    assert next_hops(of(B0, unknown).services[0]) == {"b0": B0.next_hop}


def test_an_idle_backend_keeps_no_home_where_the_others_cannot_take_its_clients() -> None:
    """b1 would have no more than an eighth, although b0 has not too many."""
    made = replace(service(claim(), 3, 1, 0), tolerance=Fraction(1, 4))
    rest, last = Block(7, 4), Block(15, 4)
    home = Blocks.of([(Block(0, 1), "b0"), (Block(1, 2), "b0"), (Block(3, 3), "b0"), (rest, "b1"), (last, "b2")])
    (service_id,) = service_ids([made.claim]).values()
    before = ServiceDecision(made.key, home, Blocks.of([(last, "b1")]).over(home))
    found = only(decide(Decision.of({service_id: before}), DesiredState(balancer(made))))
    for name, target in (("b0", Fraction(3, 4)), ("b1", Fraction(1, 4))):
        assert abs(found.active.shares()[name] - target) <= target * made.tolerance


HOME = Blocks.of([(Block(0, 1), "b0"), (Block(1, 1), "b1")])
LENT = Blocks.of([(Block(0, 0), "b0")])
SERVICE: dict[str, Any] = {
    "id": "0x0000000a",
    "key": {"field": "source_address", "positions": [3, 0]},
    "home": {"b0": ["0x0/1"], "b1": ["0x1/1"]},
}


def document(*services: Any, **fields: Any) -> dict[str, Any]:
    return {"format": 1, "version": 0, "services": list(services), **fields}


def changed(**fields: Any) -> dict[str, Any]:
    return document({**SERVICE, **fields})


def test_blocks_stand_under_their_owner_and_active_ones_where_they_differ() -> None:
    plain = Decision.of({10: ServiceDecision(BlockKey(positions=(3, 0)), HOME, HOME)})
    assert decision_document(plain) == document(SERVICE)
    lent = Decision.of({10: ServiceDecision(BlockKey(positions=(3, 0)), HOME, LENT)}, version=4)
    written = decision_document(lent, {10: "web"})
    assert written == {**changed(name="web", active={"b0": ["0x0/0"]}), "version": 4}
    assert parse_decision(written) == lent
    assert parse_decision(written).version == 4


def test_blocks_in_any_order_and_halved_are_the_same_decision() -> None:
    halved = changed(home={"b1": ["0x3/2", "0x1/2"], "b0": ["0x0/1"]})
    assert parse_decision(halved) == parse_decision(document(SERVICE))


def keyed(field: str, *positions: int) -> dict[str, Any]:
    return changed(key={"field": field, "positions": [*positions]})


WRONG: dict[str, tuple[object, str, str]] = {
    "nothing": (None, "", "not an object"),
    "a list": ([], "", "not an object"),
    "empty": ({}, "version", "Field required"),
    "another format": (document(format=2), "format", "Input should be 1"),
    "an unknown key": (document(extra=1), "extra", "Extra inputs are not permitted"),
    "no number": (document(version=True), "version", "Input should be a valid integer"),
    "a service that is none": (document(7), "services.0", "not an object"),
    "a service twice": (document(SERVICE, SERVICE), "services.1.id", "0x0000000a is listed twice"),
    "no service's id": (changed(id="0x00000000"), "services.0.id", "0x00000000 is the id of no service"),
    "a wide value": (changed(home={"b0": ["0x2/1"]}), "services.0", "does not fit into 1 bits"),
    "a deep block": (changed(home={"b0": ["0x0/17"]}), "services.0.home.b0.0", "match pattern"),
    "too deep": (changed(home={"b0": ["0x0/3"]}), "services.0", "deeper than the 2 bits of the key"),
    "overlapping blocks": (changed(home={"b0": ["0x0/1"], "b1": ["0x0/2"]}), "services.0", "blocks overlap"),
    "a block twice": (changed(home={"b0": ["0x0/1"] * 2}), "services.0", "blocks overlap"),
    "a key without home blocks": (
        changed(home={"b0": ["0x0/1"]}, active={"b0": ["0x0/0"]}),
        "services.0",
        "blocks of `active` are missing in `home`",
    ),
    "a position twice": (keyed("source_address", 3, 3), "services.0.key", "a position is listed twice"),
    "no such bit": (keyed("source_port", 16), "services.0.key", "the source port has 16 bits"),
}


@pytest.mark.parametrize(("given", "path", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(given: object, path: str, reason: str) -> None:
    with pytest.raises(DecisionMalformed) as caught:
        parse_decision(given)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"not a decision: {path or 'document'}: ")
