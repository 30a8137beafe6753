"""Services of a fleet: one text each in its store, and the config that they make with the file of one DPU.

The config of a fleet names ports; every DPU has its own. So a backend without `egress` is behind the port `egress` of
each DPU, and the file of a DPU may say which of its ports another name means: `switch: {fleet_ports: {hosts: pf0hpf}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from ipaddress import IPv4Address
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.errors import ConfigError, Finding, did_you_mean, first_names
from xenoovs.model.balancer import Backend, Balancer, ProbeKind, Service, Uplinks
from xenoovs.model.emit import render_json, service_tree
from xenoovs.model.form import Form, form_of, read
from xenoovs.model.include import ConfigPart, ConfigSources, JoinedConfig
from xenoovs.model.load import check_config, compose, compose_json, join_config
from xenoovs.model.next_hop import Tunneled
from xenoovs.model.schema import BackendForm, ServiceForm
from xenoovs.model.values import KeyPath, Positions, Value, port_name, show, split_site

FLEET_PORTS = "fleet_ports"
"""The key of `switch` in the file of a DPU."""

_FAILOVER = "failover"
_NEUTRAL_EGRESS = "egress"
NEUTRAL = f"version: 1\nswitch: {{bridge: fleet, ingress: [ingress], egress: {_NEUTRAL_EGRESS}}}\n"
"""The file of no DPU: for a controller, which decides about services and has no bridge."""

_NOT_STORED = ("agent_check", "notify")
"""What a DPU would do by itself, and no DPU of a fleet may: move clients, or run programs."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a fleet has a backend. `groups`: empty for all groups of its service. `weights`: by group."""

    groups: frozenset[str] = frozenset()
    weights: Mapping[str, Fraction] = field(default_factory=dict)

    def weight(self, backend: Backend, group: str) -> Fraction | None:
        """Return the weight on the DPUs of a group; None if they do not have the backend. `group`: empty: no group."""
        if group and self.groups and group not in self.groups:
            return None
        return self.weights.get(group, backend.weight)


@dataclass(frozen=True, slots=True)
class FleetServices:
    """The config of a fleet. `balancer`: as of an ordinary config, of which `switch` stands for the ports of every DPU.
    `groups`: by the name of a service, the names of the groups of DPUs that serve it; empty if all DPUs do.
    `placements`: by the names of a service and of a backend, for those that not all groups have alike."""

    balancer: Balancer
    groups: Mapping[str, frozenset[str]]
    placements: Mapping[str, Mapping[str, Placement]] = field(default_factory=dict)

    def weights(self, service: Service, group: str) -> dict[str, Fraction]:
        """Return the weights of the backends that the DPUs of a group have. `group`: as of `Placement.weight`."""
        if group and group not in self.groups[service.name]:
            return {}
        placed = self.placements.get(service.name, {})
        found = {each.name: placed.get(each.name, _ANYWHERE).weight(each, group) for each in service.backends}
        return {name: weight for name, weight in found.items() if weight is not None}


_ANYWHERE = Placement()


def sites_of(
    service: Service,
    groups: frozenset[str],
    placements: Mapping[str, Placement],
    overrides: Mapping[tuple[str, str], Fraction],
) -> Iterator[tuple[frozenset[str], Service]]:
    """Yield the service as the DPUs of some groups have it: a site is the groups with the same backends and weights.
    `placements`: by name of backend. `overrides`: weights by backend and group; the group is empty for all. That of a
    group goes first."""
    differing = {group for each in placements.values() for group in (*each.groups, *each.weights)}
    differing |= {group for _, group in overrides if group}
    sites = dict[tuple[Backend, ...], set[str]]()
    for group in sorted(groups) if differing else [""]:
        backends = list[Backend]()
        for backend in service.backends:
            weight = placements.get(backend.name, _ANYWHERE).weight(backend, group)
            if weight is not None:
                weight = overrides.get((backend.name, group), overrides.get((backend.name, ""), weight))
                backends.append(backend if weight == backend.weight else replace(backend, weight=weight))
        sites.setdefault(tuple(backends), set()).add(group)
    for found, of in sites.items():
        yield (
            groups if of == {""} else frozenset(of),
            service if found == service.backends else replace(service, backends=found),
        )


