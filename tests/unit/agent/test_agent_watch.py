"""Which probes are made, and what a new config does to what is known."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from tests.unit import balancer as small
from xenoovs.agent.check import uses_of
from xenoovs.agent.watch import Watch
from xenoovs.model.balancer import Balancer
from xenoovs.model.health import Health, ProbeKind
from xenoovs.model.service import Protocol, Service

HEALTH = Health(ProbeKind.ICMP, fall=1)
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
