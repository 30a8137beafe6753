"""Counting the flows of drains takes seconds, while rounds run in another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit import balancer as small
from xenoovs.compile.pipeline import LEARNED, Stage, cookie_of
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer, Drain, DrainMode, Protocol, service_ids
from xenoovs.openflow.flow import OURS, Cookies, ObservedFlow


class Interrupted(FakeSwitch):
    """Calls `meanwhile` before it dumps learned flows."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        if only == LEARNED:
            self.meanwhile()
        return super().dump_flows(bridge, only=only)


def config(*weights: tuple[int, ...]) -> Balancer:
    """One service for each tuple, which drains by pinning connections."""
    services = (
        small.service(small.claim(protocol=Protocol.TCP, ports=[(80 + i, 80 + i)]), *each, name=f"s{i}")
        for i, each in enumerate(weights)
    )
    return small.balancer(*(replace(each, drain=Drain(DrainMode.PIN)) for each in services))


def test_connections_of_a_drain_that_began_while_another_was_counted_stay() -> None:
    switch = Interrupted(fake_bridge("ovsbr1", ["p0", "p1"]))
    engine, begun = Engine(switch), config((1, 1), (1, 1))
    engine.round(DesiredState(begun), now_s=0.0)
    engine.round(DesiredState(config((1, 0), (1, 1))), now_s=1.0)
    other = service_ids(service.claim for service in begun.services)[begun.services[1].claim]
    flow = next(seen.flow for seen in switch.all_flows("ovsbr1").values() if seen.flow.table == Stage.BALANCE.table)
    key = replace(flow.key, table=Stage.LEARNED.table)
    learned = replace(flow, key=key, cookie=cookie_of(Stage.LEARNED, other))

    def begin_another() -> None:
        engine.round(DesiredState(config((1, 0), (1, 0))), now_s=2.0)
        switch.install("ovsbr1", [learned])

    switch.meanwhile = begin_another
    engine.count_drains(now_s=2.0)
    assert learned.key in switch.all_flows("ovsbr1")