def parse_fleet(text: str | bytes, *, file: str) -> FleetServices:
    """Return the config of a fleet: an ordinary one whose services may have `groups`.

    Its tunnels need no `local`: each DPU has its own.

    `file`: its name in messages. Raises ConfigError: with all findings.
    """
    joined, findings = join_config(text, file=file), list[Finding]()
    root = joined.root
    taken = list[tuple[Value, frozenset[str], dict[str, Placement]]]()
    if isinstance(root, dict) and isinstance(listed := root.get("services"), list):
        taken = [_taken(each, ("services", index), joined, findings) for index, each in enumerate(listed)]
        root = {**root, "services": [tree for tree, _, _ in taken]}
    if isinstance(root, dict) and isinstance(tunnels := root.get("tunnels"), list):
        root = {**root, "tunnels": [_with_local(tunnel, index) for index, tunnel in enumerate(tunnels)]}
    try:
        balancer = check_config(replace(joined, root=root), groups=[groups for _, groups, _ in taken])
    except ConfigError as error:
        raise ConfigError([*findings, *error.findings]) from None
    named = [(service.name, *each[1:]) for service, each in zip(balancer.services, taken, strict=True)]
    placements = {name: placed for name, _, placed in named if placed}
    made = FleetServices(balancer, {name: groups for name, groups, _ in named}, placements)
    findings += _check_sites(made, joined)
    if findings:
        raise ConfigError(findings)
    return made


def _taken(
    service: Value, path: KeyPath, joined: JoinedConfig, findings: list[Finding]
) -> tuple[Value, frozenset[str], dict[str, Placement]]:
    """Return a service without the keys that only fleets have, and what these say; add mistakes to `findings`."""

    def own(tree: Value, form: Form, path: KeyPath) -> tuple[Value, dict[str, Any]]:
        values = dict[str, Any]()
        if not isinstance(tree, dict) or not (keys := form.refused.keys() & tree.keys()):
            return tree, values
        for key in sorted(keys):
            values[key], remarks = read(form.keys[key].parser, tree[key])
            for each in remarks:
                part, place = joined.locate((*path, key, *each.path))
                findings.append(part.finding(place, each.message))
        return {key: each for key, each in tree.items() if key not in keys}, values

    tree, values = own(service, form_of(ServiceForm), path)
    groups, placements = frozenset(values.get("groups") or ()), dict[str, Placement]()
    if isinstance(tree, dict) and isinstance(listed := tree.get("backends"), list):
        backends = [own(each, form_of(BackendForm), (*path, "backends", i)) for i, each in enumerate(listed)]
        tree = {**tree, "backends": [each for each, _ in backends]}
        placements = {
            str(each["name"]): Placement(frozenset(said.get("groups") or ()), said.get("group_weights") or {})
            for each, said in backends
            if said and isinstance(each, dict) and "name" in each
        }
    return tree, groups, placements


def _check_sites(made: FleetServices, joined: JoinedConfig) -> Iterator[Finding]:
    """Find groups of backends that their service lacks, and groups whose DPUs would have no backend with a weight."""
    for index, service in enumerate(made.balancer.services):
        part, path = joined.locate(("services", index))
        groups, placed = made.groups[service.name], made.placements.get(service.name, {})
        for number, backend in enumerate(service.backends if placed else ()):
            at = placed.get(backend.name, _ANYWHERE)
            for key, names, of in (("groups", at.groups, groups), ("group_weights", at.weights, at.groups or groups)):
                for group in sorted({*names} - of):
                    known = f"which has {first_names(sorted(of))}" if of else "which has none"
                    guess = did_you_mean(group, of, " (did you mean {}?)")
                    message = (
                        f"{group} is no group of {'the service' if of is groups else 'this backend'}, {known}{guess}"
                    )
                    yield part.finding((*path, "backends", number, key), message)
        for group in sorted(groups) if placed else ():
            weights = made.weights(service, group)
            if not any(weights.get(each.name) for each in service.backends if not each.is_backup):
                message = f"no backend has a weight on the DPUs of {group}; give at least one there a weight above 0"
                yield part.finding((*path, "backends"), message)


def _with_local(tunnel: Value, index: int) -> Value:
    """Return a tunnel with a `local` that no DPU has, if it lacks one: every DPU has its own."""
    if not isinstance(tunnel, dict) or "host_port" in tunnel:
        return tunnel
    return {"local": _no_address(index), **tunnel}


