"""When slow starts begin, step and end, and the share of a backend in each step."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit import balancer as small
from xenoovs.agent.snapshot_builder import Moment, service_views
from xenoovs.agent.state import AgentState
from xenoovs.decision.decision import BackendName
from xenoovs.decision.slow_start import SlowStarts, ramps, update_slow_starts
from xenoovs.model.balancer import Balancer, Health, ProbeKind
from xenoovs.partition.change import STEPS

HEALTH = Health(ProbeKind.ICMP, ramp_ms=7000)
B0, B1 = ("s", "b0"), ("s", "b1")
WHOLE = Fraction(1)


def balancer(*weights: int, health: Health | None = HEALTH) -> Balancer:
    return small.balancer(replace(small.service(small.claim(), *weights), health=health))


def back(one: Balancer, *, out: str = "b1", at_s: float = 0.0) -> SlowStarts:
    """All backends were up, then one was ejected, and it recovers at that moment."""
    slow = update_slow_starts(SlowStarts(), one, {}, known={B0: WHOLE, B1: WHOLE}, now_s=-9)
    slow = update_slow_starts(slow, one, {"s": frozenset({out})}, known={}, now_s=-5)
    return update_slow_starts(slow, one, {}, known={}, now_s=at_s)


@pytest.mark.parametrize(("now_s", "part"), [(0, 1), (0.99, 1), (1, 2), (6.99, 7), (7, None), (99, None)])
def test_steps(now_s: float, part: int | None) -> None:
    one = balancer(1, 1)
    expected: dict[BackendName, Fraction] = {} if part is None else {B1: Fraction(part, STEPS)}
    assert ramps(back(one), one, now_s=now_s) == expected


def test_no_backend_starts_slowly_at_the_first_read_of_an_empty_bridge() -> None:
    one = balancer(1, 1)
    assert ramps(update_slow_starts(SlowStarts(), one, {}, known={}, now_s=0), one, now_s=0) == {}


def test_a_backend_with_a_new_weight_starts_slowly() -> None:
    """The end of a drain is a return like the end of an ejection."""
    slow = update_slow_starts(SlowStarts(), balancer(1, 0), {}, known={B0: WHOLE}, now_s=0)
    slow = update_slow_starts(slow, balancer(1, 1), {}, known={}, now_s=5)
    assert ramps(slow, balancer(1, 1), now_s=5) == {B1: Fraction(1, 8)}


def test_without_a_ramp_all_at_once() -> None:
    for health in (None, replace(HEALTH, ramp_ms=None)):
        one = balancer(1, 1, health=health)
        assert ramps(back(one), one, now_s=0) == {}


def test_an_ended_start_does_not_begin_again() -> None:
    one = balancer(1, 1)
    slow = update_slow_starts(back(one), one, {}, known={}, now_s=8)
    assert ramps(update_slow_starts(slow, one, {}, known={}, now_s=9), one, now_s=1) == {}


def test_the_share_during_a_slow_start_is_one_that_blocks_can_give() -> None:
    one = balancer(2, 1, 1)
    (service,) = service_views(Moment(AgentState(one, one), {B1: Fraction(1, 2)}))
    shares = [backend.target_share for backend in service.backends]
    assert shares == pytest.approx([0.875 * 2 / 3, 0.125, 0.875 / 3])
    assert service.backends[1].weight_in_use == 0.5


@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_start_that_was_under_way_before_a_restart_goes_on(step: int) -> None:
    one = balancer(1, 1)
    part = Fraction(step, STEPS)
    slow = update_slow_starts(SlowStarts(), one, {}, known={B0: WHOLE, B1: part}, now_s=100)
    assert ramps(slow, one, now_s=100) == {B1: part}
    ahead = ramps(slow, one, now_s=100.9)
    assert ahead == ({} if step == STEPS - 1 else {B1: Fraction(step + 1, STEPS)})
    assert ramps(slow, one, now_s=107) == {}


def test_a_backend_ejected_before_a_restart_starts_slowly_if_it_answers_when_the_switch_is_read() -> None:
    """If the switch did not answer at first, the backend got all clients at once."""
    one = balancer(1, 1)
    slow = update_slow_starts(SlowStarts(), one, {}, known={B0: WHOLE, B1: Fraction(0)}, now_s=5)
    assert ramps(slow, one, now_s=5) == {B1: Fraction(1, STEPS)}


def test_a_backend_ejected_before_a_restart_has_not_started() -> None:
    one = balancer(1, 1)
    slow = update_slow_starts(SlowStarts(), one, {"s": frozenset({"b1"})}, known={B0: WHOLE, B1: Fraction(0)}, now_s=0)
    assert ramps(slow, one, now_s=0) == {}
    assert ramps(update_slow_starts(slow, one, {}, known={}, now_s=5), one, now_s=5) == {B1: Fraction(1, STEPS)}
