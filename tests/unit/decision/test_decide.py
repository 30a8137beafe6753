"""From weights, budgets and keys to the owners of clients."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit.balancer import balancer, claim, service
from xenoovs.decision.decide import decide, parts_served, tolerance_of, undisturbed
from xenoovs.decision.decision import Blocks, Decision, DesiredState, ServiceDecision
from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.model.balancer import BlockKey, Service, service_ids
from xenoovs.partition.block import Block


def decided(made: Service) -> ServiceDecision:
    ((_, found),) = decide(Decision(), DesiredState(balancer(made))).services
    return found


def test_as_few_bits_as_the_tolerance_needs() -> None:
    made = service(claim(), 70, 30)
    rough, fine = (decided(replace(made, tolerance=Fraction(1, n))).active for n in (4, 100))
    assert (rough.depth, rough.shares()) == (2, {"b0": Fraction(3, 4), "b1": Fraction(1, 4)})
    assert fine.depth > 4
    for name, weight in (("b0", 7), ("b1", 3)):
        assert abs(fine.shares()[name] * 10 / weight - 1) <= Fraction(1, 100)


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


def found_in(decision: Decision) -> ServiceDecision:
    ((_, found),) = decision.services
    return found


def after(
    *, ejected: frozenset[str] = frozenset(), ramps: dict[tuple[str, str], Fraction] | None = None
) -> ServiceDecision:
    """What two equal backends have once these are ejected, or that far in their slow start."""
    whole = decide(Decision(), DesiredState(EQUAL))
    return found_in(decide(whole, DesiredState(EQUAL, {"s": ejected}, ramps or {})))


def test_an_ejected_backend_serves_nothing_and_keeps_its_home() -> None:
    found = after(ejected=frozenset({"b1"}))
    assert (found.home.shares(), found.active.shares()) == ({"b0": HALF, "b1": HALF}, {"b0": Fraction(1)})
    assert (found.ejected, parts_served(found)) == (frozenset({"b1"}), {"b0": Fraction(1), "b1": Fraction(0)})


def test_all_backends_ejected_serve_no_clients() -> None:
    found = after(ejected=frozenset({"b0", "b1"}))
    assert (found.active, found.ejected) == (Blocks(), frozenset({"b0", "b1"}))


@pytest.mark.parametrize("part", [EIGHTH, HALF, Fraction(7, 8)])
def test_a_slow_start_serves_a_part_of_its_home(part: Fraction) -> None:
    found = after(ramps={("s", "b1"): part})
    assert found.active.shares()["b1"] == part / 2
    assert parts_served(found) == {"b0": Fraction(1), "b1": part}
    assert (found.ejected, found.displaced) == (frozenset[str](), frozenset({"b1"}))


def test_without_another_backend_for_the_rest_there_is_no_slow_start() -> None:
    found = after(ramps={("s", "b0"): EIGHTH, ("s", "b1"): HALF})
    assert found.home == found.active


def test_the_least_part_that_is_served_counts_as_one_step() -> None:
    """A backend with any clients is not ejected, however few it has of its own."""
    home, tiny = Blocks.of([(Block(0, 1), "b0"), (Block(1, 1), "b1")]), Blocks.of([(Block(1, 16), "b1")])
    found = ServiceDecision(BlockKey(), home, tiny.over(Blocks.of([(Block(0, 0), "b0")])))
    assert parts_served(found) == {"b0": Fraction(1), "b1": EIGHTH}


def test_undisturbed_is_what_the_decision_shows() -> None:
    (service_id,) = service_ids(each.claim for each in EQUAL.services).values()
    desired = DesiredState(EQUAL)
    ejected = undisturbed(Decision.of({service_id: after(ejected=frozenset({"b1"}))}), desired)
    assert ejected == replace(desired, ejected={"s": frozenset({"b1"})})
    starting = undisturbed(Decision.of({service_id: after(ramps={("s", "b1"): HALF})}), desired)
    assert starting == replace(desired, ejected={"s": frozenset()}, ramps={("s", "b1"): HALF})
    assert undisturbed(Decision(), desired) == desired


def test_undisturbed_ignores_backends_without_a_weight() -> None:
    """A weight of 0 in the config drains the backend; it is not ejected."""
    (service_id,) = service_ids(each.claim for each in EQUAL.services).values()
    before = Decision.of({service_id: after(ejected=frozenset({"b1"}))})
    drained = DesiredState(balancer(service(claim(), 1, 0)))
    assert undisturbed(before, drained).ejected == {"s": frozenset()}


def test_a_decision_keeps_its_version() -> None:
    """A store counts its changes; deciding is none."""
    assert decide(Decision(version=3), DesiredState(EQUAL)).version == 3