def _no_address(number: int) -> str:
    """Return an address that no host has, a different one for each number (RFC 6598, between provider and customer)."""
    return str(IPv4Address("100.127.255.255") - number)


def service_text(service: Service, switch: Uplinks) -> str:
    """Return the text of a service: one line of JSON in normal form, which `join` reads. `switch`: of the fleet:
    backends behind its `egress` name no port, and its `failover` is a key. Raises ValueError, as `render_config`."""
    tree = _shared(service_tree(service))
    for backend in tree["backends"]:
        if backend["egress"] == switch.egress:
            del backend["egress"]
    return render_json(tree if switch.failover is None else {**tree, _FAILOVER: switch.failover.value})


def neutral_service(service: Service, egress: str) -> Service:
    """Return a service as `read_services` reads it from its text. `egress`: that of the fleet."""
    health = None if service.health is not None and service.health.probe is ProbeKind.EXEC else service.health
    backends = list[Backend]()
    for backend in service.backends:
        hop = backend.next_hop
        port = hop.tunnel if isinstance(hop, Tunneled) else _NEUTRAL_EGRESS if hop.port == egress else hop.port
        backends.append(replace(backend, next_hop=replace(hop, port=port)))
    return replace(service, health=health, agent_check=None, notify=None, backends=tuple(backends))


def join(
    local: str | bytes, services: Mapping[str, str], *, file: str, sources: ConfigSources | None = None
) -> Balancer:
    """Return the config of one DPU. `local`: its file, with `switch` and without `services`. `services`: texts of
    `service_text`, by the names that messages use. `file`: the name of `local` in messages. `sources`: as of
    `parse_config`. Raises ConfigError: with all findings; those in a service name it as `service NAME of the fleet`."""
    parts = {name: _part(name, text) for name, text in services.items()}
    return _join(join_config(local, file=file, sources=sources), parts)


def _join(joined: JoinedConfig, services: Mapping[str, tuple[dict[str, Any], ConfigPart]]) -> Balancer:
    root = joined.root if isinstance(joined.root, dict) else {}
    for key, message in _NOT_LOCAL.items():
        if key in root:
            raise ConfigError([joined.main.finding((key,), message, at_key=True)])
    switch, ports = _without_ports(joined, root.get("switch"))
    # Before they are listed, as no config has this key of a service.
    agreed = [service.pop(_FAILOVER, None) for service, _ in services.values()]
    if None in agreed and isinstance(switch, dict) and _FAILOVER in switch:
        raise ConfigError([joined.main.finding(("switch", _FAILOVER), _NOT_OF_FLEET)])
    listed = [_with_ports(service, ports) for service, _ in services.values()]
    if findings := list(_lacking_tunnels(joined, root.get("tunnels"), dict(zip(services, listed, strict=True)))):
        raise ConfigError(findings)
    origins = [(part, 0) for _, part in services.values()]
    return check_config(replace(joined, root={**root, "switch": switch, "services": listed}, origins=origins))


def read_services(texts: Mapping[str, str]) -> dict[str, Service]:
    """Return services of texts by their names, with the file of no DPU: for a controller, which has no bridge. Raises
    ConfigError, as `join`."""
    if len({split_site(name)[0] for name in texts}) < len(texts):
        # No config has two sites of a service.
        return {key: each for name, text in texts.items() for key, each in read_services({name: text}).items()}
    parts = {name: _part(name, text) for name, text in texts.items()}
    tunnels = sorted({tunnel for service, _ in parts.values() for tunnel in _tunnels_of(service)})
    # Of all types GRE has the largest keys, and the type is not stored.
    listed = [{"name": name, "type": "gre", "local": _no_address(number)} for number, name in enumerate(tunnels)]
    neutral = join_config(NEUTRAL + f"tunnels: {json.dumps(listed)}\n", file="the fleet")
    return dict(zip(texts, _join(neutral, parts).services, strict=True))


def _tunnels_of(service: Value) -> set[str]:
    """Return the names of the tunnels that backends of a service are behind."""
    backends = service.get("backends") if isinstance(service, dict) else None
    listed = [each for each in backends if isinstance(each, dict)] if isinstance(backends, list) else []
    return {each["egress"] for each in listed if "remote" in each and isinstance(each.get("egress"), str)}  # type: ignore[misc]


