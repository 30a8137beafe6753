"""A Balancer to the one normal form of its config: every default written out, one way to write each value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction

from xenoovs.config.values import parse_plain_scalar
from xenoovs.model.address import Family
from xenoovs.model.balancer import Backend, Balancer, Claim, Drain, Health, KeyField, Service, usual_positions

# Text of these characters is one plain scalar anywhere; a colon at the end is not, between the brackets of a list.
_PLAIN = re.compile(r"[A-Za-z0-9_.]([A-Za-z0-9_.:+@~^-]*[A-Za-z0-9_.+@~^-])?", re.ASCII)


def render_config(balancer: Balancer) -> str:
    """YAML that parses to an equal Balancer.

    Raises ValueError for what no config can say: weights or tolerances without a finite decimal form, and a service
    without VIPs for both families.
    """
    return "\n".join(_lines(balancer)) + "\n"


def _lines(balancer: Balancer) -> Iterator[str]:
    uplinks = balancer.uplinks
    yield "version: 1"
    yield "switch:"
    yield f"  bridge: {_text(uplinks.bridge)}"
    if uplinks.datapath_id is not None:
        yield f'  datapath_id: "{uplinks.datapath_id:016x}"'
    yield f"  ingress: {_list(map(_text, uplinks.ingress))}"
    yield f"  egress: {_text(uplinks.egress)}"
    yield f"  other_traffic: {uplinks.other_traffic.value}"
    yield "services:" if balancer.services else "services: []"
    for service in balancer.services:
        for index, line in enumerate(_service(service)):
            yield f"  {'-' if index == 0 else ' '} {line}"


def _service(service: Service) -> Iterator[str]:
    yield f"name: {_text(service.name)}"
    yield from _claim(service.claim)
    if service.vip_mac is not None:
        yield f"vip_mac: {service.vip_mac}"
    yield f"match: {{field: {_field(service)}, bits: {_bits(service)}}}"
    yield f"tolerance: {_decimal(service.tolerance * 100)}%"
    if service.max_flows is not None:
        yield f"max_flows: {service.max_flows}"
    yield f"rewrite_source_mac: {service.source_mac or 'false'}"
    yield f"churn: {service.churn.value}"
    if service.health is not None:
        yield "health:"
        yield from _health(service.health)
    yield f"drain: {_drain(service.drain)}"
    yield "backends:"
    yield from map(_backend, service.backends)


def _claim(claim: Claim) -> Iterator[str]:
    if claim.vips:
        yield f"vip: {_list(map(_text, map(str, claim.vips)))}"
    if claim.protocol is not None:
        yield f"protocol: {claim.protocol.value}"
    if claim.ports:
        yield f"ports: {_list(map(str, claim.ports))}"


def _health(health: Health) -> Iterator[str]:
    yield f"  probe: {health.probe.value}"
    if health.port is not None:
        yield f"  port: {health.port}"
    if health.interface is not None:
        yield f"  interface: {_text(health.interface)}"
    if health.netns is not None:
        yield f"  netns: {_text(health.netns)}"
    yield from (f"  {key}: {_quoted(getattr(health, key))}" for key in ("path", "query", "send", "expect"))
    yield from _http(health)
    if health.command:
        yield f"  command: {_list(map(_quoted, health.command))}"
    yield f"  interval: {health.interval_ms}ms"
    yield f"  fast_interval: {health.fast_interval_ms}ms"
    yield f"  timeout: {health.timeout_ms}ms"
    yield f"  rise: {health.rise}"
    yield f"  fall: {health.fall}"
    yield f"  jitter: {_decimal(health.jitter * 100)}%"
    if health.ramp_ms is not None:
        yield f"  ramp: {health.ramp_ms}ms"
    yield f"  initial: {health.initial.value}"
    yield f"  max_down: {_decimal(health.max_down * 100)}%"
    yield f"  on_all_down: {health.on_all_down.value}"


def _http(health: Health) -> Iterator[str]:
    first, last = health.status
    yield f"  status: {first}-{last}"
    yield f"  body: {_quoted(health.body)}"
    texts = ((key, getattr(health, key)) for key in ("host", "ca_file", "server_name"))
    yield from (f"  {key}: {_quoted(text)}" for key, text in texts if text is not None)
    if health.insecure:
        yield "  insecure: true"


def _drain(drain: Drain) -> str:
    return f"{{mode: {drain.mode.value}, timeout: {drain.timeout_ms}ms, rest: {drain.rest_ms}ms}}"


def _backend(backend: Backend) -> str:
    address = "" if backend.address is None else f", address: {_text(str(backend.address))}"
    hop = backend.next_hop
    mac = "" if backend.follows else f"mac: {hop.mac}, "
    return (
        f"  - {{name: {_text(backend.name)}, {mac}"
        f"weight: {_decimal(backend.weight)}, egress: {_text(hop.port)}{address}}}"
    )


def _field(service: Service) -> str:
    families, field = service.claim.families, service.key.field
    if field is KeyField.SOURCE_ADDRESS and len(families) == 1:
        return "ipv4_source" if Family.IPV4 in families else "ipv6_source"
    if not service.claim.vips and families != {Family.IPV4}:
        told = " and ".join(sorted(family.name for family in families))
        raise ValueError(f"no config can say: every packet of {told} by its {field.label}; make two services")
    return field.value


def _bits(service: Service) -> str:
    key = service.key
    if key.positions is None or key.positions == usual_positions(key.field, service.claim.protocol):
        return "auto" if key.width is None else str(key.width)
    return _list(map(str, key.positions))


def _list(items: Iterator[str]) -> str:
    return f"[{', '.join(items)}]"


def _text(text: str) -> str:
    """Without quotes where it then still is text. Names hold nothing that quotes would have to escape."""
    return text if _PLAIN.fullmatch(text) and parse_plain_scalar(text) == text else f'"{text}"'


def _quoted(text: str) -> str:
    """In double quotes, as JSON has them: YAML reads the same (YAML 1.2.2, 1.2)."""
    return json.dumps(text)


def _decimal(value: Fraction) -> str:
    """Exact: 5, 22.5. Raises ValueError for 1/3."""
    digits = next((digits for digits in range(12) if (value * 10**digits).denominator == 1), None)
    if digits is None:
        raise ValueError(f"{value} has no decimal form of at most 11 digits")
    if digits == 0:
        return str(value.numerator)
    whole, part = divmod(int(value * 10**digits), 10**digits)
    return f"{whole}.{part:0{digits}}"
