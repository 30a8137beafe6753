"""The switch in memory ends in the tables of a real Open vSwitch after the same bundles."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ovs.dummy import DummyBridge
from tests.property.flows import actions, flows
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.cookie import OWNER
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Match
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.fake import FakeSwitch, fake_bridge
from xenoovs.switch.live import LiveSwitch

pytestmark = pytest.mark.ovs

_FEW_PORTS = ("p0", "p1")


@st.composite
def bundles(draw: st.DrawFn) -> list[Bundle]:
    """Bundles that meet the same few keys again and again."""
    keys = draw(st.lists(flows(_FEW_PORTS).map(lambda flow: flow.key), min_size=1, max_size=4, unique=True))
    cookies = st.sampled_from((OWNER << 48 | 1, OWNER << 48 | 2, 5))
    contents = st.lists(actions(Match(), _FEW_PORTS), max_size=2).map(tuple)
    flow = st.builds(Flow, st.sampled_from(keys), cookies, contents)
    mods = st.builds(FlowMod, st.sampled_from(Command), flow)
    return draw(st.lists(st.lists(mods, max_size=6).map(tuple).map(Bundle), min_size=1, max_size=4))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sent=bundles())
def test_both_end_in_the_same_tables(bridge: DummyBridge, sent: list[Bundle]) -> None:
    bridge.ofctl("del-flows")
    live, fake = LiveSwitch(find_endpoint(db=bridge.ovs.db, env={})), FakeSwitch(fake_bridge(bridge.name, _FEW_PORTS))
    for bundle in sent:
        live.apply(bridge.name, bundle)
        fake.apply(bridge.name, bundle)
    assert {seen.flow for seen in live.dump_flows(bridge.name)} == {seen.flow for seen in fake.dump_flows(bridge.name)}
    assert live.count_foreign_flows(bridge.name) == fake.count_foreign_flows(bridge.name)
