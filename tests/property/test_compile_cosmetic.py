"""Names, order of services and order of what is a set change nothing on the switch: the plan is empty."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.strategies import balancers
from xenoovs.compile.plan import plan
from xenoovs.model.balancer import Balancer, Service


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
def test_weights_in_another_unit(balancer: Balancer) -> None:
    services = tuple(
        replace(service, backends=tuple(replace(b, weight=b.weight * 7 / 3) for b in service.backends))
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
