"""A stored decision is installed unchanged: no weight, health, slow start or past changes a block of it."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tests.property.decisions import decided
from tests.property.test_decision_laws import desired_states
from tests.strategies import balancers
from xenoovs.decision import decide as solver
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState, Stored
from xenoovs.engine.change import fresh
from xenoovs.model.balancer import Balancer, service_ids


def by_name(balancer: Balancer, decision: Decision) -> Stored:
    ids = service_ids(service.claim for service in balancer.services)
    found = dict(decision.services)
    return {service.name: found[ids[service.claim]] for service in balancer.services}


@given(st.data(), balancers(most=3).filter(lambda balancer: balancer.services))
def test_stored_blocks_are_decided_whatever_else_is_desired_and_with_any_solver(
    data: st.DataObject, balancer: Balancer
) -> None:
    stored, _ = data.draw(decided(balancer))
    before, _ = data.draw(decided(balancer))
    drawn = data.draw(desired_states(balancer))
    desired = DesiredState(balancer, drawn.ejected, drawn.ramps, stored=by_name(balancer, stored))
    # Another version has another solver; a failing one shows that it is not called.
    with patch.object(solver, "_home", side_effect=AssertionError), patch.object(solver, "_active"):
        assert decide(before, desired) == stored
        assert decide(before, desired, met=DesiredState(balancer, drawn.ejected, drawn.ramps)) == stored
        assert decide(Decision(), desired) == stored


@given(st.data(), balancers(most=2).filter(lambda balancer: balancer.services))
def test_what_a_bridge_without_flows_would_get_is_what_is_stored(data: st.DataObject, balancer: Balancer) -> None:
    solved = decide(Decision(), DesiredState(balancer))
    with patch.object(solver, "_home", side_effect=AssertionError):
        target = fresh(DesiredState(balancer, stored=by_name(balancer, solved)))
    assert target.decision == solved == target.program.decision
