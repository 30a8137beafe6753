"""Which probes are made, and what a new config does to what is known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from itertools import pairwise

from tests.unit import balancer as small
from xenoovs.agent.check import uses_of
from xenoovs.agent.watch import Transition, Watch
from xenoovs.model.balancer import Balancer
from xenoovs.model.health import AllDown, Health, ProbeKind
from xenoovs.model.service import Protocol, Service

HEALTH = Health(ProbeKind.ICMP, fall=1, jitter=Fraction(0))
VIP = IPv4Address("192.0.2.1")


def service(name: str, *weights: int, port: int, health: Health | None = HEALTH) -> Service:
    made = small.service(small.claim(VIP, protocol=Protocol.TCP, ports=[(port, port)]), *weights, name=name)
    backends = tuple(replace(b, address=IPv4Address(0xC0000210 + i)) for i, b in enumerate(made.backends))
    return replace(made, backends=backends, health=health)


def watch(balancer: Balancer) -> Watch:
    made = Watch()
    made.follow(balancer, {}, now_s=0.0)
    return made


def test_one_probe_for_one_backend_however_many_services_use_it() -> None:
    shared = small.balancer(*(service(f"s{port}", 1, 1, port=port) for port in range(80, 90)))
    one = watch(shared)
    (first, second) = one.take_due(0.0)
    told = one.record(first, ok=False, asked_s=0.0, now_s=0.1)
    assert told is not None
    assert told.names == tuple(f"s{port}/b0" for port in range(80, 90))
    one.record(second, ok=True, asked_s=0.0, now_s=0.1)
    assert one.outages() == {f"s{port}": {"b0"} for port in range(80, 90)}


def test_other_ways_of_asking_are_other_probes() -> None:
    two = small.balancer(service("a", 1, port=80), service("b", 1, port=81, health=replace(HEALTH, fall=2)))
    assert len(watch(two).take_due(0.0)) == 2


def test_max_down_makes_no_further_probe() -> None:
    two = small.balancer(service("a", 1, port=80), service("b", 1, port=81, health=replace(HEALTH, max_down=1)))  # type: ignore[arg-type]
    assert len(watch(two).take_due(0.0)) == 1


def test_nobody_asks_a_backend_without_weight_or_a_service_without_health() -> None:
    some = small.balancer(service("a", 0, 1, port=80), service("b", 1, 1, port=81, health=None))
    assert [use.backend.name for use in uses_of(some)] == ["b1"]


def test_a_probe_is_not_started_again_before_its_result() -> None:
    one = watch(small.balancer(service("a", 1, port=80)))
    (check,) = one.take_due(0.0)
    assert one.take_due(100.0) == ()
    one.record(check, ok=True, asked_s=0.0, now_s=0.2)
    assert one.next_due_s() == 1.0


def test_a_new_config_keeps_what_is_known_and_asks_new_backends_at_once() -> None:
    one = watch(small.balancer(service("a", 1, 1, port=80)))
    for check in one.take_due(0.0):
        one.record(check, ok="192.0.2.17" in str(check.target), asked_s=0.0, now_s=0.0)
    assert one.outages() == {"a": {"b0"}}
    one.follow(small.balancer(service("renamed", 2, 1, 1, port=80)), {}, now_s=0.5)
    assert one.outages() == {"renamed": {"b0"}}
    assert len(one.take_due(0.5)) == 1


def test_a_result_for_a_check_that_is_gone_is_ignored() -> None:
    one = watch(small.balancer(service("a", 1, port=80)))
    (check,) = one.take_due(0.0)
    one.follow(small.balancer(), {}, now_s=0.1)
    assert one.record(check, ok=False, asked_s=0.0, now_s=0.2) is None
    assert one.outages() == {}


def crowd(backends: int, *, jitter: Fraction) -> Watch:
    return watch(small.balancer(service("a", *[1] * backends, port=80, health=replace(HEALTH, jitter=jitter))))


def busiest(one: Watch, *, seconds: int, apart_ms: int = 10) -> int:
    """The most probes that are due within so many milliseconds, after the first ones."""
    counts = []
    for moment in range(0, 1000 * seconds, apart_ms):
        due = one.take_due(moment / 1000)
        for check in due:
            one.record(check, ok=True, asked_s=moment / 1000, now_s=moment / 1000)
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
            due_s = one.next_due_s()
            assert due_s is not None
            (check,) = one.take_due(due_s)
            one.record(check, ok=True, asked_s=due_s, now_s=due_s)
            asked.append(due_s)
        pauses.append([round(later - earlier, 9) for earlier, later in pairwise(asked)])
    assert pauses[0] == pauses[1]
    assert len(set(pauses[0])) == 49
    assert 0.9 <= min(pauses[0][1:]) < 0.92
    assert 0.98 < max(pauses[0][1:]) <= 1.0


def test_more_than_a_hundred_new_backends_are_asked_one_hundred_after_the_other() -> None:
    one = crowd(250, jitter=Fraction(0))
    assert [len(one.take_due(moment)) for moment in (0.0, 0.05, 0.1, 0.2, 0.3)] == [100, 0, 100, 50, 0]


def test_a_check_that_comes_again_while_its_probe_is_under_way_is_not_asked_twice() -> None:
    one, none = crowd(1, jitter=Fraction(0)), small.balancer(service("a", 1, port=80, health=None))
    with_check = small.balancer(service("a", 1, port=80))
    (check,) = one.take_due(0.0)
    one.follow(none, {}, now_s=0.1)
    one.follow(with_check, {}, now_s=0.2)
    one.record(check, ok=True, asked_s=0.0, now_s=0.3)
    asked = 0
    for moment in range(100):
        for due in one.take_due(moment / 10):
            asked += 1
            one.record(due, ok=True, asked_s=moment / 10, now_s=moment / 10)
    assert asked == 9


def all_fall(one: Watch, *, moment: float) -> list[Transition]:
    told = [one.record(check, ok=False, asked_s=moment, now_s=moment) for check in one.take_due(moment)]
    one.outages()
    return [each for each in told if each is not None]


def test_it_is_told_of_whom_max_down_leaves_the_clients() -> None:
    one = watch(small.balancer(service("a", 1, 1, 1, port=80), service("b", 1, 0, port=81)))
    assert [(each.names, each.kept) for each in all_fall(one, moment=0.0)] == [
        (("a/b0", "b/b0"), ("b/b0",)),
        (("a/b1",), ("a/b1",)),
        (("a/b2",), ("a/b2",)),
    ]
    assert one.outages() == {"a": {"b0"}, "b": set()}


def test_nobody_keeps_clients_where_all_are_dropped() -> None:
    dropped = replace(HEALTH, on_all_down=AllDown.DROP)
    one = watch(small.balancer(service("a", 1, 1, port=80, health=dropped)))
    assert [each.kept for each in all_fall(one, moment=0.0)] == [(), ()]


def test_a_kept_backend_that_goes_later_is_told_once_and_wants_a_round() -> None:
    one = watch(small.balancer(service("a", 1, 1, port=80)))
    all_fall(one, moment=0.0)
    told = []
    for moment in range(1, 8):
        for check in one.take_due(moment):
            told.append(one.record(check, ok=".16'" in str(check.target), asked_s=moment, now_s=moment))
        one.outages()
    news = [each for each in told if each is not None]
    assert [(each.names, each.is_up, each.is_again) for each in news] == [
        (("a/b0",), True, False),
        (("a/b1",), False, True),
    ]
    assert one.outages() == {"a": {"b1"}}
