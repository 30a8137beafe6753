"""Which probes a config asks for: one for one backend, however many services use it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from ipaddress import IPv4Address
from typing import Protocol, assert_never

from xenoovs.agent.probe.result import ProbeResult
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
from xenoovs.model.address import IPAddress
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.drain import DrainMode
from xenoovs.model.health import AllDown, Health, ProbeKind
from xenoovs.model.next_hop import mac_of
from xenoovs.model.service import Service


class Probe(Protocol):
    """Asks once. Never raises for what the backend or the network does; always done soon after `timeout_s`."""

    def __call__(self, target: Target, *, timeout_s: float) -> Awaitable[ProbeResult]: ...


@dataclass(frozen=True, slots=True)
class Check:
    """One backend that is asked, and how its results are judged. `health`: without what concerns several backends."""

    target: Target
    health: Health


@dataclass(frozen=True, slots=True)
class Use:
    """A check, and one backend of one service that depends on it."""

    service: Service
    backend: Backend
    check: Check


def uses_of(balancer: Balancer) -> Iterator[Use]:
    """Every backend whose service has a health check and that has a weight or, by a drain, may still have clients."""
    for service in balancer.services:
        if service.health is not None:
            for backend in service.backends:
                if backend.weight or service.drain.mode is DrainMode.PIN:
                    yield Use(service, backend, _check(service, backend, service.health))


def _check(service: Service, backend: Backend, health: Health) -> Check:
    # ARP can ask for the VIP, and a program asks as it likes.
    vips = (vip for vip in service.claim.vips if vip.version == 4)
    address = backend.address or next(vips, IPv4Address(0))
    own = replace(health, max_down=Fraction(1), on_all_down=AllDown.KEEP, ramp_ms=None)
    return Check(_target(backend, address, health), own)


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
