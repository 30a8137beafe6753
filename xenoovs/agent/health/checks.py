"""Which backends are probed, and how: one check for one backend, however many services use it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import IPv4Address
from typing import assert_never

from xenoovs.agent.health.backend import Check
from xenoovs.agent.probe.target import (
    ArpTarget,
    DnsTarget,
    ExecTarget,
    HttpTarget,
    IcmpTarget,
    Target,
    TcpTarget,
    Tls,
    UdpTarget,
    Via,
)
from xenoovs.agent.snapshot import Override
from xenoovs.decision.desired import BackendName
from xenoovs.model.address import IPAddress
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.drain import DrainMode
from xenoovs.model.health import AllDown, Health, ProbeKind
from xenoovs.model.next_hop import mac_of
from xenoovs.model.service import Service


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a config.

    Attributes:
        backends: The backends that depend on each check.
        by_backend: The check of each backend.
    """

    backends: Mapping[Check, tuple[BackendName, ...]] = field(default_factory=dict)
    by_backend: Mapping[BackendName, Check] = field(default_factory=dict)


def checks_of(balancer: Balancer, overrides: Iterable[Override]) -> Checks:
    """Return the checks of all backends that have a weight, by config or operator, or may still have clients.

    A backend that an operator drained is probed as before, so that it is known whether it may come back.
    """
    by_operator, by_backend, backends = raised(overrides), dict[BackendName, Check](), dict[Check, list[BackendName]]()
    for service in balancer.services:
        if service.health is None:
            continue
        # A check is shared by services that differ in these.
        health = replace(service.health, max_down=Fraction(1), on_all_down=AllDown.KEEP, ramp_ms=None)
        for backend in service.backends:
            name = (service.name, backend.name)
            if backend.weight or name in by_operator or service.drain.mode is DrainMode.PIN:
                by_backend[name] = check = _check(service, backend, health)
                backends.setdefault(check, []).append(name)
    return Checks({check: tuple(names) for check, names in backends.items()}, by_backend)


def raised(overrides: Iterable[Override]) -> frozenset[BackendName]:
    """Return the backends to which operators gave a weight above 0: they are probed whatever the config says."""
    return frozenset((override.service, override.backend) for override in overrides if override.weight)


def _check(service: Service, backend: Backend, health: Health) -> Check:
    # ARP can ask for the VIP, and a program asks as it likes.
    vips = (vip for vip in service.claim.vips if vip.version == 4)
    address = backend.address or next(vips, IPv4Address(0))
    return Check(_target(backend, address, health), health)


def _target(backend: Backend, address: IPAddress, health: Health) -> Target:
    """What the config has checked: ports, the device and the IP version for ARP."""
    via, port = Via(health.interface, health.netns), health.port or 0
    match health.probe:
        case ProbeKind.ICMP:
            return IcmpTarget(address, via)
        case ProbeKind.ARP:
            return ArpTarget(mac_of(backend.next_hop), health.interface or "", IPv4Address(str(address)), health.netns)
        case ProbeKind.TCP:
            return TcpTarget(address, port, via=via)
        case ProbeKind.HTTP:
            return _http(address, port, health, via=via)
        case ProbeKind.HTTPS:
            tls = Tls(not health.insecure, health.ca_file, health.server_name)
            return replace(_http(address, port, health, via=via), tls=tls)
        case ProbeKind.EXEC:
            return ExecTarget(health.command, health.netns, _facts_of(backend, health))
        case ProbeKind.DNS:
            return DnsTarget(address, health.query, port=port, via=via)
        case ProbeKind.UDP:
            return UdpTarget(address, port, health.send.encode(), health.expect.encode(), via)
        case ProbeKind.NONE:
            raise ValueError("a service without a probe has no health check")
        case _:
            assert_never(health.probe)


def _http(address: IPAddress, port: int, health: Health, *, via: Via) -> HttpTarget:
    return HttpTarget(
        address, port, path=health.path, host=health.host, status=health.status, body=health.body.encode(), via=via
    )


def _facts_of(backend: Backend, health: Health) -> tuple[tuple[str, str], ...]:
    """What a program is told of the backend that it asks."""
    mac = None if backend.follows else mac_of(backend.next_hop)
    known = {"XENOOVS_ADDRESS": backend.address, "XENOOVS_MAC": mac, "XENOOVS_PORT": health.port}
    return tuple((name, str(value)) for name, value in known.items() if value is not None)