def _lacking_tunnels(joined: JoinedConfig, tunnels: Value, services: Mapping[str, Value]) -> Iterator[Finding]:
    """Find the tunnels that backends of the fleet need and this DPU lacks."""
    listed = tunnels if isinstance(tunnels, list) else []
    present = [each.get("name") for each in listed if isinstance(each, dict)]
    users = dict[str, list[str]]()
    for service, tree in services.items():
        for name in sorted(each for each in _tunnels_of(tree) if each not in present):
            users.setdefault(name, []).append(service)
    for name, using in users.items():
        message = (
            f"this DPU has no tunnel {name}, needed by backends of {first_names(using, most=3)}; add it here "
            f"with its `local`, or map the name to one of its tunnels: `switch: {{{FLEET_PORTS}: {{{name}: ...}}}}`"
        )
        yield joined.main.finding(("tunnels",), message)


_NOT_LOCAL = {
    "services": "the services of a fleet come from its store; remove them here, and apply them with `xenoovs fleet "
    "apply`",
    "include": "the services of a fleet come from its store, so the file of a DPU includes none; remove this line",
}


_NOT_OF_FLEET = (
    "the config of the fleet has no `failover: in_switch`, so votes would move other clients than this switch; add it "
    "there first, or remove it here"
)


def _part(name: str, text: str) -> tuple[dict[str, Any], ConfigPart]:
    """Return the tree of a service, and a file with it alone. Raises ConfigError."""
    file = f"service {name} of the fleet"
    root = compose_json(text, file=file)
    if root is None:
        root = compose(text, file=file).root
    if not isinstance(root, dict):
        raise ConfigError([Finding(file, 1, 1, "", f"{show(root)} is not a mapping; apply the config again")])
    service = _shared(root)

    @cache
    def places() -> Positions:
        found = compose(text, file=file).places
        marks = ({("services", 0, *path): mark for path, mark in each.items()} for each in (found.values, found.keys))
        return Positions(*marks)

    return service, ConfigPart(file, {"services": [service]}, places)


def _shared(service: dict[str, Value]) -> dict[str, Any]:
    """Return a service without what runs programs, also if it is the file of the DPU that has `probe: exec`."""
    health = service.get("health")
    runs = isinstance(health, dict) and ("command" in health or health.get("probe") == ProbeKind.EXEC.value)
    left_out = (*_NOT_STORED, "health") if runs else _NOT_STORED
    return {key: value for key, value in service.items() if key not in left_out}


def _without_ports(joined: JoinedConfig, switch: Value) -> tuple[Value, dict[str, str]]:
    """Return `switch` without the key FLEET_PORTS, and its value. Raises ConfigError."""
    if not isinstance(switch, dict) or FLEET_PORTS not in switch:
        return switch, {}
    given, ports, findings = switch[FLEET_PORTS], dict[str, str](), list[Finding]()
    path: KeyPath = ("switch", FLEET_PORTS)
    if not isinstance(given, dict):
        message = f"{show(given)} is not a mapping; write such as {{hosts: pf0hpf}}: the fleet's name, then the port"
        raise ConfigError([joined.main.finding(path, message)])
    for name, port in given.items():
        try:
            ports[name] = port_name(port)
        except ValueError as error:
            findings.append(joined.main.finding((*path, name), str(error)))
    if findings:
        raise ConfigError(findings)
    return {key: value for key, value in switch.items() if key != FLEET_PORTS}, ports


def _with_ports(service: Value, ports: Mapping[str, str]) -> Value:
    """Return a service with the ports of this DPU."""
    if not ports or not isinstance(service, dict) or not isinstance(backends := service.get("backends"), list):
        return service
    return {**service, "backends": [_with_port(backend, ports) for backend in backends]}


def _with_port(backend: Value, ports: Mapping[str, str]) -> Value:
    if isinstance(backend, dict) and isinstance(egress := backend.get("egress"), str):
        return {**backend, "egress": ports.get(egress, egress)}
    return backend


def unsupported(balancer: Balancer) -> Iterable[str]:
    """Yield what a config has and a fleet does not, a sentence each."""
    if balancer.tunnels:
        yield "tunnels of hosts (`host_port`) belong to each DPU: write them in the files of the agents"
    if balancer.announce is not None:
        yield "`announce` belongs to each DPU: write it in the files of the agents"
