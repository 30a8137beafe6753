"""Installed blocks stay: a change moves few clients, a second run moves none, and a damaged table is repaired."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.flow_oracle import moved, pieces
from tests.strategies import balancers, edits
from xenoovs.compile.pipeline import GENERATION, Stage
from xenoovs.compile.plan import plan
from xenoovs.model.balancer import Balancer, Service
from xenoovs.openflow.flow import decode_cookie


@given(st.data(), balancers())
def test_a_second_run_finds_nothing_to_do_and_shares_stay_within_the_tolerance(
    data: st.DataObject, before: Balancer
) -> None:
    after = data.draw(edits(before))
    program = compiled(after, installed=compiled(before).flows)
    assert plan(compiled(after, installed=program.flows).flows, program.flows).is_empty
    for made in program.services:
        assert sum(Fraction(1, 1 << block.depth) for block, _ in made.decision.active.rows) == 1
        for weight, share in zip(made.service.weights, made.shares, strict=True):
            wanted = Fraction(weight, sum(made.service.weights))
            assert abs(share - wanted) <= wanted * made.service.tolerance


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


@given(st.data(), balancers())
def test_another_order_of_backends_moves_no_client(data: st.DataObject, balancer: Balancer) -> None:
    before = compiled(balancer)
    services = tuple(
        replace(service, backends=tuple(data.draw(st.permutations(service.backends)))) for service in balancer.services
    )
    after = compiled(replace(balancer, services=services), installed=before.flows)
    for old, new in zip(before.services, after.services, strict=True):
        assert moved(*(pieces(block.flow for block in one.blocks) for one in (old, new))) == 0


@given(st.data(), balancers())
def test_new_names_and_another_order_of_services(data: st.DataObject, balancer: Balancer) -> None:
    shuffled = data.draw(st.permutations(balancer.services))
    assert_same(balancer, replace(balancer, services=tuple(map(renamed, shuffled))))


@given(st.data(), balancers())
def test_another_order_of_vips_ports_and_ingress_ports(data: st.DataObject, balancer: Balancer) -> None:
    services = tuple(
        replace(
            service,
            claim=replace(
                service.claim,
                vips=tuple(data.draw(st.permutations(service.claim.vips))),
                ports=tuple(data.draw(st.permutations(service.claim.ports))),
            ),
        )
        for service in balancer.services
    )
    assert_same(balancer, replace(balancer, services=services))


@given(balancers())
def test_a_backend_of_weight_0_costs_no_block(balancer: Balancer) -> None:
    """Beyond its port's flow for other traffic: it may still answer clients that it had."""
    services = tuple(
        replace(service, backends=tuple(b for b in service.backends if b.weight)) for service in balancer.services
    )
    without = compiled(replace(balancer, services=services)).services
    for one, other in zip(compiled(balancer).services, without, strict=True):
        assert [block.flow for block in one.blocks] == [block.flow for block in other.blocks]


def renamed(service: Service) -> Service:
    backends = tuple(replace(backend, name=f"other-{backend.name}") for backend in service.backends)
    return replace(service, name=f"other-{service.name}", backends=backends)


def assert_same(before: Balancer, after: Balancer) -> None:
    assert plan(compiled(after).flows, compiled(before).flows).is_empty


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
