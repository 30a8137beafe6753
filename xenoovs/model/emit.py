"""A Balancer as the tree of a config in normal form, every default written out, and the tree as YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from fractions import Fraction
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
from xenoovs.model.values import Number, Value, parse_plain_scalar

Tree = dict[str, Value]

# Text of these characters is one plain scalar anywhere; a colon at the end is not, between the brackets of a list.
_PLAIN = re.compile(r"[A-Za-z0-9_.]([A-Za-z0-9_.:+@~%^-]*[A-Za-z0-9_.+@~%^-])?", re.ASCII)


def render_config(balancer: Balancer) -> str:
    """Return YAML that parses to an equal Balancer.

    Raises ValueError for what no config can express: weights or tolerances without a finite decimal form, and a service
    without VIPs for both families.
    """
    return "\n".join(_block(_config(balancer))) + "\n"


def _block(tree: Mapping[str, Value]) -> Iterator[str]:
    """Yield the lines of a mapping. Servers and hosts are one line each, and so are short mappings."""
    for key, value in tree.items():
        if isinstance(value, dict) and key in ("switch", "health"):
            yield f"{key}:"
            yield from (f"  {line}" for line in _block(value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{key}:"
            for item in value:
                lines = iter([_flow(item)] if key in ("backends", "remotes") else _block(item))  # type: ignore[arg-type]
                yield f"  - {next(lines)}"
                yield from (f"    {line}" for line in lines)
        else:
            yield f"{key}: {_flow(value)}"


def _flow(value: Value) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{key}: {_flow(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case str():
            return render_text(value)
        case _:
            return render_json(value)


def render_json(value: Value) -> str:
    """Return a tree as one line of JSON; numbers keep all their digits."""
    match value:
        case Number():
            return value.text
        case dict():
            return f"{{{','.join(f'{render_json(key)}:{render_json(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{','.join(map(render_json, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _config(balancer: Balancer) -> Tree:
    uplinks = balancer.uplinks
    switch = _given(
        bridge=uplinks.bridge,
        datapath_id=None if uplinks.datapath_id is None else f"{uplinks.datapath_id:016x}",
        ingress=list(uplinks.ingress),
        egress=uplinks.egress,
        other_traffic=uplinks.other_traffic.value,
    )
    tree: Tree = {"version": 1, "switch": switch}
    if balancer.announce is not None:
        tree["announce"] = settings_of(balancer.announce)
    if tunnels := [*map(_switch_tunnel, balancer.switch_tunnels), *map(tunnel_tree, balancer.tunnels)]:
        tree["tunnels"] = list(tunnels)
    return {**tree, "services": [service_tree(service) for service in balancer.services]}


def _given(**values: Value) -> dict[str, Value]:
    """Return the keys that have a value."""
    return {key: value for key, value in values.items() if value is not None}


def _switch_tunnel(tunnel: SwitchTunnel) -> Tree:
    return _given(
        name=tunnel.name,
        type=tunnel.type.value,
        local=str(tunnel.local),
        key=tunnel.key,
        ports=tunnel.ports.value,
        dst_port=tunnel.dst_port or None,
        ipsec=None if tunnel.ipsec is None else settings_of(tunnel.ipsec),
    )


def tunnel_tree(tunnel: HostTunnel) -> Tree:
    """Return a tunnel of a host as its entry in `tunnels`."""
    return _given(
        name=tunnel.name,
        type=tunnel.type.value,
        local=str(tunnel.local),
        host_port=tunnel.host_port,
        dst_port=tunnel.dst_port,
        source_ports=None if tunnel.source_ports is None else str(tunnel.source_ports),
        remotes=[
            _given(name=remote.name, address=str(remote.address), aliases=[*map(str, remote.aliases)] or None)
            for remote in tunnel.remotes
        ],
        aliases=[*map(str, tunnel.aliases)] or None,
        paths=_paths(tunnel.paths),
        blocks=tunnel.blocks,
        probe=None if tunnel.probe is None else _probe(tunnel.probe),
        margin="auto" if tunnel.margin_us is None else f"{tunnel.margin_us}us",
        reflect=tunnel.reflect.value,
    )


def _paths(paths: Paths) -> Tree:
    by_port = paths.by is PathSelector.SOURCE_PORT
    return _given(
        by=paths.by.value,
        count=paths.count if by_port else None,
        discover=paths.discover.value if by_port else None,
        ports=[*paths.ports] or None,
        uplinks=[*paths.uplinks] or None,
    )


def _probe(probe: PathProbe) -> Tree:
    return {
        "port": probe.port,
        "interval": _time(probe.interval_ms),
        "timeout": _time(probe.timeout_ms),
        "tos": probe.tos,
        "gateway": str(probe.gateway) if probe.gateway else "auto",
    }


def _time(milliseconds: int) -> str:
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def service_tree(service: Service) -> Tree:
    """Return a service as its entry in `services`. Raises ValueError, as `render_config`."""
    tree = {"name": service.name, **_claim(service.claim)}
    if service.vip_mac is not None:
        tree["vip_mac"] = str(service.vip_mac)
    if service.nat is not None:
        tree |= {"mode": "nat", **_nat(service.nat)}
    tree["match"] = {"field": _field(service), "bits": _bits(service)}
    tree["tolerance"] = f"{render_decimal(service.tolerance * 100)}%"
    if service.max_flows is not None:
        tree["max_flows"] = service.max_flows
    tree["rewrite_source_mac"] = False if service.source_mac is None else str(service.source_mac)
    tree["churn"] = service.churn.value
    if service.health is not None:
        tree["health"] = settings_of(service.health)
    tree["drain"] = settings_of(service.drain)
    if service.notify is not None:
        tree["notify"] = settings_of(service.notify)
    if not service.announced:
        tree["announce"] = False
    if service.returns is not Returns.DIRECT:
        tree["return"] = service.returns.value
    if service.agent_check is not None:
        tree["agent_check"] = settings_of(service.agent_check)
    return {**tree, "backends": [_backend(backend) for backend in service.backends]}


def _nat(nat: Nat) -> Tree:
    given = _given(
        return_mac=None if nat.return_mac is None else str(nat.return_mac), clients=[*map(str, nat.clients)] or None
    )
    return {"nat": given} if given else {}


def _claim(claim: Claim) -> Tree:
    return _given(
        vip=[*map(str, claim.vips)] or None,
        protocol=None if claim.protocol is None else claim.protocol.value,
        ports=[parse_plain_scalar(str(ports)) for ports in claim.ports] or None,
    )


def settings_of(part: Health | Drain | Notify | Announce | AgentCheck | Ipsec) -> Tree:
    """Return the keys of a part such as `health:` or `notify:` with their values, without those that have none."""
    values = ((field.name, getattr(part, field.name)) for field in fields(part))
    given = {name: value for name, value in values if value not in (None, ()) and (name, value) != ("query", NO_QUERY)}
    return {name.removesuffix("_ms"): _setting(value, is_time=name.endswith("_ms")) for name, value in given.items()}


def _setting(value: Any, *, is_time: bool) -> Value:
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


def _backend(backend: Backend) -> Tree:
    hop = backend.next_hop
    end = hop if isinstance(hop, Tunneled) else None
    return _given(
        name=backend.name,
        mac=None if backend.follows else mac_and_port(hop)[0],
        weight=parse_plain_scalar(render_decimal(backend.weight)),
        egress=hop.port if end is None else end.tunnel,
        remote=None if end is None else str(end.remote),
        key=None if end is None else end.key,
        address=None if backend.address is None else str(backend.address),
        port=l4_port_of(hop),
        backup=backend.is_backup or None,
    )


def _field(service: Service) -> str:
    families, field = service.claim.families, service.key.field
    if field is KeyField.SOURCE_ADDRESS and len(families) == 1:
        return "ipv4_source" if Family.IPV4 in families else "ipv6_source"
    if not service.claim.vips and families != {Family.IPV4}:
        both = " and ".join(sorted(family.name for family in families))
        raise ValueError(f"no config can say: every packet of {both} by its {field.label}; make two services")
    return field.value


def _bits(service: Service) -> Value:
    key = service.key
    if key.positions is None or key.positions == usual_positions(key.field, service.claim.protocol):
        return "auto" if key.width is None else key.width
    return list(key.positions)


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
