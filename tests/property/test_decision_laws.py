"""The laws of decisions: flows are one encoding of them, JSON another, and deciding twice decides once."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tests.property.decisions import NOW_S, OFPORTS, decided
from tests.strategies import JSON, balancers, claimed_packets, edits, with_backends
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.read import read, stage_number
from xenoovs.decision import decide as solver
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState, Transition, decision_document
from xenoovs.decision.document import parse_decision
from xenoovs.engine.change import fresh
from xenoovs.errors import DecisionMalformed
from xenoovs.judge.simulate.walk import tables_of, walk
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import ObservedFlow


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
def test_flows_and_json_encode_exactly_the_decision(case: tuple[Balancer, Decision, Transition]) -> None:
    """read(compile(d, t)) == (d, t)."""
    balancer, decision, transition = case
    program = compile_program(balancer, decision, transition, ofports=OFPORTS)
    read_back = read(observed(program), balancer, now_s=NOW_S)
    # A service without a served client has no flow that could encode its decision.
    there = Decision.of({i: found for i, found in decision.services if found.home.rows})
    assert read_back == (there, transition)
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
    other = with_backends(
        balancer, lambda _, b: replace(b, next_hop=Direct(Mac(0x0C0000000000 + int(b.name.removeprefix("b"))), "p1"))
    )
    claims = [service.claim for service in balancer.services]
    packet = data.draw(st.sampled_from(claims).flatmap(lambda claim: claimed_packets(claim, balancer.uplinks)))
    owners = []
    for one in (balancer, other):
        program = compile_program(one, decision)
        outcome = walk(tables_of(program.flows), packet)
        owners.append(
            [block.backend.name for made in program.services for block in made.blocks if block.flow in outcome.flows]
        )
    assert owners[0] == owners[1]


blocks = st.builds("{:#x}/{}".format, st.integers(0, 40), st.integers(0, 17)) | JSON
rows = st.dictionaries(st.sampled_from(("b0", "b1", "")), st.lists(blocks, max_size=4), max_size=3)
fields = st.sampled_from(("source_address", "source_port", "vlan"))
keys = st.fixed_dictionaries(
    {"field": fields},
    optional={"positions": st.lists(st.integers(-1, 130), max_size=4), "width": st.integers(-1, 17) | JSON},
)
services = st.fixed_dictionaries(
    {"id": st.sampled_from(("0x00000001", "0x0000000a", "0x0", "0x00000000")), "key": keys | JSON, "home": rows},
    optional={"active": rows, "name": JSON, "extra": JSON},
)
documents = st.fixed_dictionaries(
    {"version": st.integers(-1, 9), "services": st.lists(services | JSON, max_size=3)},
    optional={"format": st.integers(0, 2) | JSON},
)


@given(documents | JSON)
def test_a_decision_or_none(document: Any) -> None:
    try:
        decision = parse_decision(document)
    except DecisionMalformed:
        return
    again = parse_decision(json.loads(json.dumps(decision_document(decision))))
    assert (again, again.version) == (decision, decision.version)


@given(st.data(), balancers(most=3).filter(lambda balancer: balancer.services))
def test_stored_blocks_are_decided_whatever_else_is_desired_and_with_any_solver(
    data: st.DataObject, balancer: Balancer
) -> None:
    stored, _ = data.draw(decided(balancer))
    before, _ = data.draw(decided(balancer))
    drawn, ids = data.draw(desired_states(balancer)), service_ids(service.claim for service in balancer.services)
    by_name = {service.name: dict(stored.services)[ids[service.claim]] for service in balancer.services}
    desired = replace(drawn, stored=by_name)
    # Another version has another solver; a failing one shows that it is not called.
    with patch.object(solver, "_home", side_effect=AssertionError), patch.object(solver, "_active"):
        assert decide(before, desired) == stored
        assert decide(before, desired, met=drawn) == stored
        assert decide(Decision(), desired) == stored
        # As on a bridge without flows.
        target = fresh(replace(desired, ejected={}, ramps={}))
        assert target.decision == stored == target.program.decision
