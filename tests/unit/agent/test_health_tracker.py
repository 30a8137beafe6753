"""Which probes are made, and how a new config changes the known health."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from itertools import pairwise

from tests.driven_agent import DrivenAgent
from tests.unit import balancer as small
from xenoovs.agent.health import Check, HealthChange, checks_of
from xenoovs.model.balancer import AllDown, Balancer, Health, ProbeKind, Protocol, Service

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
        super().__init__(balancer, self)
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
