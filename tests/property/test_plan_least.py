"""The least possible movement that a plan reports is a lower bound of what it moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled, observed
from tests.strategies import balancers, edits
from xenoovs.compile.plan import summarise
from xenoovs.compile.read import read
from xenoovs.model.balancer import Balancer


@st.composite
def changes(draw: st.DrawFn) -> tuple[Balancer, Balancer]:
    before = draw(balancers(most=2))
    return before, draw(edits(before))


@given(changes())
def test_no_plan_moves_less(change: tuple[Balancer, Balancer]) -> None:
    installed = compiled(change[0]).flows
    before, _ = read(observed(installed), change[1])
    for service in summarise(compiled(change[1], installed=installed), before, installed):
        assert 0 <= service.least_moved <= service.moved
