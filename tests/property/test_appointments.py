"""A change that is prepared, and read for what it concerns alone, leaves the bridge as one that compares all flows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.fake_switch import FakeSwitch, Soon, fake_bridge, nothing
from tests.strategies import balancers, edits, share
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.errors import AppointmentCancelled, XenoovsError
from xenoovs.openflow.flow import FlowKey


class Bridge:
    """A bridge, its engine, and another program."""

    def __init__(self, ports: list[str]) -> None:
        self.switch = FakeSwitch(fake_bridge("ovsbr1", ports))
        self.engine = Engine(self.switch)

    def flows(self) -> dict[FlowKey, object]:
        return {key: seen.flow for key, seen in self.switch.all_flows("ovsbr1").items()}

    def disturb(self, key: FlowKey | None, kind: str) -> None:
        flows = self.switch.all_flows("ovsbr1")
        if key not in flows:
            return
        if kind == "gone":
            self.switch.remove_flow("ovsbr1", key)
        elif kind == "changed":
            self.switch.install("ovsbr1", [replace(flows[key].flow, actions=())])
        else:
            self.switch.install("ovsbr1", [replace(flows[key].flow, cookie=7, key=replace(key, priority=7))])


@share(0.4)
@given(st.data())
def test_changes_at_a_time_leave_what_changes_at_once_leave(data: st.DataObject) -> None:
    balancer = data.draw(balancers(most=3).filter(lambda drawn: drawn.services))
    ports = sorted({*balancer.ports, "p0", "p1", "p2"})
    at_once, planned = Bridge(ports), Bridge(ports)
    for number in range(data.draw(st.integers(2, 4))):
        desired, now_s = DesiredState(balancer), 100.0 * number
        key = data.draw(st.sampled_from([None, *sorted(at_once.flows(), key=str)]))
        kind, is_before = data.draw(st.sampled_from(["gone", "changed", "foreign"])), data.draw(st.booleans())
        at_once.disturb(key, kind)
        if is_before:
            planned.disturb(key, kind)
        try:
            at_once.engine.round(desired, now_s=now_s)
        except XenoovsError:
            return  # No flows can do that.
        happens = nothing if is_before else partial(planned.disturb, key, kind)
        appointment = Soon(happens, nothing)
        try:
            planned.engine.round(desired, now_s=now_s, appointment=appointment)
        except AppointmentCancelled:
            planned.engine.round(desired, now_s=now_s)
        if appointment.left_s == 2:
            happens()  # There was nothing to wait for.
        for bridge in (at_once, planned):
            bridge.engine.round(desired, now_s=now_s + 50)
        assert planned.flows() == at_once.flows()
        balancer = data.draw(edits(balancer))
