"""A program is a set of flows that a switch can hold: no two with one key, all ours, and their text reads back."""

from __future__ import annotations

from hypothesis import given

from tests.compiled import compiled
from tests.strategies import balancers
from xenoovs.compile.pipeline import GENERATION, Stage
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import decode_cookie
from xenoovs.openflow.text import parse_flow, render_flow


@given(balancers())
def test_no_two_flows_have_one_key(balancer: Balancer) -> None:
    flows = compiled(balancer).flows
    assert len({flow.key for flow in flows}) == len(flows)


@given(balancers())
def test_cookies_hold_generation_stage_and_service(balancer: Balancer) -> None:
    program = compiled(balancer)
    for flow in program.flows:
        cookie = decode_cookie(flow.cookie)
        assert cookie is not None
        assert (cookie.generation, Stage(cookie.stage).table) == (GENERATION, flow.table)
    for service in program.services:
        own = (*service.classify, *(block.flow for block in service.blocks))
        assert {flow.cookie & 0xFFFFFFFF for flow in own} == {service.service_id}


@given(balancers())
def test_the_text_reads_back_as_the_program(balancer: Balancer) -> None:
    program = compiled(balancer)
    assert {parse_flow(render_flow(flow)) for flow in program.flows} == set(program.flows)
