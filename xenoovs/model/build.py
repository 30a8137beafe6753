"""Turns plain values into the model: checks their form, leaves wrong ones out, fills in defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from xenoovs.errors import did_you_mean
from xenoovs.model.address import Family, Mac, family_of
from xenoovs.model.balancer import (
    NO_QUERY,
    AgentCheck,
    Announce,
    Backend,
    Balancer,
    BlockKey,
    Claim,
    Drain,
    Health,
    Nat,
    Notify,
    ProbeKind,
    Service,
    ServiceMode,
    Uplinks,
    usual_positions,
)
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, NextHop, Translated, Unchanged
from xenoovs.model.schema import (
    TUNNEL_FORMS,
    AgentCheckConfig,
    BackendConfig,
    FileConfig,
    HealthConfig,
    HostTunnelConfig,
    IncludedConfig,
    NotifyConfig,
    ServiceConfig,
    ServiceDefaults,
    SwitchConfig,
    SwitchTunnelConfig,
)
from xenoovs.model.switch_tunnels import Tunnels, switch_tunnel_of, tunneled
from xenoovs.model.tunnels import tunnel_of
from xenoovs.model.values import KeyPath, MatchField, Remark, Value, show

# Checks a tree against the schema and words every mistake for people.


MAX_REMARKS = 1_000

_NOT_HERE = {
    (SwitchConfig, "fleet_ports"): "`fleet_ports` is for an agent with --fleet; remove it here",
    (ServiceConfig, "groups"): "`groups` is for the config of a fleet (`xenoovs fleet apply`); remove it here",
    (ServiceDefaults, "groups"): "groups have no default; write `groups` in each service",
}
"""Keys of fleets, by the mapping that has them, and what to write instead."""

_FOR_ALL = (("health",), ("drain",), ("notify",), ("agent_check",))
"""Paths of the parts of a file that stand for all services."""

M = TypeVar("M", bound=BaseModel)


def switch_tunnels_of(config: FileConfig) -> Tunnels:
    """Return the tunnels of Open vSwitch, by name."""
    return {tunnel.name: tunnel for tunnel in config.tunnels if isinstance(tunnel, SwitchTunnelConfig)}


def check_structure(
    root: Value, is_default: Callable[[KeyPath], bool]
) -> tuple[FileConfig | None, tuple[Remark, ...], int]:
    """Check every key, type and range.

    Args:
        root: The tree, with the defaults in it.
        is_default: Returns whether the value at a path is a default: its mistakes are found where it stands.

    Returns:
        The config, or None with the mistakes and the number of those beyond MAX_REMARKS.
    """
    try:
        return FileConfig.model_validate(root), (), 0
    except ValidationError as error:
        errors = _errors_of(error)
    own = [error for error in errors if error["type"] == "missing" or not is_default(error["loc"])]
    remarks = tuple(_remark(error) for error in own[:MAX_REMARKS])
    return None, remarks, len(own) - len(remarks)


def check_included(root: Value) -> Iterator[Remark]:
    """Check what a file that is included has beside its services."""
    alone = {**root, "services": []} if isinstance(root, dict) and isinstance(root.get("services"), list) else root
    try:
        IncludedConfig.model_validate(alone)
    except ValidationError as error:
        for each in _errors_of(error)[:MAX_REMARKS]:
            key = str(each["loc"][-1]) if len(each["loc"]) == 1 else ""
            if each["type"] == "extra_forbidden" and key in FileConfig.model_fields:
                instead = "remove it here"
                if (key,) in _FOR_ALL:
                    instead = f"write it there, or here as `defaults: {{services: {{{key}: ...}}}}`"
                message = f"an included file has no `{key}`, only the file that includes the others has; {instead}"
                yield Remark(each["loc"], message, at_key=True)
            else:
                yield _remark(each)


def _errors_of(error: ValidationError) -> list[dict[str, Any]]:
    """Return the errors of pydantic, with the place in the file as `loc`, and the place in the form as `in_form`.

    They differ in tunnels, which have two forms.
    """
    found = error.errors(include_url=False)
    return [{**each, "loc": _place_of(each["loc"]), "in_form": each["loc"]} for each in found]


def _place_of(loc: KeyPath) -> KeyPath:
    is_tunnel = loc[:1] == ("tunnels",) and loc[2:3] and loc[2] in TUNNEL_FORMS
    return (*loc[:2], *loc[3:]) if is_tunnel else loc


def check_form(root: Value, form: type[M]) -> tuple[M | None, tuple[Remark, ...]]:
    """Check the tree of another file than a config. Return its values, or None and the mistakes."""
    try:
        return form.model_validate(root), ()
    except ValidationError as error:
        return None, tuple(_remark(each, form) for each in _errors_of(error)[:MAX_REMARKS])


def _remark(error: Any, form: type[BaseModel] = FileConfig) -> Remark:
    """One error of pydantic (docs.pydantic.dev, "Validation Errors"), as a remark. `form`: of the whole file."""
    path: KeyPath = error["loc"]
    value = error["input"]
    match error["type"]:
        case "value_error":
            return Remark(path, str(error["ctx"]["error"]))
        case "missing":
            return Remark(path, f"this key is required; add `{path[-1]}:` here")
        case "extra_forbidden":
            return Remark(path, _unknown_key(str(path[-1]), error["in_form"], form), at_key=True)
        case "model_type":
            known = _known(error["in_form"], form)
            return Remark(path, f"{show(value)} is not a mapping; write keys and values here: {known}")
        case "list_type":
            return Remark(path, f"{show(value)} is not a list; write items that start with a dash")
        case "too_short":
            least = error["ctx"]["min_length"]
            return Remark(path, f"{show(value) if value else 'the list is empty'}; write at least {least}")
        case "too_long":
            limit = error["ctx"]["max_length"]
            return Remark(path, f"{len(value)} items are more than the {limit} that are supported; split them")
        case other:
            return Remark(path, f"{show(value)} cannot be used ({other}: {error['msg']})")


def _unknown_key(key: str, path: KeyPath, root: type[BaseModel]) -> str:
    form = _form_at(path[:-1], root)
    if (form, key) in _NOT_HERE:
        return _NOT_HERE[form, key]
    guess = did_you_mean(key, _keys(form), "did you mean {}?")
    return f"unknown key; {guess or f'known keys: {_known(path[:-1], root)}'}"


def _known(path: KeyPath, root: type[BaseModel]) -> str:
    return ", ".join(_keys(_form_at(path, root)))


def _keys(form: type[BaseModel]) -> list[str]:
    return [declared.alias or name for name, declared in form.model_fields.items()]


def _form_at(path: KeyPath, root: type[BaseModel]) -> type[BaseModel]:
    """Return what the mapping at `path` of a file has to be."""
    form: Any = root
    for index, step in enumerate(path):
        if index == 2 and path[0] == "tunnels":
            form = TUNNEL_FORMS[str(step)]
        elif isinstance(step, str):
            annotation = form.model_fields[step].annotation
            form = next(iter(getattr(annotation, "__args__", (annotation,))))
    return form  # type: ignore[no-any-return]  # the annotations of a form


# The health check of a service: its own keys over those of the file, defaults for the rest, and what must hold.


# What follows from `interval` alone: detection within seconds, a probe that ends before the next one starts.
_FAST_PART, _TIMEOUT_PART = 4, 2


def health_of(service: ServiceConfig, defaults: HealthConfig) -> Health | None:
    """`defaults`: the check of the file for all services. None: no check is made."""
    given = _given(service.health, defaults, Health)
    probe: ProbeKind = given.pop("probe", ProbeKind.NONE)
    if probe is ProbeKind.NONE:
        return None
    # Backends of NAT may have ports of their own (`model.probe_port`).
    port = given.pop("port", None) or (_first_port(service) if service.mode is ServiceMode.DSR else None)
    if "interval_ms" in given:
        given.setdefault("fast_interval_ms", max(1, given["interval_ms"] // _FAST_PART))
        given.setdefault("timeout_ms", max(1, given["interval_ms"] // _TIMEOUT_PART))
    return Health(probe, port if probe.has_port or probe is ProbeKind.EXEC else None, **given)


def check_health(
    service: ServiceConfig, path: KeyPath, *, defaults: HealthConfig, for_lab: bool = False
) -> Iterator[Remark]:
    """Keys against each other, and backends that cannot be asked."""
    health = health_of(service, defaults)
    here = (*path, "health")
    if health is None:
        if service.health.model_fields_set and "probe" not in _given(service.health, defaults, Health):
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


def _check_addresses(service: ServiceConfig, path: KeyPath, probe: ProbeKind, *, for_lab: bool) -> Iterator[Remark]:
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


def check_notify(service: ServiceConfig, path: KeyPath, *, defaults: NotifyConfig) -> Iterator[Remark]:
    """A timeout needs a command."""
    if service.notify.model_fields_set and _notify(service, defaults) is None:
        yield Remark((*path, "notify"), "no program is named; add `command: [/usr/local/bin/page-me]`")


def check_agent(
    service: ServiceConfig, path: KeyPath, *, defaults: AgentCheckConfig, for_lab: bool = False
) -> Iterator[Remark]:
    """An agent without a port, and servers without the address at which it listens."""
    found = _agent_check(service, defaults)
    if found is None:
        if service.agent_check.model_fields_set:
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


def _agent_check(service: ServiceConfig, defaults: AgentCheckConfig) -> AgentCheck | None:
    given = _given(service.agent_check, defaults, AgentCheck)
    return AgentCheck(**given) if "port" in given else None


def _notify(service: ServiceConfig, defaults: NotifyConfig) -> Notify | None:
    given = _given(service.notify, defaults, Notify)
    return Notify(**given) if "command" in given else None


def _given(own: BaseModel, defaults: BaseModel, model: type[Health | Drain | Notify | AgentCheck]) -> dict[str, Any]:
    """Return the keys that are written, those of the service before those of the file, by their names in the model."""
    values = {}
    for name in model.__dataclass_fields__:
        key = name.removesuffix("_ms")
        value = getattr(own, key) if key in own.model_fields_set else getattr(defaults, key)
        if value is not None:
            values[name] = value
    return values


def _first_port(service: ServiceConfig) -> int | None:
    return next((ports.first for ports in service.ports if ports.first), None)


def families_of(service: ServiceConfig) -> frozenset[Family]:
    """The IP versions whose clients the service splits."""
    match service.match.field:
        case MatchField.IPV4_SOURCE:
            return frozenset({Family.IPV4})
        case MatchField.IPV6_SOURCE:
            return frozenset({Family.IPV6})
        case _:
            return frozenset(map(family_of, service.vip)) or frozenset({Family.IPV4})


def claim_of(service: ServiceConfig) -> Claim:
    return Claim(families_of(service), tuple(service.vip), service.protocol, tuple(service.ports))


def build_balancer(config: FileConfig) -> Balancer:
    """Return the model of a config without mistakes."""
    switch, tunnels, announce = config.switch, switch_tunnels_of(config), config.announce
    return Balancer(
        Uplinks(switch.bridge, tuple(switch.ingress), switch.egress, switch.other_traffic, switch.datapath_id),
        tuple(_service(service, config, tunnels) for service in config.services),
        None if announce is None else Announce(announce.bgp, announce.on_agent_exit),
        tuple(tunnel_of(tunnel) for tunnel in config.tunnels if isinstance(tunnel, HostTunnelConfig)),
        switch_tunnels=tuple(map(switch_tunnel_of, tunnels.values())),
    )


def _service(service: ServiceConfig, config: FileConfig, tunnels: Tunnels) -> Service:
    egress = config.switch.egress
    return Service(
        name=service.name,
        claim=claim_of(service),
        backends=tuple(_backend(backend, service.mode, egress, tunnels) for backend in service.backends),
        key=key_of(service),
        tolerance=service.tolerance,
        max_flows=service.max_flows,
        vip_mac=service.vip_mac,
        source_mac=_source_mac(service),
        churn=service.churn,
        health=health_of(service, config.health),
        drain=Drain(**_given(service.drain, config.drain, Drain)),
        notify=_notify(service, config.notify),
        announced=service.announce,
        agent_check=_agent_check(service, config.agent_check),
        nat=_nat(service),
        returns=service.returns,
    )


def _backend(backend: BackendConfig, mode: ServiceMode, default_egress: str, tunnels: Tunnels) -> Backend:
    return Backend(
        backend.name,
        tunneled(backend, tunnels) or _next_hop(backend, mode, backend.egress or default_egress),
        backend.weight,
        backend.address,
        follows=backend.mac is None,
        is_backup=backend.backup,
    )


def _next_hop(backend: BackendConfig, mode: ServiceMode, port: str) -> NextHop:
    if backend.mac == "unchanged":
        return Unchanged(port)
    mac = backend.mac or UNKNOWN_MAC
    if mode is ServiceMode.NAT and isinstance(backend.address, IPv4Address):
        return Translated(mac, port, backend.address, backend.port)
    return Direct(mac, port)


def _nat(service: ServiceConfig) -> Nat | None:
    if service.mode is ServiceMode.DSR:
        return None
    return Nat(service.nat.return_mac, tuple(service.nat.clients))


def key_of(service: ServiceConfig) -> BlockKey:
    """The bits that split the clients."""
    field, bits = service.match.field.key, service.match.bits
    if isinstance(bits, tuple):
        return BlockKey(field, bits)
    return BlockKey(field, usual_positions(field, service.protocol), bits if isinstance(bits, int) else None)


def _source_mac(service: ServiceConfig) -> Mac | None:
    if isinstance(service.rewrite_source_mac, bool):
        return service.vip_mac if service.rewrite_source_mac else None
    return service.rewrite_source_mac
