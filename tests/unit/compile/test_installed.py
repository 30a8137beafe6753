"""How much a change moves, against the least that it could: nine backends with weights 128:64:32:16:8:4:2:1:1."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from tests.compiled import compiled
from tests.flow_oracle import blocks_by_service, moved, pieces
from xenoovs.compile.plan import plan
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, Service, Uplinks
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

WEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1, 1)


def balancer_of(weights: Sequence[int], *, macs: Sequence[int] = range(100), max_flows: int | None = None) -> Balancer:
    backends = tuple(
        Backend(f"b{i}", Direct(Mac(0x020000000000 + mac), "p1"), Fraction(weight))
        for i, (weight, mac) in enumerate(zip(weights, macs, strict=False))
    )
    service = Service("nine", Claim(frozenset({Family.IPV4})), backends, max_flows=max_flows)
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH), (service,))


def share_moved(before: Sequence[Flow], after: Sequence[Flow]) -> Fraction:
    (old,), (new,) = (blocks_by_service(flows).values() for flows in (before, after))
    return moved(pieces(old), pieces(new))


@pytest.fixture
def installed() -> tuple[Flow, ...]:
    return compiled(balancer_of(WEIGHTS)).flows


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param(WEIGHTS, Fraction(0), id="nothing changed"),
        pytest.param((127, 64, 32, 16, 8, 4, 2, 1, 1), Fraction(0), id="still within the tolerance"),
        pytest.param((128, 64, 0, 16, 8, 4, 2, 1, 1), Fraction(32, 256), id="a backend drained: exactly its clients"),
    ],
)
def test_clients_moved(installed: tuple[Flow, ...], weights: Sequence[int], expected: Fraction) -> None:
    after = compiled(balancer_of(weights), installed=installed).flows
    assert share_moved(installed, after) == expected


def test_nested_rules_of_versions_before_0015_keep_their_clients() -> None:
    """They stand in table 3: b1 has every eighth address."""
    balancer = balancer_of((7, 1))
    (service,) = compiled(balancer).services
    match = f"ip,reg0={service.service_id:#x}"
    nested = [
        parse_flow(f"cookie={0x786F_0103 << 32 | service.service_id:#x}, table=3, {text},output:p1")
        for text in (
            f"priority=1000,{match} actions=mod_dl_dst:02:00:00:00:00:00",
            f"priority=1003,{match},nw_src=0.0.0.5/0.0.0.7 actions=mod_dl_dst:02:00:00:00:00:01",
        )
    ]
    after = compiled(balancer, installed=nested).flows
    assert share_moved(nested, after) == 0
    assert set(plan(after, nested).removed) == set(nested)


def test_a_doubled_small_weight_moves_less_than_a_new_layout(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of((128, 64, 32, 16, 8, 4, 2, 2, 1))
    near, fresh = compiled(changed, installed=installed).flows, compiled(changed).flows
    assert share_moved(installed, near) == Fraction(2, 256)
    assert share_moved(installed, fresh) == Fraction(47, 256)


def test_a_removed_backend_moves_its_own_clients_and_no_others(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of((128, 64, 16, 8, 4, 2, 1, 1), macs=(0, 1, 3, 4, 5, 6, 7, 8))
    near, fresh = compiled(changed, installed=installed).flows, compiled(changed).flows
    assert share_moved(installed, near) == Fraction(32, 256)
    assert share_moved(installed, fresh) > Fraction(60, 256)


def test_an_added_backend_moves_what_it_gets(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of((*WEIGHTS, 10))
    near, fresh = compiled(changed, installed=installed).flows, compiled(changed).flows
    assert share_moved(installed, near) == Fraction(10, 256)
    assert share_moved(installed, fresh) > Fraction(180, 256)


def test_a_new_mac_changes_the_flows_of_that_backend_and_no_other(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of(WEIGHTS, macs=(0, 1, 2, 99, 4, 5, 6, 7, 8))
    difference = plan(compiled(changed, installed=installed).flows, installed)
    assert (len(difference.added), len(difference.changed), len(difference.removed)) == (0, 1, 0)


def test_a_deleted_flow_is_put_back_and_nothing_else(installed: tuple[Flow, ...]) -> None:
    left = [flow for flow in installed if not (flow.table == 1 and flow.priority == 998)]
    difference = plan(compiled(balancer_of(WEIGHTS), installed=left).flows, left)
    assert (len(difference.added), len(difference.changed), len(difference.removed)) == (1, 0, 0)


def test_a_budget_that_the_installed_blocks_exceed_gives_a_new_layout() -> None:
    equal = compiled(balancer_of((1,) * 7)).flows
    within = compiled(balancer_of((1,) * 7, max_flows=8), installed=equal)
    assert len(within.services[0].blocks) <= 8


def test_flows_of_other_bits_are_no_help() -> None:
    prefixes = compiled(balancer_of((1, 1))).flows
    foreign = [flow for flow in prefixes if flow.table == 0]
    assert compiled(balancer_of((1, 1)), installed=foreign).flows == prefixes
