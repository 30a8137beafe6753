"""Our text of a flow is the text of Open vSwitch, byte for byte, for every flow that can be built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.property.flows import PORTS, flows
from xenoovs.openflow.flow import Bundle, Command, Flow, FlowMod
from xenoovs.openflow.text import parse_dump, render_bundle, render_flow

pytestmark = pytest.mark.ovs


@pytest.fixture(scope="module")
def many_ports(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("ovsbrmany", ports=PORTS) as made:
        yield made


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wanted=st.lists(flows(), min_size=1, max_size=30, unique_by=lambda flow: flow.key))
def test_dumps_say_what_was_written(many_ports: DummyBridge, wanted: list[Flow]) -> None:
    many_ports.ofctl("del-flows")
    many_ports.add_flows(render_bundle(Bundle(tuple(FlowMod(Command.ADD, flow) for flow in wanted))))
    assert sorted(many_ports.dump_flows()) == sorted(map(render_flow, wanted))
    for version in ("OpenFlow10", "OpenFlow14"):
        observed = parse_dump(many_ports.ofctl("dump-flows", version=version))
        assert {seen.flow for seen in observed} == set(wanted)
