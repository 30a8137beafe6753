"""The ports that a config names."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.balancer import backends, balancer, claim, service


def test_egress_ports_start_with_the_default() -> None:
    away = replace(service(claim()), backends=(*backends(1, egress="z"), *backends(1, egress="a")))
    assert balancer(away).egress_ports == ("p1", "a", "z")


def test_every_port_is_named_once() -> None:
    away = replace(service(claim()), backends=(*backends(1, egress="p1"), *backends(1, egress="a")))
    assert balancer(away, ingress=("p0", "p2")).ports == ("p0", "p2", "p1", "a")
