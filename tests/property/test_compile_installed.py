"""Installed blocks stay: a change moves few clients, a second run moves none, and a damaged table is repaired."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.strategies import balancers, edits
from xenoovs.compile.plan import plan
from xenoovs.model.balancer import Balancer


@given(st.data(), balancers())
def test_a_second_run_finds_nothing_to_do(data: st.DataObject, before: Balancer) -> None:
    after = data.draw(edits(before))
    once = compiled(after, installed=compiled(before).flows).flows
    assert plan(compiled(after, installed=once).flows, once).is_empty


@given(st.data(), balancers())
def test_shares_stay_within_the_tolerance(data: st.DataObject, before: Balancer) -> None:
    program = compiled(data.draw(edits(before)), installed=compiled(before).flows)
    for made in program.services:
        total = sum(made.service.weights)
        for weight, share in zip(made.service.weights, made.shares, strict=True):
            wanted = Fraction(weight, total)
            assert share <= wanted * (1 + made.service.tolerance)
            assert share >= wanted * (1 - made.service.tolerance)


@given(st.data(), balancers())
def test_blocks_still_cover_every_client_once(data: st.DataObject, before: Balancer) -> None:
    program = compiled(data.draw(edits(before)), installed=compiled(before).flows)
    for service in program.services:
        assert sum(Fraction(1, 1 << block.depth) for block, _ in service.decision.active.rows) == 1


@given(st.data(), balancers())
def test_lost_flows_come_back(data: st.DataObject, balancer: Balancer) -> None:
    whole = compiled(balancer).flows
    left = [flow for flow in whole if data.draw(st.booleans())]
    again = compiled(balancer, installed=left)
    assert plan(compiled(balancer, installed=again.flows).flows, again.flows).is_empty


@given(balancers())
def test_the_installed_flows_are_the_desired_ones(balancer: Balancer) -> None:
    program = compiled(balancer)
    assert compiled(balancer, installed=program.flows).decision == program.decision
