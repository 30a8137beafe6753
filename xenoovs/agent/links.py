"""Backends behind ports without link are out, like those that do not answer. Pure."""

from __future__ import annotations

from collections.abc import Callable

from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer

PortsDown = Callable[[str], frozenset[str]]
"""The ports without link, by the name of a bridge."""


def no_ports(_bridge: str) -> frozenset[str]:
    """For a way to the switch that does not tell."""
    return frozenset()


def with_links(balancer: Balancer, out: Outages, down: frozenset[str]) -> Outages:
    """`out`, and the backends that are reached by one of the ports `down`.

    `max_down` does not hold here: a port without link is no mistake of a probe. Where nobody would be left the service
    stays as it is: its packets cannot leave either way, and when the link is back all is in place.
    """
    if not down:
        return out
    told = {}
    for service in balancer.services:
        weighted = {backend.name for backend in service.backends if backend.weight}
        behind = {b.name for b in service.backends if b.weight and not down.isdisjoint(b.next_hop.ports)}
        fallen = out.get(service.name, frozenset())
        told[service.name] = fallen if weighted <= fallen | behind else fallen | behind
    return told
