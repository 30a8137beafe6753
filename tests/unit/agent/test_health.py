"""Health: of one backend, how many are ejected at once, slow starts, the probes that are made, and weight policies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driven_agent import DrivenAgent
from tests.unit import balancer as small
from xenoovs.agent.health import (
    BackendHealth,
    Check,
    Checks,
    HealthChange,
    HealthTracker,
    checks_of,
    initial_health,
    with_result,
)
from xenoovs.agent.probe.target import IcmpTarget, ProbeResult, TcpTarget
from xenoovs.agent.snapshot_builder import Moment, service_views
from xenoovs.agent.state import AgentState, ConfigFollowed, Probed, Tick, after, desired_state
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import (
    Ejection,
    SlowStarts,
    decide_ejections,
    ramps,
    select_ejected,
    update_slow_starts,
    with_away,
    with_dead_ports,
)
from xenoovs.model.address import Mac
from xenoovs.model.balancer import AllDown, Backend, Balancer, Health, Initial, ProbeKind, Protocol, Service
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import Direct
from xenoovs.partition.change import STEPS
from xenoovs.show.snapshot import Override

HEALTH = Health(ProbeKind.ICMP, fall=1, jitter=Fraction(0))
VIP = IPv4Address("192.0.2.1")


def service(name: str, *weights: int, port: int, health: Health | None = HEALTH) -> Service:
    made = small.service(small.claim(VIP, protocol=Protocol.TCP, ports=[(port, port)]), *weights, name=name)
    backends = tuple(replace(b, address=IPv4Address(0xC0000210 + i)) for i, b in enumerate(made.backends))
    return replace(made, backends=backends, health=health)


class Driven(DrivenAgent):
    """An agent at a time that the test sets."""

    def __init__(self, balancer: Balancer) -> None:
        self.now = 0.0
        super().__init__(balancer, self.now_s)
        self.follow(balancer)

    def now_s(self) -> float:
        return self.now

    def due(self, now_s: float) -> list[Check]:
        self.now = now_s
        return self.take_due()

    def answer(self, check: Check, *, ok: bool, sent_s: float, now_s: float) -> HealthChange | None:
        self.now = now_s
        return self.record(check, ok=ok, sent_s=sent_s)


def test_one_probe_for_one_backend_however_many_services_use_it() -> None:
    shared = small.balancer(*(service(f"s{port}", 1, 1, port=port) for port in range(80, 90)))
    one = Driven(shared)
    (first, second) = one.due(0.0)
    change = one.answer(first, ok=False, sent_s=0.0, now_s=0.1)
    assert change is not None
    assert change.backends == tuple((f"s{port}", "b0") for port in range(80, 90))
    one.answer(second, ok=True, sent_s=0.0, now_s=0.1)
    assert one.desired().ejected == {f"s{port}": {"b0"} for port in range(80, 90)}


def test_different_probe_settings_are_different_probes() -> None:
    two = small.balancer(service("a", 1, port=80), service("b", 1, port=81, health=replace(HEALTH, fall=2)))
    assert len(Driven(two).due(0.0)) == 2


def test_max_down_makes_no_further_probe() -> None:
    two = small.balancer(service("a", 1, port=80), service("b", 1, port=81, health=replace(HEALTH, max_down=1)))  # type: ignore[arg-type]
    assert len(Driven(two).due(0.0)) == 1


def test_backends_without_weight_and_services_without_health_are_not_probed() -> None:
    some = small.balancer(service("a", 0, 1, port=80), service("b", 1, 1, port=81, health=None))
    assert list(checks_of(some, ()).by_backend) == [("a", "b1")]


def test_a_probe_is_not_started_again_before_its_result() -> None:
    one = Driven(small.balancer(service("a", 1, port=80)))
    (check,) = one.due(0.0)
    assert one.due(100.0) == []
    one.answer(check, ok=True, sent_s=0.0, now_s=0.2)
    assert one.queue.next_due_s == 1.0


def test_a_new_config_keeps_known_health_and_probes_new_backends_at_once() -> None:
    one = Driven(small.balancer(service("a", 1, 1, port=80)))
    for check in one.due(0.0):
        one.answer(check, ok="192.0.2.17" in str(check.target), sent_s=0.0, now_s=0.0)
    assert one.desired().ejected == {"a": {"b0"}}
    one.now = 0.5
    one.follow(small.balancer(service("renamed", 2, 1, 1, port=80)))
    assert one.desired().ejected == {"renamed": {"b0"}}
    assert len(one.due(0.5)) == 1


def test_a_result_for_a_check_that_is_gone_is_ignored() -> None:
    one = Driven(small.balancer(service("a", 1, port=80)))
    (check,) = one.due(0.0)
    one.now = 0.1
    one.follow(small.balancer())
    assert one.answer(check, ok=False, sent_s=0.0, now_s=0.2) is None
    assert one.desired().ejected == {}


def crowd(backends: int, *, jitter: Fraction) -> Driven:
    return Driven(small.balancer(service("a", *[1] * backends, port=80, health=replace(HEALTH, jitter=jitter))))


def busiest(one: Driven, *, seconds: int, apart_ms: int = 10) -> int:
    """The most probes that are due within so many milliseconds, after the first ones."""
    counts = []
    for moment in range(0, 1000 * seconds, apart_ms):
        due = one.due(moment / 1000)
        for check in due:
            one.answer(check, ok=True, sent_s=moment / 1000, now_s=moment / 1000)
        counts.append(len(due))
    return max(counts[1000 // apart_ms :])


def test_probes_of_many_backends_do_not_go_in_bursts() -> None:
    assert busiest(crowd(500, jitter=Fraction(1, 10)), seconds=10) < 25
    assert busiest(crowd(50, jitter=Fraction(0)), seconds=10) == 50


def test_jitter_only_shortens_and_is_the_same_in_every_run() -> None:
    pauses = []
    for _ in range(2):
        one, asked = crowd(1, jitter=Fraction(1, 10)), []
        for _ in range(50):
            due_s = one.queue.next_due_s
            assert due_s is not None
            (check,) = one.due(due_s)
            one.answer(check, ok=True, sent_s=due_s, now_s=due_s)
            asked.append(due_s)
        pauses.append([round(later - earlier, 9) for earlier, later in pairwise(asked)])
    assert pauses[0] == pauses[1]
    assert len(set(pauses[0])) == 49
    assert 0.9 <= min(pauses[0][1:]) < 0.92
    assert 0.98 < max(pauses[0][1:]) <= 1.0


def test_more_than_a_hundred_new_backends_are_probed_a_hundred_at_a_time() -> None:
    one = crowd(250, jitter=Fraction(0))
    assert [len(one.due(moment)) for moment in (0.0, 0.05, 0.1, 0.2, 0.3)] == [100, 0, 100, 50, 0]


def test_a_check_that_returns_while_its_probe_runs_is_not_probed_twice() -> None:
    one, none = crowd(1, jitter=Fraction(0)), small.balancer(service("a", 1, port=80, health=None))
    with_check = small.balancer(service("a", 1, port=80))
    (check,) = one.due(0.0)
    one.now = 0.1
    one.follow(none)
    one.now = 0.2
    one.follow(with_check)
    one.answer(check, ok=True, sent_s=0.0, now_s=0.3)
    asked = 0
    for moment in range(100):
        for due in one.due(moment / 10):
            asked += 1
            one.answer(due, ok=True, sent_s=moment / 10, now_s=moment / 10)
    assert asked == 9


def all_fall(one: Driven, *, moment: float) -> list[HealthChange]:
    changes = [one.answer(check, ok=False, sent_s=moment, now_s=moment) for check in one.due(moment)]
    one.desired()
    return [each for each in changes if each is not None]


def test_backends_that_max_down_holds_are_reported() -> None:
    one = Driven(small.balancer(service("a", 1, 1, 1, port=80), service("b", 1, 0, port=81)))
    assert [(each.backends, each.held) for each in all_fall(one, moment=0.0)] == [
        ((("a", "b0"), ("b", "b0")), (("b", "b0"),)),
        ((("a", "b1"),), (("a", "b1"),)),
        ((("a", "b2"),), (("a", "b2"),)),
    ]
    assert one.desired().ejected == {"a": {"b0"}}
    assert one.state.held == {"a": {"b1", "b2"}, "b": {"b0"}}


def test_no_backend_is_held_where_all_packets_are_dropped() -> None:
    dropped = replace(HEALTH, on_all_down=AllDown.DROP)
    one = Driven(small.balancer(service("a", 1, 1, port=80, health=dropped)))
    assert [each.held for each in all_fall(one, moment=0.0)] == [(), ()]


def test_a_held_backend_that_is_ejected_later_is_reported_once_and_triggers_a_round() -> None:
    one = Driven(small.balancer(service("a", 1, 1, port=80)))
    all_fall(one, moment=0.0)
    changes = []
    for moment in range(1, 8):
        for check in one.due(moment):
            changes.append(one.answer(check, ok=".16'" in str(check.target), sent_s=moment, now_s=moment))
        one.desired()
    news = [each for each in changes if each is not None]
    assert [(each.backends, each.is_up, each.was_held) for each in news] == [
        ((("a", "b0"),), True, False),
        ((("a", "b1"),), False, True),
    ]
    assert one.desired().ejected == {"a": {"b1"}}


TCP_HEALTH = Health(ProbeKind.TCP, 80, rise=2, fall=3)

healths = st.builds(
    lambda rise, fall, initial: replace(TCP_HEALTH, rise=rise, fall=fall, initial=initial),
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


@given(st.integers(1, 6), st.integers(1, 1000), st.integers(1, 1000))
def test_a_silent_backend_is_down_within_the_documented_time(fall: int, fast_ms: int, timeout_ms: int) -> None:
    """interval + (fall - 1) · pause + timeout; the pause is fast_interval, or the timeout where that is longer."""
    health = replace(
        TCP_HEALTH, fall=fall, jitter=Fraction(0), interval_ms=1000, fast_interval_ms=fast_ms, timeout_ms=timeout_ms
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
        last = walk(TCP_HEALTH, [ok], remembered_up=None)[-1]
        assert (last.is_up, last.is_known, last.contradictions, last.since_s) == (ok, True, 0, 1.0)


def test_the_state_in_the_flows_takes_precedence_over_initial() -> None:
    closed = replace(TCP_HEALTH, initial=Initial.DOWN)
    assert initial_health(closed, remembered_up=True, due_s=7.0, now_s=7.0).is_up
    assert [state.is_up for state in walk(TCP_HEALTH, [True, True], remembered_up=False)] == [False, False, True]


@pytest.mark.parametrize(("others", "is_up"), [(Fraction(1, 2), True), (Fraction(0), False)])
def test_a_server_of_several_services_begins_up_only_if_all_of_them_used_it(others: Fraction, is_up: bool) -> None:
    check = Check(IcmpTarget(IPv4Address("192.0.2.1")), TCP_HEALTH)
    checks = Checks(backends={check: (("web", "a"), ("dns", "a"))})
    tracker = HealthTracker().with_checks(checks, {("web", "a"): Fraction(1, 2), ("dns", "a"): others}, 0.0)
    assert tracker.health[check].is_up is is_up


def test_the_pause_is_short_only_while_results_contradict_the_state() -> None:
    answers = [True, False, True, False, False, False, False]
    states = walk(replace(TCP_HEALTH, jitter=Fraction(0)), answers, remembered_up=None)
    pauses = [state.due_s - moment for moment, state in enumerate(states)][1:]
    assert pauses == [1.0, 0.25, 1.0, 0.25, 0.25, 1.0, 1.0]


@given(results)
def test_the_last_failures_in_a_row_are_known(answers: list[bool]) -> None:
    row = len(answers) - next((i for i in range(len(answers), 0, -1) if answers[i - 1]), 0)
    last = walk(TCP_HEALTH, answers, remembered_up=True)[-1]
    assert last.failed_s == tuple(map(float, range(len(answers) - min(row, TCP_HEALTH.fall) + 1, len(answers) + 1)))
    assert last.results == len(answers)


ICMP = Health(ProbeKind.ICMP)
parts = st.fractions(0, 1, max_denominator=100)


@given(st.integers(1, 20), st.integers(0, 20), parts, st.sampled_from(AllDown))
def test_bounds(of: int, down: int, part: Fraction, policy: AllDown) -> None:
    fallen = [f"b{i}" for i in range(min(down, of))]
    out = select_ejected(fallen, total=of, health=replace(ICMP, max_down=part, on_all_down=policy))
    if len(fallen) == of and policy is AllDown.DROP:
        assert out == set(fallen)
    else:
        assert len(out) == min(len(fallen), int(part * of), of - 1)
        assert out == set(fallen[: len(out)])


@given(st.integers(2, 20), parts)
def test_one_more_failure_returns_no_ejected_backend(of: int, part: Fraction) -> None:
    health = replace(ICMP, max_down=part)
    names = [f"b{i}" for i in range(of)]
    sets = [select_ejected(names[:down], total=of, health=health) for down in range(of + 1)]
    assert all(one <= other for one, other in itertools.pairwise(sets))


def equal_service(backends: int, health: Health = ICMP) -> Service:
    return replace(small.service(small.claim(), *[1] * backends), health=health)


def step(
    before: Ejection,
    one: Service,
    down: Mapping[str, float],
    *,
    now_s: float,
    failing: Mapping[str, float] | None = None,
) -> Ejection:
    """Decide with these backends down: since when each is down, and since when its probes fail."""
    return decide_ejections(replace(before, down=down), one, failing or {}, now_s=now_s)


def both_down(one: Service) -> Ejection:
    """b0 is ejected, and b1 is held."""
    full = step(Ejection(), one, {"b0": 0.0, "b1": 0.0}, now_s=0.0)
    assert (sorted(full.ejected), sorted(full.held)) == (["b0"], ["b1"])
    return full


def test_a_held_backend_that_comes_up_and_goes_down_again_is_ejected_at_once_if_the_limit_allows_it() -> None:
    two = equal_service(2)
    assert step(both_down(two), two, {"b1": 7.0}, now_s=7.0).ejected == {"b1"}


def test_a_backend_that_goes_down_later_may_be_ejected_before_a_held_one() -> None:
    three = equal_service(3, replace(ICMP, max_down=Fraction(1, 3)))
    free = step(both_down(three), three, {"b1": 0.0}, now_s=1.0)
    taken = step(free, three, {"b1": 0.0, "b2": 1.0}, now_s=2.0)
    assert (sorted(free.ejected), sorted(taken.ejected)) == ([], ["b2"])
    # The limit is reached: b1 begins again when it allows one more.
    assert taken.held["b1"].free_s is None


@pytest.mark.parametrize(
    ("fallen", "down", "ejected"),
    [
        ("", "", ""),
        ("", "p2", "bc"),
        ("", "p1", "a"),
        ("b", "p1", "ab"),
        ("a", "p2", "a"),
        ("", "p1 p2", ""),
        ("abc", "p1", "abc"),
        ("", "p9", ""),
    ],
)
def test_backends_behind_ports_without_link_are_ejected_as_long_as_one_is_left(
    fallen: str, down: str, ejected: str
) -> None:
    named = (("a", 1, "p1"), ("b", 1, "p2"), ("c", 1, "p2"), ("unused", 0, "p1"))
    plain = equal_service(4)
    backends = (
        Backend(name, replace(backend.next_hop, port=egress), Fraction(weight))
        for backend, (name, weight, egress) in zip(plain.backends, named, strict=True)
    )
    one = replace(plain, name="web", backends=tuple[Backend, ...](backends))
    found = with_dead_ports(
        {"web": frozenset(fallen)} if fallen else {}, small.balancer(one).services, frozenset(down.split())
    )
    assert found == ({"web": frozenset(ejected)} if ejected else {})


def with_backups(backends: int, backups: int, health: Health = ICMP) -> Service:
    """The last ones are backups."""
    made = equal_service(backends + backups, health)
    marked = (replace(b, is_backup=i >= backends) for i, b in enumerate(made.backends))
    return replace(made, backends=tuple(marked))


def ejected(one: Service, *down: str) -> set[str]:
    return set(step(Ejection(), one, dict.fromkeys(down, 0.0), now_s=0.0).ejected)


def test_what_leaves_a_service_without_any_backend_that_is_up_changes_nothing() -> None:
    """A backup that is down gets no clients."""
    one = with_backups(2, 1)
    down = {"s": frozenset(ejected(one, "b2"))}
    assert with_dead_ports(down, [one], {"p1"}) == down
    assert with_away(down, [one], {"s": frozenset({"b0", "b1"})}) == down


def test_dead_ports_leave_the_clients_to_a_backup_behind_another_port() -> None:
    made = with_backups(2, 1)
    backends = tuple(
        replace(b, next_hop=Direct(Mac(i), "p2" if b.is_backup else "p1")) for i, b in enumerate(made.backends, 1)
    )
    one = small.balancer(replace(made, backends=backends))
    assert with_dead_ports({}, one.services, {"p1"}) == {"s": {"b0", "b1"}}
    assert with_dead_ports({}, one.services, {"p1", "p2"}) == {}


RAMPED = Health(ProbeKind.ICMP, ramp_ms=7000)
B0, B1 = ("s", "b0"), ("s", "b1")
WHOLE = Fraction(1)


def balancer(*weights: int, health: Health | None = RAMPED) -> Balancer:
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
    for health in (None, replace(RAMPED, ramp_ms=None)):
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


PLAIN = small.service(small.claim(), 2, 1, 1, name="web")
BACKENDS = tuple(replace(b, address=IPv4Address(i + 1)) for i, b in enumerate(PLAIN.backends))
BALANCER = small.balancer(replace(PLAIN, backends=BACKENDS, health=Health(ProbeKind.ICMP, max_down=Fraction(1))))
FOLLOWED = ConfigFollowed(BALANCER, (Override("web", "b1", Fraction(2), 0.0, Fraction(1)),))


def test_the_weights_in_use_are_those_of_config_and_operators_whatever_the_latency() -> None:
    state = after(AgentState(BALANCER, BALANCER), FOLLOWED, now_s=0.0)
    checks = state.tracker.checks.by_backend
    results = (
        Probed(checks["web", name], ProbeResult(ok=True, latency_s=latency_s, reason="answered"), sent_s=0.0)
        for name, latency_s in (("b0", 0.004), ("b1", 0.001))
    )
    (service,) = desired_state(after(state, *results, Tick(), now_s=1.0), 1.0).balancer.services
    assert service.weights == tuple(map(Fraction, (2, 2, 1)))


CONFIG = """\
version: 1
switch: {ingress: [p0], egress: p1}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    mode: nat
    health: {probe: PROBE}
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, address: 10.3.20.11, port: 8080, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, address: 10.3.20.12, port: 8081, weight: 1}
      - {name: six, mac: 02:00:5e:10:00:04, address: 10.3.20.13, weight: 1}
"""


def targets(probe: str) -> dict[str, object]:
    balancer = parse_config(CONFIG.replace("PROBE", probe), file="c.yaml")
    return {backend: check.target for (_, backend), check in checks_of(balancer, ()).by_backend.items()}


@pytest.mark.parametrize(("probe", "ports"), [("tcp", [8080, 8081, 80]), ("tcp, port: 7", [7, 7, 7])])
def test_each_backend_is_tried_where_it_serves(probe: str, ports: list[int]) -> None:
    found = targets(probe)
    assert [target.port for target in found.values() if isinstance(target, TcpTarget)] == ports


def test_a_probe_without_a_port_has_none() -> None:
    assert all(isinstance(target, IcmpTarget) for target in targets("icmp").values())
