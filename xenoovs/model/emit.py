"""Writes a Balancer as the tree of a config in normal form, with every default, and the tree as YAML or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from xenoovs.model.address import Family
from xenoovs.model.balancer import Announce, Backend, Balancer, KeyField, Service, usual_positions
from xenoovs.model.form import form_of
from xenoovs.model.next_hop import UNCHANGED, Tunneled, l4_port_of, mac_of, vlan_of
from xenoovs.model.schema import SWITCH, TUNNEL, BackendForm, MatchForm, ServiceForm
from xenoovs.model.values import MatchField, Number, Value, parse_plain_scalar
from xenoovs.regex import ASCII, regex

Tree = dict[str, Value]

# Text of these characters is one plain scalar anywhere; a colon at the end is not, between the brackets of a list.
_PLAIN = regex(r"[A-Za-z0-9_.]([A-Za-z0-9_.:+@~%^-]*[A-Za-z0-9_.+@~%^-])?", ASCII)


def render_config(balancer: Balancer) -> str:
    """Return YAML that parses to an equal Balancer. Raises ValueError for what no config can express: weights or
    tolerances without a finite decimal form, and a service without VIPs for both families."""
    return "\n".join(_block(config_tree(balancer))) + "\n"


def _block(tree: Mapping[str, Value]) -> Iterator[str]:
    """Yield the lines of a mapping. Servers and hosts are one line each, and so are short mappings."""
    for key, value in tree.items():
        if isinstance(value, dict) and key in ("switch", "health"):
            yield f"{key}:"
            yield from (f"  {line}" for line in _block(value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{key}:"
            for item in value:
                lines = iter([render_flow(item)] if key in ("backends", "remotes") else _block(item))  # type: ignore[arg-type]
                yield f"  - {next(lines)}"
                yield from (f"    {line}" for line in lines)
        else:
            yield f"{key}: {render_flow(value)}"


def render_flow(value: Value) -> str:
    """Return a tree as one line of YAML."""
    # The order is that of how often they come: a large config has a hundred thousand values.
    if isinstance(value, str):
        return render_text(value)
    if isinstance(value, dict):
        return f"{{{', '.join([f'{key}: {render_flow(each)}' for key, each in value.items()])}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(render_flow, value))}]"
    return render_json(value)


def render_json(value: Value) -> str:
    """Return a tree as one line of JSON; numbers keep all their digits."""
    match value:
        case Number():
            return value.text
        case int() if not isinstance(value, bool):
            return str(value)
        case dict():
            return f"{{{','.join(f'{render_json(key)}:{render_json(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{','.join(map(render_json, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def config_tree(balancer: Balancer) -> Tree:
    """Return the tree of the whole config. Raises what `render_config` raises."""
    tree: Tree = {"version": 1, "switch": SWITCH.write(balancer.uplinks)}
    if balancer.announce is not None:
        tree["announce"] = form_of(Announce).write(balancer.announce)
    if tunnels := [*map(TUNNEL.write, balancer.switch_tunnels), *map(TUNNEL.write, balancer.tunnels)]:
        tree["tunnels"] = list(tunnels)
    return {**tree, "services": [service_tree(service) for service in balancer.services]}


def service_tree(service: Service) -> Tree:
    """Return a service as its entry in `services`. Raises what `render_config` raises."""
    claim = service.claim
    written: Tree = form_of(ServiceForm).write(
        service,
        vip=claim.vips,
        protocol=claim.protocol,
        ports=claim.ports,
        vlan=claim.vlan,
        match=MatchForm(field=MatchField(_field(service)), bits=_bits(service)),
        rewrite_source_mac=service.source_mac or False,
        announce=service.announced,
        **dict.fromkeys(("weights", "backends")),  # the model has others of these names
    )
    return {**written, "backends": [*map(_backend, service.backends)]}


def _backend(backend: Backend) -> Tree:
    hop = backend.next_hop
    end = hop if isinstance(hop, Tunneled) else None
    written: Tree = form_of(BackendForm).write(
        backend,
        mac=None if backend.follows else mac_of(hop) or UNCHANGED,
        egress=hop.port if end is None else end.tunnel,
        remote=end and end.remote,
        key=end and end.key,
        port=l4_port_of(hop),
        vlan=vlan_of(hop),
        backup=backend.is_backup,
    )
    return written


def _field(service: Service) -> str:
    families, field = service.claim.families, service.key.field
    if field is KeyField.SOURCE_ADDRESS and len(families) == 1:
        return "ipv4_source" if Family.IPV4 in families else "ipv6_source"
    if not service.claim.vips and families != {Family.IPV4}:
        both = " and ".join(sorted(family.name for family in families))
        raise ValueError(f"no config can say: every packet of {both} by its {field.label}; make two services")
    return field.value


def _bits(service: Service) -> str | int | tuple[int, ...]:
    key = service.key
    if key.positions is None or key.positions == usual_positions(key.field, service.claim.protocol):
        return "auto" if key.width is None else key.width
    return key.positions


def render_text(text: str) -> str:
    """Return text as YAML, without quotes if it is still text then."""
    is_plain = _PLAIN.fullmatch(text) and parse_plain_scalar(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)
