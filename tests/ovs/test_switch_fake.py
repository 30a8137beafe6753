"""The switch in memory and both ways to a real Open vSwitch end in the same tables after the same bundles (law 6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.ovs.dummy import DummyBridge
from tests.ovs.ways import Record, Way, live_switch, running_server
from tests.property.flows import actions, flows
from xenoovs.openflow.flow import FOREIGN, OWNER, Bundle, Command, Flow, FlowMod
from xenoovs.switch.api import Switch

_FEW_PORTS = ("p0", "p1")


@st.composite
def bundles(draw: st.DrawFn) -> list[Bundle]:
    """Bundles that meet the same few keys again and again."""
    keys = draw(st.lists(flows(_FEW_PORTS).map(lambda flow: flow.key), min_size=1, max_size=4, unique=True))
    cookies = st.sampled_from((OWNER << 48 | 1, OWNER << 48 | 2, 5))
    contents = actions(None, None, _FEW_PORTS, most=2).map(tuple)
    flow = st.builds(Flow, st.sampled_from(keys), cookies, contents)
    mods = st.builds(FlowMod, st.sampled_from(Command), flow)
    return draw(st.lists(st.lists(mods, max_size=6).map(tuple).map(Bundle), min_size=1, max_size=4))


@pytest.fixture
def controller(bridge: DummyBridge) -> Iterator[Switch]:
    with running_server(Record()) as server:
        yield Way(server).switch(bridge.ovs)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sent=bundles())
def test_all_end_in_the_same_tables(bridge: DummyBridge, controller: Switch, sent: list[Bundle]) -> None:
    live, fake = live_switch(bridge.ovs), FakeSwitch(fake_bridge(bridge.name, _FEW_PORTS))
    tables = []
    for switch in (live, controller, fake):
        bridge.ofctl("del-flows")
        for bundle in sent:
            switch.apply(bridge.name, bundle)
        # Each way is read by itself and, where there is another, by that one too.
        readers = (fake,) if switch is fake else (live, controller)
        tables += [{seen.flow for seen in reader.dump_flows(bridge.name)} for reader in readers]
        tables += [{seen.flow for seen in reader.dump_flows(bridge.name, only=FOREIGN)} for reader in readers]
        counts = {reader.count_flows(bridge.name, only=FOREIGN) for reader in readers}
        assert counts == {len(tables[-1])}
    assert tables[0] == tables[1] == tables[4] == tables[5] == tables[8]
    assert tables[2] == tables[3] == tables[6] == tables[7] == tables[9]
