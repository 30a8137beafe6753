"""The model of a config, and the rules for what `xenoovs agent` does with one service."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from xenoovs.model.address import Mac
from xenoovs.model.balancer import (
    NO_QUERY,
    AgentCheck,
    Backend,
    Balancer,
    Drain,
    Health,
    Nat,
    Notify,
    ProbeKind,
    Service,
    ServiceMode,
)
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, NextHop, Translated, Unchanged
from xenoovs.model.schema import BackendForm, FileForm, Given, ServiceForm
from xenoovs.model.tunnel import HostTunnel
from xenoovs.model.tunnels import Tunnels, tunneled
from xenoovs.model.values import KeyPath, Remark

# The health check of a service: its own keys over those of the file, defaults for the rest, and what must hold.


# What follows from `interval` alone: detection within seconds, a probe that ends before the next one starts.
_FAST_PART, _TIMEOUT_PART = 4, 2


def _health(service: ServiceForm, defaults: Given) -> Health | None:
    """`defaults`: the check of the file for all services. None: no check is made."""
    given = {**defaults, **service.health}
    probe: ProbeKind = given.pop("probe", ProbeKind.NONE)
    if probe is ProbeKind.NONE:
        return None
    # Backends of NAT may have ports of their own (`balancer.probe_port`).
    port = given.pop("port", None) or (_first_port(service) if service.mode is ServiceMode.DSR else None)
    if "interval_ms" in given:
        given.setdefault("fast_interval_ms", max(1, given["interval_ms"] // _FAST_PART))
        given.setdefault("timeout_ms", max(1, given["interval_ms"] // _TIMEOUT_PART))
    return Health(probe, port if probe.has_port or probe is ProbeKind.EXEC else None, **given)


def check_health(
    service: ServiceForm, health: Health | None, path: KeyPath, *, defaults: Given, for_lab: bool
) -> Iterator[Remark]:
    """Keys against each other, and backends that cannot be asked."""
    here = (*path, "health")
    if health is None:
        if service.health and "probe" not in {**defaults, **service.health}:
            yield Remark(here, "no probe is chosen; add `probe: tcp` or another one, or leave the keys out")
        return
    yield from _check_times(health, here)
    has_port = health.port is not None or _first_port(service) is not None
    if health.probe.has_port and not has_port:
        yield Remark(here, f"probe {health.probe.value} needs a port and the service has none; add `port:`")
    if health.probe is ProbeKind.ARP and health.interface is None and not for_lab:
        yield Remark(here, "probe arp needs the device to ask by; add `interface:`")
    if health.probe is ProbeKind.DNS and health.query == NO_QUERY:
        yield Remark(here, "probe dns needs a name to ask for; add `query: example.org`")
    if health.probe is ProbeKind.EXEC and not health.command:
        yield Remark(here, "probe exec needs a program; add `command: [/usr/bin/check]`")
    if health.insecure and health.ca_file is not None:
        yield Remark((*here, "insecure"), "any certificate will do, so ca_file has no use; leave out one of them")
    yield from _check_addresses(service, path, health.probe, for_lab=for_lab)


def _check_times(health: Health, here: KeyPath) -> Iterator[Remark]:
    if health.timeout_ms > health.interval_ms:
        yield Remark(
            (*here, "timeout"),
            f"{health.timeout_ms} ms are longer than the interval of {health.interval_ms} ms; "
            "a probe must end before the next one starts",
        )
    if health.fast_interval_ms > health.interval_ms:
        yield Remark(
            (*here, "fast_interval"),
            f"{health.fast_interval_ms} ms are longer than the interval of {health.interval_ms} ms",
        )


def _check_addresses(service: ServiceForm, path: KeyPath, probe: ProbeKind, *, for_lab: bool) -> Iterator[Remark]:
    if probe is ProbeKind.EXEC:
        return
    needs_address = not for_lab and not (probe is ProbeKind.ARP and any(vip.version == 4 for vip in service.vip))
    for index, backend in enumerate(service.backends):
        here = (*path, "backends", index)
        if probe is ProbeKind.ARP and not isinstance(backend.mac, Mac):
            yield Remark(here, "probe arp asks whether a MAC answers; add `mac:`, or use an icmp probe")
        if backend.address is None and needs_address:
            yield Remark(here, f"probe {probe.value} needs the server's own address; add `address:`")
        elif backend.address is not None and backend.address.version == 6 and probe is ProbeKind.ARP:
            yield Remark((*here, "address"), f"{backend.address} is IPv6, which has no ARP; use an icmp probe")


def check_agent(service: ServiceForm, found: AgentCheck | None, path: KeyPath, *, for_lab: bool) -> Iterator[Remark]:
    """An agent without a port, and servers without the address at which it listens."""
    if found is None:
        if service.agent_check:
            yield Remark((*path, "agent_check"), "the agent has no port; add `port: 9707`")
        return
    if found.timeout_ms > found.interval_ms:
        yield Remark(
            (*path, "agent_check"),
            f"the timeout of {found.timeout_ms} ms is longer than the interval of {found.interval_ms} ms; a request "
            "must end before the next one starts",
        )
    if for_lab:
        return
    for index, backend in enumerate(service.backends):
        if backend.address is None:
            yield Remark((*path, "backends", index), "agent_check needs the server's own address; add `address:`")


def _first_port(service: ServiceForm) -> int | None:
    return next((ports.first for ports in service.ports if ports.first), None)


def build_balancer(config: FileForm) -> Balancer:
    """Return the model of a config whose values are right, each by itself."""
    return Balancer(
        config.switch,
        tuple([_service(service, config, config.switch_tunnels) for service in config.services]),
        config.announce,
        tuple(tunnel for tunnel in config.tunnels if isinstance(tunnel, HostTunnel)),
        switch_tunnels=tuple(config.switch_tunnels.values()),
    )


def _service(service: ServiceForm, config: FileForm, tunnels: Tunnels) -> Service:
    egress, notify = config.switch.egress, {**config.notify, **service.notify}
    asked = {**config.agent_check, **service.agent_check}
    return Service(
        name=service.name,
        claim=service.claim,
        backends=tuple([_backend(backend, service, egress, tunnels) for backend in service.backends]),
        key=service.key,
        tolerance=service.tolerance,
        max_flows=service.max_flows,
        vip_mac=service.vip_mac,
        source_mac=service.source_mac,
        churn=service.churn,
        health=_health(service, config.health),
        drain=Drain(**{**config.drain, **service.drain}),
        notify=Notify(**notify) if "command" in notify else None,
        announced=service.announce,
        agent_check=AgentCheck(**asked) if "port" in asked else None,
        nat=None if service.mode is ServiceMode.DSR else service.nat or Nat(),
        returns=service.returns,
    )


def _backend(backend: BackendForm, service: ServiceForm, default_egress: str, tunnels: Tunnels) -> Backend:
    return Backend(
        backend.name,
        tunneled(backend, tunnels) or _next_hop(backend, service, backend.egress or default_egress),
        backend.weight,
        backend.address,
        follows=backend.mac is None,
        is_backup=backend.backup,
    )


def _next_hop(backend: BackendForm, service: ServiceForm, port: str) -> NextHop:
    # Frames that have the tag already are not written, so that their priority stays unmatched.
    vlan = None if backend.vlan == service.vlan else backend.vlan
    if backend.mac == "unchanged":
        return Unchanged(port, vlan)
    mac = backend.mac or UNKNOWN_MAC
    if service.mode is ServiceMode.NAT and isinstance(backend.address, IPv4Address):
        return Translated(mac, port, backend.address, backend.port, vlan)
    return Direct(mac, port, vlan)
