"""Law 3: the plan applied makes observed into desired, an equal state needs none, and flows of others never matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.strategies import balancers, edits
from tests.switch_model import apply_bundle, table_of
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Command, Flow
from xenoovs.openflow.text import parse_flow

FOREIGN = (
    parse_flow("cookie=0x2a, priority=700,udp,nw_dst=10.3.10.45,tp_dst=53 actions=drop"),
    parse_flow("priority=0 actions=NORMAL"),
    parse_flow("cookie=0x786e000000000000, table=1, priority=998,ip,reg0=0x1 actions=drop"),
)


@given(st.data(), balancers())
def test_applied_it_makes_observed_into_desired(data: st.DataObject, before: Balancer) -> None:
    observed, desired = flows_of(before), flows_of(data.draw(edits(before)))
    table = apply_bundle(table_of((*FOREIGN, *observed)), bundle_of(plan(desired, (*FOREIGN, *observed))))
    assert table == table_of((*FOREIGN, *desired))


@given(balancers())
def test_an_equal_state_needs_nothing(balancer: Balancer) -> None:
    difference = plan(flows_of(balancer), (*FOREIGN, *reversed(flows_of(balancer))))
    assert difference.is_empty
    assert not bundle_of(difference).mods
    assert difference.unchanged == len(flows_of(balancer))


@given(st.data(), balancers())
def test_twice_is_once(data: st.DataObject, before: Balancer) -> None:
    observed, desired = flows_of(before), flows_of(data.draw(edits(before)))
    bundle = bundle_of(plan(desired, observed))
    once = apply_bundle(table_of(observed), bundle)
    assert apply_bundle(once, bundle) == once
    assert plan(desired, once.values()).is_empty


@given(st.data(), balancers())
def test_there_and_back_again(data: st.DataObject, before: Balancer) -> None:
    observed, desired = flows_of(before), flows_of(data.draw(edits(before)))
    there, back = plan(desired, observed), plan(observed, desired)
    assert {flow.key for flow in there.added} == {flow.key for flow in back.removed}
    assert {change.before for change in there.changed} == {change.after for change in back.changed}
    assert there.unchanged == back.unchanged


@given(st.data(), balancers())
def test_a_bundle_names_no_flow_twice(data: st.DataObject, before: Balancer) -> None:
    bundle = bundle_of(plan(flows_of(data.draw(edits(before))), flows_of(before)))
    assert len({mod.flow.key for mod in bundle.mods}) == len(bundle)
    kinds = [mod.command is Command.DELETE for mod in bundle.mods]
    assert kinds == sorted(kinds)


def flows_of(balancer: Balancer) -> tuple[Flow, ...]:
    return compiled(balancer).flows
