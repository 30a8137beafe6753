"""The rounds of a drain that `apply` waits for."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit import balancer as small
from xenoovs.cli.apply import wait_for_drains
from xenoovs.decision.advance import SETTLE_S
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import DrainRounds, Engine
from xenoovs.errors import BridgeMissing, SwitchError, SwitchUnreachable
from xenoovs.model.balancer import Balancer, Drain, DrainMode, Protocol


def pinning(*weights: int) -> Balancer:
    service = small.service(small.claim(protocol=Protocol.TCP), *weights)
    return small.balancer(replace(service, drain=Drain(DrainMode.PIN, timeout_ms=5_000, idle_timeout_ms=5_000)))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeSwitch, DrainRounds]:
    """A drain that has just begun, with a clock that advances only in the waits for rounds."""
    switch, now_s = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"])), [100.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        switch.age("ovsbr1", seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    engine, options = Engine(switch), PlanOptions()
    engine.apply(engine.plan(pinning(1, 1), options, now_s=now_s[0]))
    change = engine.plan(pinning(1, 0), options, now_s=now_s[0])
    engine.apply(change)
    return switch, DrainRounds(engine, pinning(1, 0), options, change)


def test_all_rounds_end_the_drain(begun: tuple[FakeSwitch, DrainRounds]) -> None:
    switch, rounds = begun
    assert SETTLE_S < wait_for_drains(rounds) < 10
    assert not [flow for flow in switch.all_flows("ovsbr1") if flow.table > 1]


def test_a_short_failure_of_the_switch_ends_no_drain(begun: tuple[FakeSwitch, DrainRounds]) -> None:
    switch, rounds = begun
    switch.fail_next(SwitchUnreachable(target="it", reason="ovs-vswitchd does not answer"))
    wait_for_drains(rounds)
    assert not rounds.drains


@pytest.mark.parametrize(
    ("error", "is_tried_again"),
    [(SwitchUnreachable(target="it", reason="gone"), True), (BridgeMissing(bridge="ovsbr1", present=()), False)],
)
def test_a_switch_that_is_gone_ends_the_command(
    begun: tuple[FakeSwitch, DrainRounds], monkeypatch: pytest.MonkeyPatch, error: SwitchError, *, is_tried_again: bool
) -> None:
    switch, rounds = begun
    begun_s = time.monotonic()

    def fail() -> None:
        raise error

    monkeypatch.setattr(switch, "_fail", fail)
    with pytest.raises(type(error)):
        wait_for_drains(rounds)
    assert (time.monotonic() - begun_s > 60) == is_tried_again
