"""What a switch has is kept: a change moves few clients, a second run moves none, a damaged table is made whole."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import balancers, edits
from xenoovs.compile.plan import plan
from xenoovs.compile.program import Program, compile_program
from xenoovs.model.balancer import Balancer


@given(st.data(), balancers())
def test_a_second_run_finds_nothing_to_do(data: st.DataObject, before: Balancer) -> None:
    after = data.draw(edits(before))
    once = compile_program(after, installed=compile_program(before).flows).flows
    assert plan(compile_program(after, installed=once).flows, once).is_empty


@given(st.data(), balancers())
def test_shares_stay_within_the_tolerance(data: st.DataObject, before: Balancer) -> None:
    program = compile_program(data.draw(edits(before)), installed=compile_program(before).flows)
    for compiled in program.services:
        total = sum(compiled.service.weights)
        for weight, share in zip(compiled.service.weights, compiled.assignment.shares, strict=True):
            wanted = Fraction(weight, total)
            assert share <= wanted * (1 + compiled.service.tolerance)
            assert share >= wanted * (1 - compiled.service.tolerance)


@given(st.data(), balancers())
def test_blocks_still_cover_everybody_once(data: st.DataObject, before: Balancer) -> None:
    program = compile_program(data.draw(edits(before)), installed=compile_program(before).flows)
    for service in program.services:
        assert sum(Fraction(1, 1 << rule.depth) for rule in service.assignment.rules) == 1


@given(st.data(), balancers())
def test_lost_flows_come_back(data: st.DataObject, balancer: Balancer) -> None:
    whole = compile_program(balancer).flows
    left = [flow for flow in whole if data.draw(st.booleans())]
    again = compile_program(balancer, installed=left)
    assert plan(compile_program(balancer, installed=again.flows).flows, again.flows).is_empty


@given(balancers())
def test_what_is_installed_is_what_is_wanted(balancer: Balancer) -> None:
    program = compile_program(balancer)
    assert _rules(compile_program(balancer, installed=program.flows)) == _rules(program)


def _rules(program: Program) -> list[object]:
    return [service.assignment.rules for service in program.services]
