"""The health of one backend."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.agent.health import BackendHealth, Check, Signal, initial_health, with_result
from xenoovs.agent.probe.target import IcmpTarget, ProbeResult
from xenoovs.model.balancer import Health, Initial, ProbeKind

HEALTH = Health(ProbeKind.TCP, 80, rise=2, fall=3)

healths = st.builds(
    lambda rise, fall, initial: replace(HEALTH, rise=rise, fall=fall, initial=initial),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(Initial),
)
results = st.lists(st.booleans(), max_size=40)


def result(*, ok: bool, latency_s: float = 0.0) -> ProbeResult:
    return ProbeResult(ok=ok, latency_s=latency_s, reason="")


def walk(health: Health, answers: list[bool], *, remembered_up: bool | None) -> list[BackendHealth]:
    check = Check(IcmpTarget(IPv4Address("192.0.2.1")), health)
    found = [initial_health(health, remembered_up=remembered_up, due_s=0.0, now_s=0.0)]
    for moment, ok in enumerate(answers, 1):
        found.append(with_result(found[-1], check, result(ok=ok), sent_s=float(moment), now_s=float(moment)))
    return found


@given(healths, st.booleans(), results)
def test_a_state_changes_exactly_after_enough_contradictions_in_a_row(
    health: Health, remembered_up: bool, answers: list[bool]
) -> None:
    states = walk(health, answers, remembered_up=remembered_up)
    for index, (before, now) in enumerate(itertools.pairwise(states), 1):
        needed = health.fall if before.is_up else health.rise
        last = answers[max(0, index - needed) : index]
        is_run = len(last) == needed and all(ok != before.is_up for ok in last)
        # The results in a row must belong to this state: earlier ones do not count again.
        is_run = is_run and index - needed >= before.since_s
        assert (now.is_up != before.is_up) == is_run
        assert now.since_s == (index if is_run else before.since_s)


@given(healths, st.booleans(), results)
def test_changes_are_no_more_than_rise_and_fall_allow(health: Health, remembered_up: bool, answers: list[bool]) -> None:
    states = [state.is_up for state in walk(health, answers, remembered_up=remembered_up)]
    changes = sum(one != other for one, other in itertools.pairwise(states))
    pairs, rest = divmod(changes, 2)
    first = health.fall if remembered_up else health.rise
    assert pairs * (health.rise + health.fall) + rest * first <= len(answers)


@given(st.integers(1, 6), st.integers(1, 1000), st.integers(1, 1000))
def test_a_silent_backend_is_down_within_the_documented_time(fall: int, fast_ms: int, timeout_ms: int) -> None:
    """interval + (fall - 1) · pause + timeout; the pause is fast_interval, or the timeout where that is longer."""
    health = replace(
        HEALTH, fall=fall, jitter=Fraction(0), interval_ms=1000, fast_interval_ms=fast_ms, timeout_ms=timeout_ms
    )
    check = Check(IcmpTarget(IPv4Address("192.0.2.1")), health)
    # The backend fails right after it has answered, at 0.
    state = initial_health(health, remembered_up=True, due_s=0.0, now_s=0.0)
    state = with_result(state, check, result(ok=True), sent_s=0.0, now_s=0.0)
    now_s = 0.0
    while state.is_up:
        sent_s, now_s = state.due_s, state.due_s + timeout_ms / 1000
        state = with_result(state, check, result(ok=False), sent_s=sent_s, now_s=now_s)
    longest_ms = 1000 + (fall - 1) * max(fast_ms, timeout_ms) + timeout_ms
    assert abs(now_s - longest_ms / 1000) < 1e-6


def test_with_initial_up_the_first_result_decides() -> None:
    for ok in (True, False):
        last = walk(HEALTH, [ok], remembered_up=None)[-1]
        assert (last.is_up, last.is_known, last.contradictions, last.since_s) == (ok, True, 0, 1.0)


def test_with_initial_down_it_is_down_until_it_has_risen() -> None:
    closed = replace(HEALTH, initial=Initial.DOWN)
    assert [state.is_up for state in walk(closed, [True, True], remembered_up=None)] == [False, False, True]


def test_the_state_in_the_flows_takes_precedence_over_initial() -> None:
    closed = replace(HEALTH, initial=Initial.DOWN)
    assert initial_health(closed, remembered_up=True, due_s=7.0, now_s=7.0).is_up
    assert [state.is_up for state in walk(HEALTH, [True, True], remembered_up=False)] == [False, False, True]


def test_the_pause_is_short_only_while_results_contradict_the_state() -> None:
    answers = [True, False, True, False, False, False, False]
    states = walk(replace(HEALTH, jitter=Fraction(0)), answers, remembered_up=None)
    pauses = [state.due_s - moment for moment, state in enumerate(states)][1:]
    assert pauses == [1.0, 0.25, 1.0, 0.25, 0.25, 1.0, 1.0]


@given(results)
def test_the_last_failures_in_a_row_are_known(answers: list[bool]) -> None:
    row = len(answers) - next((i for i in range(len(answers), 0, -1) if answers[i - 1]), 0)
    last = walk(HEALTH, answers, remembered_up=True)[-1]
    assert last.failed_s == tuple(map(float, range(len(answers) - min(row, HEALTH.fall) + 1, len(answers) + 1)))
    assert last.results == len(answers)


def test_a_signal_smooths_the_latencies_of_answers_alone() -> None:
    check = Check(IcmpTarget(IPv4Address("192.0.2.1")), HEALTH)
    health, signals = initial_health(HEALTH, remembered_up=None, due_s=0.0, now_s=0.0), []
    for ok, latency_s in [(False, 5.0), (True, 0.8), (True, 1.6), (False, 5.0), (True, 0.9)]:
        health = with_result(health, check, result(ok=ok, latency_s=latency_s), sent_s=0.0, now_s=0.0)
        signals.append(health.signal)
    assert signals == [None, Signal(0.8, 0.8), Signal(1.6, 0.9), Signal(1.6, 0.9), Signal(0.9, 0.9)]
