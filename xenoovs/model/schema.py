"""The keys of a config file that are not those of one part of the model, what they become, and the JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from ipaddress import IPv4Address
from typing import Any, Literal

from xenoovs.model import values
from xenoovs.model.address import Family, IPAddress, Mac, PortRange, Vip, family_of
from xenoovs.model.balancer import (
    AgentCheck,
    Announce,
    Backend,
    Balancer,
    BlockKey,
    Churn,
    Claim,
    Drain,
    Health,
    Nat,
    Notify,
    ProbeKind,
    Protocol,
    Returns,
    Service,
    ServiceMode,
    Uplinks,
    first_port,
    usual_positions,
)
from xenoovs.model.form import Form, Key, Listed, entry, form_of, keyed, reader_of, schema_of
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, NextHop, Translated, Tunneled, Unchanged
from xenoovs.model.tunnel import HostTunnel, PathSelector, SwitchTunnel, tunnel_key
from xenoovs.model.values import MatchField, Parser

MAX_BACKENDS = 1_000

Given = Mapping[str, Any]
"""The fields of a part such as `health:` that are written."""


_HEALTH, _DRAIN, _NOTIFY, _AGENT_CHECK = (
    form_of(part, is_partial=True) for part in (Health, Drain, Notify, AgentCheck)
)


_GROUPS = Listed(values.name, may_be_one=True, kind="name, or list of names", is_set=True)
_NOT_OF_FLEET = "`{}` is for the config of a fleet (`xenoovs fleet apply`); remove it here"


@keyed(kw_only=True)
class MatchForm:
    """Which bits of a packet split the clients.

    field: source_address: of the family of the VIPs, IPv4 without a VIP; or ipv4_source, ipv6_source. source_port: of
        TCP, UDP or SCTP; connections of one client then go to several backends.
    bits: auto: as few low bits as the fewest blocks need, at most 16; a number: at most so many; a list: these bit
        positions, 0 the lowest, in the order in which blocks use them; of a port up to 15, of IPv6 up to 111, because
        ovs-ofctl cannot match single bits of the first 16. Without a list, the lowest bit of a TCP source port comes
        last: Linux opens connections from even ports.
    """

    field: MatchField = entry(MatchField, default=MatchField.SOURCE_ADDRESS)
    bits: str | int | tuple[int, ...] = entry(values.bits, "auto", 8, [8, 9, 0, 1], default="auto")


@keyed(kw_only=True)
class BackendForm:
    """One server.

    name: Unique in the service.
    mac: Ethernet address of the server; unchanged: packets keep the one that they came with; left out: found on the
        network by its `address`, and followed when it changes.
    weight: Share relative to the other weights, at most 9 decimals; 0: configured, gets nothing. Required, here, in
        `defaults`, or in the file of `weights`.
    egress: Port of the bridge towards it, or the name of a tunnel of Open vSwitch; left out: `egress` of the bridge.
    remote: Its end of the tunnel that `egress` names; `mac` is then that of its device inside of the tunnel.
    key: VNI, or GRE key, of its packets in the tunnel; left out: `key` of the tunnel.
    address: Its own address, to which health probes go, and by which a MAC that is left out is found. With `mode: nat`
        clients' packets go to it.
    port: Port at which it serves, with `mode: nat`; left out: the port that clients connect to.
    vlan: VLAN with which packets leave for it, or untagged; left out: with the tag, or none, that they came with.
    backup: A sorry server: it gets clients only while no other backend serves, then all of them. Backups share them by
        weight. While one is up, max_down does not keep clients with backends that are down.
    groups: Only in the config of a fleet: those of the groups of its service whose DPUs have it; left out: all.
    group_weights: Only in the config of a fleet: its weight on the DPUs of groups of its service, in place of `weight`.
    """

    name: str = entry(values.name, "fips2")
    mac: Mac | Literal["unchanged"] | None = entry(values.backend_mac, "02:00:5e:10:00:02", default=None)
    weight: Fraction = entry(values.weight, 50, 0.5, may_be_default=True)
    egress: str | None = entry(values.port_name, "pf0hpf", default=None)
    remote: IPv4Address | None = entry(values.tunnel_address, "192.168.77.11", default=None)
    key: int | None = entry(tunnel_key, 5001, default=None)
    address: IPAddress | None = entry(values.server_address, "192.0.2.21", default=None)
    port: int | None = entry(values.port, 8080, default=None)
    vlan: int | None = entry(values.vlan, 200, "untagged", default=None)
    backup: bool = entry(values.flag, *[True], default=False, is_unsaid=True)
    groups: tuple[str, ...] = entry(_GROUPS, "berlin", default=(), elsewhere=_NOT_OF_FLEET.format("groups"))
    group_weights: Mapping[str, Fraction] = entry(
        values.group_weights, {"berlin": 0}, factory=dict, elsewhere=_NOT_OF_FLEET.format("group_weights")
    )


@keyed(kw_only=True)
class WeightsForm:
    """Weights of the backends from a file, so that another program can write them.

    source: JSON or YAML file with `weights`, a mapping of backends to weights; its other keys are ignored. A path
        counts from the directory of the file that names it.
    """

    source: str = entry(values.included, "paths.json", name="from")


@keyed(kw_only=True)
class ServiceForm:
    """What clients connect to, and the servers that answer.

    name: Unique on its bridge.
    vip: Address or prefix, or several, that clients connect to; left out: every packet of the family that enters. Of
        nested prefixes the longest has a packet. Prefixes need `mode: dsr`.
    protocol: Left out: any.
    ports: Destination ports and ranges; left out: any.
    vlan: VLAN of clients' frames, or untagged: those without a tag alone. Answers to ARP and neighbour solicitations
        carry it too; services in different VLANs may share VIPs. Left out: every VLAN, and frames without a tag.
    vip_mac: Answer ARP for the IPv4 VIPs with this MAC, and through the controller neighbour solicitations for the IPv6
        VIPs; left out: do not answer.
    mode: dsr: packets keep the VIP as their destination, and backends answer clients directly. nat: packets get the
        address (and port) of a backend, and what backends send gets those of the VIP; without a connection table, IPv4
        only.
    nat: The way back, with `mode: nat`.
    tolerance: How far a backend's share may be from its weight, relative to it.
    max_flows: Budget of flows for the blocks of the service. The least tolerance that fits is used, whatever
        `tolerance` says; `xenoovs validate` shows it. Left out: no budget.
    rewrite_source_mac: Rewrite the Ethernet source: true to vip_mac, or to a MAC; multiplies hardware entries by the
        number of client-side MACs.
    churn: What a change of weights spares: least (as few clients move as can be), compact (as few hardware entries as
        can be), or balanced.
    health: Health check of the backends.
    drain: Open connections of clients that get another backend.
    notify: Command to run when a backend or the service changes its state.
    announce: Whether its VIPs are announced where the file has `announce`.
    agent_check: Weight and state that servers advertise.
    returns: How answers of backends behind tunnels reach the clients: direct (the backends send them by another way) or
        switch (back by the tunnel, and by the ingress port).
    weights: Weights from a file. Backends that it names have no `weight` of their own; others need one.
    backends: The servers, at least one with a weight.
    groups: Only in the config of a fleet: group, or groups, of DPUs that serve it (`fleet add-dpu --groups`); left out:
        all DPUs. Services without a common group may claim the same packets, if no DPU is in groups of both.
    """

    name: str = entry(values.name, "dns")
    vip: tuple[Vip, ...] = entry(
        Listed(values.vip, may_be_one=True),
        "192.0.2.10",
        ["192.0.2.10", "2001:db8::10"],
        ["10.3.10.0/24", "2001:db8:10::/120"],
        default=(),
    )
    protocol: Protocol | None = entry(Protocol, default=None)
    ports: tuple[PortRange, ...] = entry(Listed(values.ports, may_be_one=True), [53], [80, "8000-8003"], default=())
    vlan: int | None = entry(values.vlan, 100, "untagged", default=None)
    vip_mac: Mac | None = entry(values.mac, "02:00:5e:10:00:01", default=None)
    mode: ServiceMode = entry(ServiceMode, default=ServiceMode.DSR, is_unsaid=True)
    nat: Nat | None = entry(Nat, default=None)
    match: MatchForm = entry(MatchForm, default=MatchForm())
    tolerance: Fraction = entry(values.tolerance, "5%", 0.05, default=Fraction(1, 20))
    max_flows: int | None = entry(values.max_flows, 64, default=None)
    rewrite_source_mac: Mac | bool = entry(values.source_mac, *[True], "02:00:5e:10:00:01", default=False)
    churn: Churn = entry(Churn, default=Churn.BALANCED)
    health: Given = entry(_HEALTH, factory=dict)
    drain: Given = entry(_DRAIN, factory=dict)
    notify: Given = entry(_NOTIFY, factory=dict)
    announce: bool = entry(values.flag, *[False], default=True, is_unsaid=True)
    agent_check: Given = entry(_AGENT_CHECK, factory=dict)
    returns: Returns = entry(Returns, default=Returns.DIRECT, name="return", is_unsaid=True)
    weights: WeightsForm | None = entry(WeightsForm, default=None)
    backends: tuple[BackendForm, ...] = entry(Listed(BackendForm, least=1, most=MAX_BACKENDS))
    groups: tuple[str, ...] = entry(
        _GROUPS, "edge", ["edge", "core"], default=(), elsewhere=_NOT_OF_FLEET.format("groups")
    )

    @property
    def families(self) -> frozenset[Family]:
        """The IP versions whose clients the service splits."""
        match self.match.field:
            case MatchField.IPV4_SOURCE:
                return frozenset({Family.IPV4})
            case MatchField.IPV6_SOURCE:
                return frozenset({Family.IPV6})
            case _:
                return frozenset(map(family_of, self.vip)) or frozenset({Family.IPV4})

    @property
    def key(self) -> BlockKey:
        """The bits that split the clients."""
        kind, bits = self.match.field.key, self.match.bits
        if isinstance(bits, tuple):
            return BlockKey(kind, bits)
        return BlockKey(kind, usual_positions(kind, self.protocol), bits if isinstance(bits, int) else None)


_SERVICE_DEFAULTS = Form(
    ServiceForm,
    name="ServiceDefaults",
    meaning="Keys of services that do not have them.",
    is_partial=True,
    without=("name", "backends", "weights", "groups"),
    elsewhere={"groups": "groups have no default; write `groups` in each service"},
)
_BACKEND_DEFAULTS = Form(
    BackendForm,
    name="BackendDefaults",
    meaning="Keys of backends that do not have them.",
    is_partial=True,
    without=("name", "address", "remote", "groups", "group_weights"),
)
SWITCH = Form(
    Uplinks,
    name="Switch",
    more={
        "fleet_ports": Key(
            Parser(
                values.plain,
                {"type": "object", "additionalProperties": {"type": "string"}, "x-kind": "mapping of names to ports"},
            ),
            ({"storage": "en3f0pf0sf0"},),
            None,
            elsewhere="`fleet_ports` is for an agent with --fleet; remove it here",
        )
    },
)


class _AnyTunnel:
    """Reads and writes either kind of tunnel. A tunnel with a key that only tunnels of hosts have is one of a host."""

    @staticmethod
    def parse(tree: object) -> HostTunnel | SwitchTunnel:
        host, switch = form_of(HostTunnel), form_of(SwitchTunnel)
        is_of_host = isinstance(tree, dict) and not ({*host.keys} - {*switch.keys}).isdisjoint(tree)
        return (host if is_of_host else switch).parse(tree)  # type: ignore[no-any-return]

    @staticmethod
    def write(tunnel: HostTunnel | SwitchTunnel) -> dict[str, Any]:
        tree: dict[str, Any] = reader_of(type(tunnel)).write(tunnel)
        if isinstance(tunnel, HostTunnel) and tunnel.paths.by is not PathSelector.SOURCE_PORT:
            del tree["paths"]["count"]
        return tree

    @staticmethod
    def describe(described: dict[str, Any]) -> dict[str, Any]:
        return {"oneOf": [dict(schema_of(kind, described)) for kind in (SwitchTunnel, HostTunnel)]}


TUNNEL = _AnyTunnel()


@keyed(kw_only=True)
class DefaultsForm:
    """Keys that services and backends of this file, and of files that it includes, have unless they say otherwise. Of a
    mapping such as `health`, single keys. The defaults of the nearest file go first.

    services: For all services.
    backends: For all backends of these services.
    """

    services: Given = entry(_SERVICE_DEFAULTS, factory=dict)
    backends: Given = entry(_BACKEND_DEFAULTS, factory=dict)


@keyed(kw_only=True)
class FileForm:
    """A xenoovs config.

    version: Form of this file.
    switch: The bridge of this config, with its ports.
    health: For all services without keys of their own.
    drain: For all services without keys of their own.
    notify: For all services without keys of their own.
    announce: Announce the VIPs by BGP; left out: they are not announced.
    agent_check: For all services without keys of their own.
    tunnels: Tunnels of Open vSwitch, behind which backends are; with `host_port` tunnels of hosts, whose packets get
        the better of several paths (`services` may then be empty).
    include: Files with more services, or directories whose *.yaml and *.yml files are read by name. A path counts from
        the directory of the file that names it; symbolic links are followed. Included files have `services`, `include`
        and `defaults`.
    """

    version: int = entry(values.version)
    switch: Uplinks = entry(SWITCH)
    health: Given = entry(_HEALTH, factory=dict)
    drain: Given = entry(_DRAIN, factory=dict)
    notify: Given = entry(_NOTIFY, factory=dict)
    announce: Announce | None = entry(Announce, default=None)
    agent_check: Given = entry(_AGENT_CHECK, factory=dict)
    services: tuple[ServiceForm, ...] = entry(Listed(ServiceForm, most=values.MAX_SERVICES))
    tunnels: tuple[HostTunnel | SwitchTunnel, ...] = entry(Listed(TUNNEL), default=())
    include: tuple[str, ...] = entry(
        Listed(values.included, may_be_one=True), "conf.d", ["web.yaml", "/etc/xenoovs/conf.d"], default=()
    )
    defaults: DefaultsForm = entry(DefaultsForm, default=DefaultsForm())

    @property
    def switch_tunnels(self) -> dict[str, SwitchTunnel]:
        """The tunnels of Open vSwitch, by name."""
        return {tunnel.name: tunnel for tunnel in self.tunnels if isinstance(tunnel, SwitchTunnel)}


# What the keys become.


def build_balancer(config: FileForm) -> Balancer:
    """Return the model of a config whose values are right, each by itself."""
    return Balancer(
        config.switch,
        tuple([_service(service, config, config.switch_tunnels) for service in config.services]),
        config.announce,
        tuple(tunnel for tunnel in config.tunnels if isinstance(tunnel, HostTunnel)),
        switch_tunnels=tuple(config.switch_tunnels.values()),
    )


def _service(service: ServiceForm, config: FileForm, tunnels: Mapping[str, SwitchTunnel]) -> Service:
    egress, source_mac = config.switch.egress, service.rewrite_source_mac
    notify = {**config.notify, **service.notify}
    asked = {**config.agent_check, **service.agent_check}
    return Service(
        name=service.name,
        claim=Claim(service.families, service.vip, service.protocol, service.ports, vlan=service.vlan),
        backends=tuple([_backend(backend, service, egress, tunnels) for backend in service.backends]),
        key=service.key,
        tolerance=service.tolerance,
        max_flows=service.max_flows,
        vip_mac=service.vip_mac,
        source_mac=source_mac if isinstance(source_mac, Mac) else service.vip_mac if source_mac else None,
        churn=service.churn,
        health=_health(service, config.health),
        drain=Drain(**{**config.drain, **service.drain}),
        notify=Notify(**notify) if "command" in notify else None,
        announced=service.announce,
        agent_check=AgentCheck(**asked) if "port" in asked else None,
        nat=None if service.mode is ServiceMode.DSR else service.nat or Nat(),
        returns=service.returns,
    )


def _backend(backend: BackendForm, service: ServiceForm, egress: str, tunnels: Mapping[str, SwitchTunnel]) -> Backend:
    return Backend(
        backend.name,
        _next_hop(backend, service, egress, tunnels),
        backend.weight,
        backend.address,
        follows=backend.mac is None,
        is_backup=backend.backup,
    )


def _next_hop(backend: BackendForm, service: ServiceForm, egress: str, tunnels: Mapping[str, SwitchTunnel]) -> NextHop:
    tunnel, mac, port = tunnels.get(backend.egress or ""), backend.mac, backend.egress or egress
    if tunnel is not None and backend.remote is not None and isinstance(mac, Mac):
        key = tunnel.key if backend.key is None else backend.key
        return Tunneled(mac, tunnel.port_to(backend.remote), backend.remote, key or 0)
    # Frames that have the tag already are not written, so that their priority stays unmatched.
    vlan = None if backend.vlan == service.vlan else backend.vlan
    if isinstance(mac, str):
        return Unchanged(port, vlan)
    if service.mode is ServiceMode.NAT and isinstance(backend.address, IPv4Address):
        return Translated(mac or UNKNOWN_MAC, port, backend.address, backend.port, vlan)
    return Direct(mac or UNKNOWN_MAC, port, vlan)


# What follows from `interval` alone: detection within seconds, a probe that ends before the next one starts.
_FAST_PART, _TIMEOUT_PART = 4, 2


def _health(service: ServiceForm, defaults: Given) -> Health | None:
    """`defaults`: the check of the file for all services. None if no check is made."""
    given = {**defaults, **service.health}
    probe: ProbeKind = given.pop("probe", ProbeKind.NONE)
    if probe is ProbeKind.NONE:
        return None
    # Backends of NAT may have ports of their own (`balancer.probe_port`).
    port = given.pop("port", None) or (first_port(service.ports) if service.mode is ServiceMode.DSR else None)
    if "interval_ms" in given:
        given.setdefault("fast_interval_ms", max(1, given["interval_ms"] // _FAST_PART))
        given.setdefault("timeout_ms", max(1, given["interval_ms"] // _TIMEOUT_PART))
    return Health(probe, port if probe.has_port or probe is ProbeKind.EXEC else None, **given)


# The forms of whole files.


_OF_ALL_FILES = ("version", "services", "include", "defaults")
FILE = form_of(FileForm)


def _only_first(key: str) -> str:
    is_for_services = key in ("health", "drain", "notify", "agent_check")
    instead = (
        f"write it there, or here as `defaults: {{services: {{{key}: ...}}}}`" if is_for_services else "remove it here"
    )
    return f"an included file has no `{key}`, only the file that includes the others has; {instead}"


INCLUDED = Form(
    FileForm,
    name="Included",
    is_partial=True,
    elsewhere={key: _only_first(key) for key in FileForm.__dataclass_fields__ if key not in _OF_ALL_FILES},
)
"""A file that another one includes."""


def json_schema() -> dict[str, Any]:
    """Return the form as JSON Schema, draft 2020-12, for editors."""
    described = dict[str, Any]()
    form = FILE.describe(described)
    # Included files have the same schema. They are known by having none of the keys that only the first file has.
    required = form.pop("required")
    required.remove("services")
    form["if"] = {"anyOf": [{"required": [key]} for key in INCLUDED.refused]}
    form["then"] = {"required": required}
    inner = {"$defs": dict(sorted(described.items()))}
    names = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:xenoovs:config:1",
        "title": "xenoovs config",
    }
    return {**names, **inner, **form}
