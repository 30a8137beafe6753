"""The laws of decisions: flows are one encoding of them, JSON another, and deciding twice decides once."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.property.decisions import NOW_S, OFPORTS, decided
from tests.strategies import balancers, claimed_packets, edits
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.read import read, stage_number
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState, Transition, compare
from xenoovs.decision.document import decision_document, parse_decision
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.simulate.walk import tables_of


def observed(program: Program) -> list[ObservedFlow]:
    """The flows as a switch shows them: the home flow of a move is as old as the move."""
    ages = {
        flow.key: NOW_S - block.move.since_s
        for made in program.services
        for block in made.blocks
        if block.move is not None
        for flow in made.drain
        if stage_number(flow) == Stage.DRAIN_TARGET.value and flow.match == block.flow.match
    }
    return [ObservedFlow(flow, 0, 0, ages.get(flow.key, 0.0)) for flow in program.flows]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Balancer, Decision, Transition]:
    balancer = draw(balancers(most=2).filter(lambda balancer: balancer.services))
    decision, transition = draw(decided(balancer))
    return balancer, decision, transition


@st.composite
def desired_states(draw: st.DrawFn, balancer: Balancer) -> DesiredState:
    ejected = {
        service.name: frozenset(b.name for b in service.backends if draw(st.integers(0, 3)) == 0)
        for service in balancer.services
    }
    ramps = {
        (service.name, backend.name): Fraction(draw(st.integers(1, 7)), 8)
        for service in balancer.services
        for backend in service.backends
        if draw(st.integers(0, 3)) == 0
    }
    return DesiredState(balancer, ejected, ramps)


@given(cases())
def test_flows_encode_exactly_the_decision(case: tuple[Balancer, Decision, Transition]) -> None:
    """read(compile(d, t)) == (d, t)."""
    balancer, decision, transition = case
    program = compile_program(balancer, decision, transition, ofports=OFPORTS)
    read_back = read(observed(program), balancer, now_s=NOW_S)
    # A service without a served client has no flow that could encode its decision.
    there = Decision.of({i: found for i, found in decision.services if found.home.rows})
    assert read_back == (there, transition)


@given(cases())
def test_a_decision_survives_json(case: tuple[Balancer, Decision, Transition]) -> None:
    _, decision, _ = case
    assert parse_decision(json.loads(json.dumps(decision_document(decision)))) == decision


@given(st.data(), balancers())
def test_a_decision_that_meets_the_weights_stays(data: st.DataObject, balancer: Balancer) -> None:
    """Deciding twice is deciding once, with and without the record of met weights."""
    desired = data.draw(desired_states(balancer))
    once = decide(decide(Decision(), DesiredState(balancer)), desired)
    assert decide(once, desired) == once
    assert decide(once, desired, met=desired) == once


@given(st.data(), balancers())
def test_services_for_which_nothing_differs_are_decided_alike(data: st.DataObject, balancer: Balancer) -> None:
    """The record of met weights saves time and changes nothing."""
    first, after = data.draw(desired_states(balancer)), data.draw(desired_states(data.draw(edits(balancer))))
    before = decide(decide(Decision(), DesiredState(balancer)), first)
    assert decide(before, after, met=first) == decide(before, after)


@given(st.data(), cases())
def test_switches_with_one_decision_agree_on_every_client(
    data: st.DataObject, case: tuple[Balancer, Decision, Transition]
) -> None:
    """With any past and any next hops."""
    balancer, decision, _ = case
    other = replace(
        balancer,
        services=tuple(
            replace(
                s,
                backends=tuple(
                    replace(b, next_hop=Direct(Mac(0x0C0000000000 + i), "p1")) for i, b in enumerate(s.backends)
                ),
            )
            for s in balancer.services
        ),
    )
    claims = [service.claim for service in balancer.services]
    packet = data.draw(st.sampled_from(claims).flatmap(lambda claim: claimed_packets(claim, balancer.uplinks)))
    owners = []
    for one in (balancer, other):
        program = compile_program(one, decision)
        outcome = tables_of(program.flows).run(packet)
        owners.append(
            [block.backend.name for made in program.services for block in made.blocks if block.flow in outcome.flows]
        )
    assert owners[0] == owners[1]


@given(cases())
def test_a_decision_does_not_differ_from_itself(case: tuple[Balancer, Decision, Transition]) -> None:
    _, decision, _ = case
    assert all(not each.share and not each.shifts for each in compare(decision, decision))
