"""Backends that are given by their address alone: what is to be found, and a balancer with what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import with_mac
from xenoovs.model.service import Service


@dataclass(frozen=True, slots=True, order=True)
class Sought:
    """An address whose MAC is wanted, on the network of a device and in a network namespace; empty: as routes say."""

    netns: str
    interface: str
    address: IPAddress


Macs = Mapping[Sought, Mac]


def sought(balancer: Balancer) -> dict[Sought, tuple[str, ...]]:
    """The addresses to be found, each with the `service/backend` that it is for, in the order of the config."""
    found: dict[Sought, tuple[str, ...]] = {}
    for service in balancer.services:
        for backend in service.backends:
            if (wanted := sought_of(service, backend)) is not None:
                found[wanted] = (*found.get(wanted, ()), f"{service.name}/{backend.name}")
    return found


def with_macs(balancer: Balancer, macs: Macs) -> Balancer:
    """The balancer with the MACs that were found; backends that have none yet have no weight.

    The same balancer where every MAC is configured.
    """
    if not any(backend.follows for service in balancer.services for backend in service.backends):
        return balancer
    return replace(balancer, services=tuple(_with_macs(service, macs) for service in balancer.services))


def sought_of(service: Service, backend: Backend) -> Sought | None:
    """Where a backend is to be found; None for one with a MAC of the config."""
    if not backend.follows or backend.address is None:
        return None
    health = service.health
    netns, interface = (None, None) if health is None else (health.netns, health.interface)
    return Sought(netns or "", interface or "", backend.address)


def _with_macs(service: Service, macs: Macs) -> Service:
    backends = []
    for backend in service.backends:
        wanted = sought_of(service, backend)
        mac = None if wanted is None else macs.get(wanted)
        if wanted is None:
            backends.append(backend)
        elif mac is None:
            backends.append(replace(backend, weight=Fraction(0)))
        else:
            backends.append(replace(backend, next_hop=with_mac(backend.next_hop, mac)))
    return replace(service, backends=tuple(backends))
