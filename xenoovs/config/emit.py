"""Renders a Balancer as a config in normal form: every default written out, one way to write each value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Address
from typing import Any

from xenoovs.model.address import Family
from xenoovs.model.balancer import (
    NO_QUERY,
    AgentCheck,
    Announce,
    Backend,
    Balancer,
    Claim,
    Drain,
    Health,
    KeyField,
    Nat,
    Notify,
    Returns,
    Service,
    usual_positions,
)
from xenoovs.model.next_hop import Tunneled, l4_port_of, mac_and_port
from xenoovs.model.switch_tunnel import Ipsec, SwitchTunnel
from xenoovs.model.tunnel import HostTunnel, PathProbe, Paths, PathSelector
from xenoovs.model.values import parse_plain_scalar

# Text of these characters is one plain scalar anywhere; a colon at the end is not, between the brackets of a list.
_PLAIN = re.compile(r"[A-Za-z0-9_.]([A-Za-z0-9_.:+@~^-]*[A-Za-z0-9_.+@~^-])?", re.ASCII)


def render_config(balancer: Balancer) -> str:
    """Return YAML that parses to an equal Balancer.

    Raises ValueError for what no config can express: weights or tolerances without a finite decimal form, and a service
    without VIPs for both families.
    """
    return "\n".join(_lines(balancer)) + "\n"


def _lines(balancer: Balancer) -> Iterator[str]:
    uplinks = balancer.uplinks
    yield "version: 1"
    yield "switch:"
    yield f"  bridge: {render_text(uplinks.bridge)}"
    if uplinks.datapath_id is not None:
        yield f'  datapath_id: "{uplinks.datapath_id:016x}"'
    yield f"  ingress: {_list(map(render_text, uplinks.ingress))}"
    yield f"  egress: {render_text(uplinks.egress)}"
    yield f"  other_traffic: {uplinks.other_traffic.value}"
    if balancer.announce is not None:
        yield f"announce: {json.dumps(settings_of(balancer.announce))}"
    if balancer.tunnels or balancer.switch_tunnels:
        yield "tunnels:"
    for lines in (*map(_switch_tunnel, balancer.switch_tunnels), *map(render_tunnel, balancer.tunnels)):
        for index, line in enumerate(lines):
            yield f"  {'-' if index == 0 else ' '} {line}"
    yield "services:" if balancer.services else "services: []"
    for service in balancer.services:
        for index, line in enumerate(render_service(service)):
            yield f"  {'-' if index == 0 else ' '} {line}"


def _switch_tunnel(tunnel: SwitchTunnel) -> Iterator[str]:
    yield f"name: {render_text(tunnel.name)}"
    yield f"type: {tunnel.type.value}"
    yield f"local: {tunnel.local}"
    if tunnel.key is not None:
        yield f"key: {tunnel.key}"
    yield f"ports: {tunnel.ports.value}"
    if tunnel.dst_port:
        yield f"dst_port: {tunnel.dst_port}"
    if tunnel.ipsec is not None:
        yield f"ipsec: {json.dumps(settings_of(tunnel.ipsec))}"


def render_tunnel(tunnel: HostTunnel) -> Iterator[str]:
    """Yield the lines of a tunnel."""
    yield f"name: {render_text(tunnel.name)}"
    yield f"type: {tunnel.type.value}"
    yield f"local: {tunnel.local}"
    yield f"host_port: {render_text(tunnel.host_port)}"
    yield f"dst_port: {tunnel.dst_port}"
    if tunnel.source_ports is not None:
        yield f"source_ports: {tunnel.source_ports}"
    yield "remotes:"
    for remote in tunnel.remotes:
        yield f"  - {{name: {render_text(remote.name)}, address: {remote.address}{_aliases(remote.aliases)}}}"
    if tunnel.aliases:
        yield f"aliases: {_list(map(str, tunnel.aliases))}"
    yield f"paths: {{{', '.join(_paths(tunnel.paths))}}}"
    yield f"blocks: {tunnel.blocks}"
    if tunnel.probe is not None:
        yield f"probe: {{{', '.join(_probe(tunnel.probe))}}}"
    yield f"margin: {'auto' if tunnel.margin_us is None else f'{tunnel.margin_us}us'}"
    yield f"reflect: {tunnel.reflect.value}"


def _aliases(aliases: tuple[IPv4Address, ...]) -> str:
    return f", aliases: {_list(map(str, aliases))}" if aliases else ""


def _paths(paths: Paths) -> Iterator[str]:
    yield f"by: {paths.by.value}"
    if paths.by is PathSelector.SOURCE_PORT:
        yield f"count: {paths.count}"
        yield f"discover: {paths.discover.value}"
    if paths.ports:
        yield f"ports: {_list(map(str, paths.ports))}"
    if paths.uplinks:
        yield f"uplinks: {_list(map(render_text, paths.uplinks))}"


def _probe(probe: PathProbe) -> Iterator[str]:
    yield f"port: {render_text(probe.port)}"
    yield f"interval: {_time(probe.interval_ms)}"
    yield f"timeout: {_time(probe.timeout_ms)}"
    yield f"tos: {probe.tos}"
    yield f'gateway: "{probe.gateway}"' if probe.gateway else "gateway: auto"


def _time(milliseconds: int) -> str:
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def render_service(service: Service) -> Iterator[str]:
    """Yield the lines of a service. Raises ValueError, as `render_config`."""
    yield f"name: {render_text(service.name)}"
    yield from _claim(service.claim)
    if service.vip_mac is not None:
        yield f"vip_mac: {service.vip_mac}"
    if service.nat is not None:
        yield "mode: nat"
        yield from _nat(service.nat)
    yield f"match: {{field: {_field(service)}, bits: {_bits(service)}}}"
    yield f"tolerance: {render_decimal(service.tolerance * 100)}%"
    if service.max_flows is not None:
        yield f"max_flows: {service.max_flows}"
    yield f"rewrite_source_mac: {service.source_mac or 'false'}"
    yield f"churn: {service.churn.value}"
    if service.health is not None:
        yield "health:"
        yield from (f"  {key}: {json.dumps(value)}" for key, value in settings_of(service.health).items())
    yield f"drain: {json.dumps(settings_of(service.drain))}"
    if service.notify is not None:
        yield f"notify: {json.dumps(settings_of(service.notify))}"
    if not service.announced:
        yield "announce: false"
    if service.returns is not Returns.DIRECT:
        yield f"return: {service.returns.value}"
    if service.agent_check is not None:
        yield f"agent_check: {json.dumps(settings_of(service.agent_check))}"
    yield "backends:"
    yield from map(_backend, service.backends)


def _nat(nat: Nat) -> Iterator[str]:
    mac = () if nat.return_mac is None else (f"return_mac: {nat.return_mac}",)
    clients = (f"clients: {_list(map(str, nat.clients))}",) if nat.clients else ()
    if mac or clients:
        yield f"nat: {{{', '.join((*mac, *clients))}}}"


def _claim(claim: Claim) -> Iterator[str]:
    if claim.vips:
        yield f"vip: {_list(map(render_text, map(str, claim.vips)))}"
    if claim.protocol is not None:
        yield f"protocol: {claim.protocol.value}"
    if claim.ports:
        yield f"ports: {_list(map(str, claim.ports))}"


def settings_of(
    part: Health | Drain | Notify | Announce | AgentCheck | Ipsec,
) -> dict[str, bool | int | str | list[str]]:
    """Return the keys of a part such as `health:` or `notify:` with their values, without those that have none."""
    values = ((field.name, getattr(part, field.name)) for field in fields(part))
    given = {name: value for name, value in values if value not in (None, ()) and (name, value) != ("query", NO_QUERY)}
    return {name.removesuffix("_ms"): _setting(value, is_time=name.endswith("_ms")) for name, value in given.items()}


def _setting(value: Any, *, is_time: bool) -> bool | int | str | list[str]:
    match value:
        case Enum():
            return str(value.value)
        case Fraction():
            return f"{render_decimal(value * 100)}%"
        case (int(first), int(last)):
            return f"{first}-{last}"
        case tuple():
            return list(value)
        case int() if is_time:
            return _time(value)
        case _:
            return value  # type: ignore[no-any-return]  # a number, text, true or false


def _backend(backend: Backend) -> str:
    address = "" if backend.address is None else f", address: {render_text(str(backend.address))}"
    backup = ", backup: true" if backend.is_backup else ""
    hop = backend.next_hop
    l4_port = l4_port_of(hop)
    port = "" if l4_port is None else f", port: {l4_port}"
    mac = "" if backend.follows else f"mac: {mac_and_port(hop)[0]}, "
    egress, remote = hop.port, ""
    if isinstance(hop, Tunneled):
        egress, remote = hop.tunnel, f", remote: {hop.remote}, key: {hop.key}"
    return (
        f"  - {{name: {render_text(backend.name)}, {mac}"
        f"weight: {render_decimal(backend.weight)}, egress: {render_text(egress)}{remote}{address}{port}{backup}}}"
    )


def _field(service: Service) -> str:
    families, field = service.claim.families, service.key.field
    if field is KeyField.SOURCE_ADDRESS and len(families) == 1:
        return "ipv4_source" if Family.IPV4 in families else "ipv6_source"
    if not service.claim.vips and families != {Family.IPV4}:
        both = " and ".join(sorted(family.name for family in families))
        raise ValueError(f"no config can say: every packet of {both} by its {field.label}; make two services")
    return field.value


def _bits(service: Service) -> str:
    key = service.key
    if key.positions is None or key.positions == usual_positions(key.field, service.claim.protocol):
        return "auto" if key.width is None else str(key.width)
    return _list(map(str, key.positions))


def _list(items: Iterator[str]) -> str:
    return f"[{', '.join(items)}]"


def render_text(text: str) -> str:
    """Return text as YAML, without quotes where it then still is text."""
    is_plain = _PLAIN.fullmatch(text) and parse_plain_scalar(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def render_decimal(value: Fraction) -> str:
    """Return the exact number: 5, 22.5. Raises ValueError for 1/3."""
    digits = next((digits for digits in range(12) if (value * 10**digits).denominator == 1), None)
    if digits is None:
        raise ValueError(f"{value} has no decimal form of at most 11 digits")
    if digits == 0:
        return str(value.numerator)
    whole, part = divmod(int(value * 10**digits), 10**digits)
    return f"{whole}.{part:0{digits}}"
