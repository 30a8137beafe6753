"""Weights, budgets and keys to who has which clients."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit.balancer import balancer, claim, service
from xenoovs.decision.decide import decide, tolerance_of
from xenoovs.decision.decision import Decision, ServiceDecision
from xenoovs.decision.desired import DesiredState
from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.model.block_key import BlockKey
from xenoovs.model.service import Service


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
def test_too_few_bits_say_what_they_could_do(key: BlockKey) -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        decided(replace(service(claim(), 3, 1), key=key))
    assert (caught.value.max_width, caught.value.least) == (1, Fraction(1))


def test_a_budget_trades_tolerance_for_flows() -> None:
    exact = replace(service(claim(), 70, 30), tolerance=Fraction(1, 1000))
    cheap = replace(exact, max_flows=3)
    assert len(decided(cheap).active.rows) <= 3 < len(decided(exact).active.rows)
    assert tolerance_of(cheap) > exact.tolerance == tolerance_of(exact)


def test_a_budget_below_the_backends_is_refused() -> None:
    with pytest.raises(BudgetUnreachable):
        decided(replace(service(claim(), 1, 1, 1), max_flows=2))
