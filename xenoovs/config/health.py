"""The health check of a service: its own keys over those of the file, defaults for the rest, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xenoovs.config.health_schema import HealthConfig
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import Lost
from xenoovs.config.schema import ServiceConfig
from xenoovs.config.tree import Path
from xenoovs.model.health import Health, ProbeKind

_TIMES = {"interval": "interval_ms", "fast_interval": "fast_interval_ms", "timeout": "timeout_ms", "ramp": "ramp_ms"}
# What follows from `interval` alone: detection within seconds, a probe that ends before the next one starts.
_FAST_PART, _TIMEOUT_PART = 4, 2
_NO_QUERY = Health(ProbeKind.DNS).query


def health_of(service: ServiceConfig, defaults: HealthConfig) -> Health | None:
    """`defaults`: what the file says for all services. None: no check is made."""
    given = _given(service.health, defaults)
    probe: ProbeKind = given.pop("probe", ProbeKind.NONE)
    if probe is ProbeKind.NONE:
        return None
    port = given.pop("port", None) or _first_port(service)
    if "interval_ms" in given:
        given.setdefault("fast_interval_ms", max(1, given["interval_ms"] // _FAST_PART))
        given.setdefault("timeout_ms", max(1, given["interval_ms"] // _TIMEOUT_PART))
    return Health(probe, port if probe.has_port or probe is ProbeKind.EXEC else None, **given)


def check_health(service: ServiceConfig, path: Path, *, defaults: HealthConfig, lost: Lost) -> Iterator[Remark]:
    """Keys against each other, and backends that cannot be asked. `lost`: not to be judged."""
    if lost.has(("health", "probe")):
        return
    health = health_of(service, defaults)
    here = (*path, "health")
    if health is None:
        if service.health.model_fields_set and "probe" not in _given(service.health, defaults):
            yield Remark(here, "no probe is chosen; add `probe: tcp` or another one, or leave the keys out")
        return
    if not lost.has(*(("health", name) for name in _TIMES)):
        yield from _check_times(health, here)
    if health.probe.has_port and health.port is None and not lost.has(("health", "port"), ("ports",)):
        yield Remark(here, f"probe {health.probe.value} needs a port and the service has none; add `port:`")
    if health.probe is ProbeKind.ARP and health.interface is None and not lost.has(("health", "interface")):
        yield Remark(here, "probe arp needs the device to ask by; add `interface:`")
    if health.probe is ProbeKind.DNS and health.query == _NO_QUERY and not lost.has(("health", "query")):
        yield Remark(here, "probe dns needs a name to ask for; add `query: example.org`")
    if health.probe is ProbeKind.EXEC and not health.command and not lost.has(("health", "command")):
        yield Remark(here, "probe exec needs a program; add `command: [/usr/bin/check]`")
    if health.insecure and health.ca_file is not None:
        yield Remark((*here, "insecure"), "any certificate will do, so ca_file has no use; leave out one of them")
    yield from _check_addresses(service, path, health.probe, lost)


def _check_times(health: Health, here: Path) -> Iterator[Remark]:
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


def _check_addresses(service: ServiceConfig, path: Path, probe: ProbeKind, lost: Lost) -> Iterator[Remark]:
    if probe is ProbeKind.EXEC or lost.has(("vip",)) or ("backends",) in lost.paths:
        return
    unknown = lost.backends("mac", "address")
    asks_vip = probe is ProbeKind.ARP and any(vip.version == 4 for vip in service.vip)
    for index, backend in enumerate(service.backends):
        here = (*path, "backends", index)
        if index in unknown:
            continue
        if probe is ProbeKind.ARP and backend.mac is None:
            yield Remark(here, "probe arp asks whether a MAC answers; add `mac:`, or use an icmp probe")
        if backend.address is None and not asks_vip:
            yield Remark(here, f"probe {probe.value} needs the server's own address; add `address:`")
        elif backend.address is not None and backend.address.version == 6 and probe is ProbeKind.ARP:
            yield Remark((*here, "address"), f"{backend.address} is IPv6, which has no ARP; use an icmp probe")


def _given(own: HealthConfig, defaults: HealthConfig) -> dict[str, Any]:
    """The keys that are written, by their names in the model."""
    found = ((name, getattr(own, name), getattr(defaults, name)) for name in HealthConfig.model_fields)
    values = ((name, mine if mine is not None else theirs) for name, mine, theirs in found)
    return {_TIMES.get(name, name): value for name, value in values if value is not None}


def _first_port(service: ServiceConfig) -> int | None:
    return next((ports.first for ports in service.ports if ports.first), None)
