"""The form of a config file, declared once: it checks files, and the JSON Schema for editors is made from it.

Importing this imports pydantic (a quarter of a second): do it only where a config is read.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model

from xenoovs.model import values
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import (
    AgentCheck,
    AgentExit,
    BgpSpeaker,
    Churn,
    Drain,
    Health,
    Notify,
    OtherTraffic,
    PortRange,
    ProbeKind,
    Protocol,
    Returns,
    ServiceMode,
)
from xenoovs.model.emit import settings_of
from xenoovs.model.switch_tunnel import IpsecOffload, TunnelPorts
from xenoovs.model.tunnel import PROBE_TOS, Discover, PathProbe, PathSelector, Reflect, TunnelType
from xenoovs.model.values import Key, MatchField

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_BACKENDS = 1_000
MAX_ITEMS = 1_000  # addresses, port ranges or ports of the bridge in one list


class _Mapping(BaseModel):
    # Deferred: only the form of the whole file is needed, which has all others in it.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def _key(description: str, *examples: object) -> Any:
    """Declare a key that may be left out."""
    return Field(default=None, description=description, examples=list(examples) or None)


@dataclass(frozen=True, slots=True)
class _OneOrMany:
    """A list that may be written as its only item."""

    item: values.Parser[Any]

    def __get_pydantic_json_schema__(self, _core: object, _handler: object) -> dict[str, Any]:
        item = dict(self.item.schema)
        return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_ITEMS}]}


_MOST, _LISTED = Field(max_length=MAX_ITEMS), BeforeValidator(values.one_or_many)
PortNames = Annotated[list[Annotated[str, values.port_name]], _MOST, _LISTED, _OneOrMany(values.port_name)]
Vips = Annotated[list[Annotated[IPAddress, values.vip]], _MOST, _LISTED, _OneOrMany(values.vip)]
TunnelAddresses = Annotated[
    list[Annotated[IPv4Address, values.tunnel_address]], _MOST, _LISTED, _OneOrMany(values.tunnel_address)
]
SourcePorts = Annotated[list[Annotated[int, values.port]], _MOST, _LISTED, _OneOrMany(values.port)]
ClientNetworks = Annotated[
    list[Annotated[IPv4Network, values.client_network]], _MOST, _LISTED, _OneOrMany(values.client_network)
]
Ports = Annotated[list[Annotated[PortRange, values.ports]], _MOST, _LISTED, _OneOrMany(values.ports)]


def form_of(model: type[DataclassInstance]) -> type[BaseModel]:
    """Return the form of a part of the model such as `health:`, whose keys may all be left out.

    Args:
        model: Its fields have a `Key` as metadata.
    """
    keys: dict[str, Any] = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        declared: Key = hint.__metadata__[0]
        keys[name.removesuffix("_ms")] = (
            Annotated[hint.__origin__ | None, declared.parser],
            _key(declared.meaning, *declared.examples),
        )
    form: type[BaseModel] = create_model(f"{model.__name__}Config", __base__=_Mapping, __doc__=model.__doc__, **keys)
    return form


if TYPE_CHECKING:
    HealthConfig = BaseModel
    DrainConfig = BaseModel
    NotifyConfig = BaseModel
    AgentCheckConfig = BaseModel
else:
    HealthConfig, DrainConfig, NotifyConfig, AgentCheckConfig = map(form_of, (Health, Drain, Notify, AgentCheck))


class AnnounceConfig(_Mapping):
    """The announcement of VIPs by the routing daemon of this host, made by `xenoovs agent`."""

    bgp: Annotated[BgpSpeaker, values.choice(BgpSpeaker)] = Field(
        description="frr: while a VIP has a backend that serves, the host has a route for it that FRR redistributes."
    )
    on_agent_exit: Annotated[AgentExit, values.choice(AgentExit)] = Field(
        default=AgentExit.KEEP,
        description="When the agent ends, also by a crash: keep (the flows stay, and so do the routes) or withdraw.",
    )


class SwitchConfig(_Mapping):
    """The bridge and its ports."""

    bridge: Annotated[str, values.device] = Field(default="ovsbr1", description="Open vSwitch bridge.")
    datapath_id: Annotated[int | None, values.datapath_id] = _key(
        "Its datapath id, 16 hexadecimal digits in quotes (`ovs-vsctl get bridge ovsbr1 datapath_id`). It tells "
        "bridges of one name on several hosts apart, and keeps the config off every other bridge. Left out: any.",
        "0000c470bda056ac",
    )
    ingress: PortNames = Field(description="Port, or ports, where client traffic enters.", examples=[["p0"]])
    egress: Annotated[str, values.port_name] = Field(
        description="Port towards backends that name none of their own.", examples=["p1"]
    )
    other_traffic: Annotated[OtherTraffic, values.choice(OtherTraffic)] = Field(
        default=OtherTraffic.PASSTHROUGH,
        description="Packets of no service: passthrough (ingress to egress and back), normal (the bridge learns and "
        "switches), drop, or leave (other flows of the bridge decide).",
    )


class MatchConfig(_Mapping):
    """Which bits of a packet split the clients."""

    field: Annotated[MatchField, values.choice(MatchField)] = Field(
        default=MatchField.SOURCE_ADDRESS,
        description="source_address: of the family of the VIPs, IPv4 without a VIP; or ipv4_source, ipv6_source. "
        "source_port: of TCP, UDP or SCTP; connections of one client then go to several backends.",
    )
    bits: Annotated[str | int | tuple[int, ...], values.bits] = Field(
        default="auto",
        description="auto: as few low bits as the tolerance needs, at most 16; a number: at most so many; a list: "
        "these bit positions, 0 the lowest, in the order in which blocks use them; of a port up to 15, of IPv6 up to "
        "111, because ovs-ofctl cannot match single bits of the first 16. Without a list, the lowest bit of a TCP "
        "source port comes last: Linux opens connections from even ports.",
        examples=["auto", 8, [8, 9, 0, 1]],
    )


class NatConfig(_Mapping):
    """The way back of a service with `mode: nat`."""

    return_mac: Annotated[Mac | None, values.mac] = _key(
        "Destination MAC that packets from backends get: that of the router to the clients. Left out: they keep the "
        "one that the backend sends to.",
        "02:00:5e:10:00:fe",
    )
    clients: ClientNetworks = Field(
        default_factory=list,
        description="Network, or networks, of the clients. What backends send elsewhere from the same port, such as "
        "answers to health probes, is then left alone; each network is one hardware entry more for each backend. Left "
        "out: all destinations.",
        examples=["10.9.0.0/16", ["10.9.0.0/16", "10.10.0.0/16"]],
    )


class BackendConfig(_Mapping):
    """One server."""

    name: Annotated[str, values.name] = Field(description="Unique in the service.", examples=["fips2"])
    mac: Annotated[Mac | Literal["unchanged"] | None, values.backend_mac] = _key(
        "Ethernet address of the server; unchanged: packets keep the one that they came with; left out: found on the "
        "network by its `address`, and followed when it changes.",
        "02:00:5e:10:00:02",
    )
    weight: Annotated[Fraction, values.weight] = Field(
        description="Share relative to the other weights, at most 9 decimals; 0: configured, gets nothing. Required, "
        "here, in `defaults`, or in the file of `weights`.",
        examples=[50, 0.5],
    )
    egress: Annotated[str | None, values.port_name] = _key(
        "Port of the bridge towards it, or the name of a tunnel of Open vSwitch; left out: `egress` of the bridge.",
        "pf0hpf",
    )
    remote: Annotated[IPv4Address | None, values.tunnel_address] = _key(
        "Its end of the tunnel that `egress` names; `mac` is then that of its device inside of the tunnel.",
        "192.168.77.11",
    )
    key: Annotated[int | None, values.tunnel_key] = _key(
        "VNI, or GRE key, of its packets in the tunnel; left out: `key` of the tunnel.", 5001
    )
    address: Annotated[IPAddress | None, values.server_address] = _key(
        "Its own address, to which health probes go, and by which a MAC that is left out is found. With `mode: nat` "
        "clients' packets go to it.",
        "192.0.2.21",
    )
    port: Annotated[int | None, values.port] = _key(
        "Port at which it serves, with `mode: nat`; left out: the port that clients connect to.", 8080
    )
    backup: Annotated[bool, values.flag] = Field(
        default=False,
        description="A sorry server: it gets clients only while no other backend serves, then all of them. Backups "
        "share them by weight. While one is up, max_down does not keep clients with backends that are down.",
        examples=[True],
    )


WeightsConfig = create_model(
    "WeightsConfig",
    __base__=_Mapping,
    __doc__="Weights of the backends from a file, so that another program can write them.",
    # `from` is no name in Python.
    **{
        "from": (
            Annotated[str, values.included],
            Field(
                description="JSON or YAML file with `weights`, a mapping of backends to weights; its other keys "
                "are ignored. A path counts from the directory of the file that names it.",
                examples=["paths.json"],
            ),
        )
    },  # type: ignore[call-overload]
)


class ServiceConfig(_Mapping):
    """What clients connect to, and the servers that answer."""

    name: Annotated[str, values.name] = Field(description="Unique on its bridge.", examples=["dns"])
    vip: Vips = Field(
        default_factory=list,
        description="Address, or addresses, that clients connect to; left out: every packet of the family that enters.",
        examples=["192.0.2.10", ["192.0.2.10", "2001:db8::10"]],
    )
    protocol: Annotated[Protocol | None, values.choice(Protocol)] = _key("Left out: any.")
    ports: Ports = Field(
        default_factory=list,
        description="Destination ports and ranges; left out: any.",
        examples=[[53], [80, "8000-8003"]],
    )
    vip_mac: Annotated[Mac | None, values.mac] = _key(
        "Answer ARP for the IPv4 VIPs with this MAC, and through the controller neighbour solicitations for the IPv6 "
        "VIPs; left out: do not answer.",
        "02:00:5e:10:00:01",
    )
    mode: Annotated[ServiceMode, values.choice(ServiceMode)] = Field(
        default=ServiceMode.DSR,
        description="dsr: packets keep the VIP as their destination, and backends answer clients directly. nat: "
        "packets get the address (and port) of a backend, and what backends send gets those of the VIP; without a "
        "connection table, IPv4 only.",
    )
    nat: NatConfig = Field(default_factory=NatConfig, description="The way back, with `mode: nat`.")
    match: MatchConfig = Field(default_factory=MatchConfig, description="Which bits of a packet split the clients.")
    tolerance: Annotated[Fraction, values.tolerance] = Field(
        default=Fraction(1, 20),
        json_schema_extra={"default": "5%"},
        description="How far a backend's share may be from its weight, relative to it.",
        examples=["5%", 0.05],
    )
    max_flows: Annotated[int | None, values.max_flows] = _key(
        "Budget of flows for the blocks of the service. The least tolerance that fits is used, whatever `tolerance` "
        "says; `xenoovs validate` shows it. Left out: no budget.",
        64,
    )
    rewrite_source_mac: Annotated[Mac | bool, values.source_mac] = Field(
        default=False,
        description="Rewrite the Ethernet source: true to vip_mac, or to a MAC; multiplies hardware entries by the "
        "number of client-side MACs.",
        examples=[True, "02:00:5e:10:00:01"],
    )
    churn: Annotated[Churn, values.choice(Churn)] = Field(
        default=Churn.BALANCED,
        description="What a change of weights spares: least (as few clients move as can be), compact (as few hardware "
        "entries as can be), or balanced.",
    )
    health: HealthConfig = Field(default_factory=HealthConfig, description="Health check of the backends.")
    drain: DrainConfig = Field(
        default_factory=DrainConfig, description="Open connections of clients that get another backend."
    )
    notify: NotifyConfig = Field(
        default_factory=NotifyConfig, description="Command to run when a backend or the service changes its state."
    )
    announce: Annotated[bool, values.flag] = Field(
        default=True, description="Whether its VIPs are announced where the file has `announce`.", examples=[False]
    )
    agent_check: AgentCheckConfig = Field(
        default_factory=AgentCheckConfig, description="Weight and state that servers advertise."
    )
    returns: Annotated[Returns, values.choice(Returns)] = Field(
        default=Returns.DIRECT,
        alias="return",  # which is no name in Python
        description="How answers of backends behind tunnels reach the clients: direct (the backends send them by "
        "another way) or switch (back by the tunnel, and by the ingress port).",
    )
    weights: WeightsConfig = _key(  # type: ignore[valid-type]  # made by a call
        "Weights from a file. Backends that it names have no `weight` of their own; others need one."
    )
    backends: list[BackendConfig] = Field(
        min_length=1, max_length=MAX_BACKENDS, description="The servers, at least one with a weight."
    )


def _defaults_for(form: type[BaseModel], *own: str) -> dict[str, Any]:
    """Return the keys of a form for `create_model`, none of them required, without those that each has for itself."""
    fields = {}
    for name, declared in form.model_fields.items():
        if name not in own:
            optional = copy(declared)
            optional.default, optional.default_factory = None, None
            fields[name] = (declared.rebuild_annotation(), optional)
    return fields


ServiceDefaults = create_model(
    "ServiceDefaultsConfig",
    __base__=_Mapping,
    __doc__="Keys of services that do not have them.",
    **_defaults_for(ServiceConfig, "name", "backends", "weights"),
)
BackendDefaults = create_model(
    "BackendDefaultsConfig",
    __base__=_Mapping,
    __doc__="Keys of backends that do not have them.",
    **_defaults_for(BackendConfig, "name", "address", "remote"),
)


class RemoteConfig(_Mapping):
    """Another host's end of a tunnel."""

    name: Annotated[str, values.name] = Field(description="Unique in the tunnel.", examples=["b"])
    address: Annotated[IPv4Address, values.tunnel_address] = Field(
        description="Where the host sends the tunnel packets for it.", examples=["192.168.200.1"]
    )
    aliases: TunnelAddresses = Field(
        default_factory=list,
        description="Its other addresses, each of them a path, with `by: address`.",
        examples=[["192.168.201.1"]],
    )


class PathsConfig(_Mapping):
    """The paths to each remote."""

    by: Annotated[PathSelector, values.choice(PathSelector)] = Field(
        default=PathSelector.SOURCE_PORT,
        description="source_port (the fabric hashes it: one megaflow for each source port in use), uplink (a port of "
        "the bridge) or address (one of several that the remote has); these two: one megaflow a block.",
    )
    count: Annotated[int, values.path_count] = Field(default=4, description="Number of paths by source port.")
    discover: Annotated[Discover | None, values.choice(Discover)] = _key(
        "How their source ports are found: ttl (the agent asks routers which of them take different ways), none (any "
        "ports), or list; left out: list with `ports`, else ttl.",
    )
    ports: SourcePorts = Field(
        default_factory=list, description="The source ports, with `discover: list`.", examples=[[50001, 50002]]
    )
    uplinks: PortNames = Field(
        default_factory=list,
        description="Ports of the bridge, with `by: uplink`; each of them is in `ingress`.",
        examples=[["p0", "p1"]],
    )


class PathProbeConfig(_Mapping):
    """Probes of paths, made by `xenoovs agent`."""

    port: Annotated[str, values.port_name] = Field(
        description="Internal port of the bridge that the agent sends and receives by.", examples=["xoar0"]
    )
    interval: Annotated[int, values.duration_ms] = Field(
        default=PathProbe("").interval_ms,
        json_schema_extra={"default": "10ms"},
        description="Time between two rounds; in each round one probe takes each path.",
    )
    timeout: Annotated[int, values.duration_ms] = Field(
        default=PathProbe("").timeout_ms,
        json_schema_extra={"default": "60ms"},
        description="A probe without an answer by then is lost.",
    )
    tos: Annotated[int, values.tos] = Field(
        default=PROBE_TOS,
        description="Type of service of probes, a multiple of 4. Three odd DSCPs near it ask for answers by other "
        "ways: with 0x20 they are 0x24, 0x2c and 0x34. The reflector returns every tunnel packet that has one of the "
        "four, so the host's own packets must not; choose a value that the fabric queues as it queues them.",
        examples=[32],
    )
    gateway: Annotated[Mac | None, values.gateway] = Field(
        default=None,
        json_schema_extra={"default": "auto"},
        description="MAC of the next hop towards the remotes; auto: the agent finds it.",
        examples=["02:00:5e:10:00:fe"],
    )


class HostTunnelConfig(_Mapping):
    """A tunnel that a host behind a port of the bridge encapsulates; xenoovs chooses the paths of its packets."""

    name: Annotated[str, values.name] = Field(description="Unique on its bridge.", examples=["rack7"])
    type: Annotated[TunnelType, values.host_tunnel_type] = Field(
        default=TunnelType.VXLAN, description="Encapsulation: vxlan (UDP 4789) or geneve (UDP 6081)."
    )
    local: Annotated[IPv4Address, values.tunnel_address] = Field(
        description="Address of the host's end.", examples=["192.168.200.2"]
    )
    host_port: Annotated[str, values.port_name] = Field(
        description="Port of the bridge that the host is behind.", examples=["pf0hpf"]
    )
    dst_port: Annotated[int | None, values.port] = _key("UDP destination port; left out: that of the type.", 4789)
    source_ports: Annotated[PortRange | None, values.ports] = _key(
        "UDP source ports that the host uses: `ip link add ... type vxlan srcport 49152 49216`. With paths by source "
        "port they limit the megaflows. Left out: the 28,232 default ports of Linux are assumed.",
        "49152-49215",
    )
    remotes: list[RemoteConfig] = Field(min_length=1, max_length=MAX_ITEMS, description="The other ends of the tunnel.")
    aliases: TunnelAddresses = Field(
        default_factory=list,
        description="Other addresses of the host, to which remotes send with `by: address`.",
        examples=[["192.168.201.2"]],
    )
    paths: PathsConfig = Field(default_factory=PathsConfig, description="The paths to each remote.")
    blocks: Annotated[int, values.blocks] = Field(
        default=64, description="Into how many parts the packets for a remote are split; a power of two, 16 to 256."
    )
    probe: PathProbeConfig = _key("Probes of paths; left out: no block leaves a path by itself.")
    margin: Annotated[int | None, values.margin_us] = Field(
        default=None,
        json_schema_extra={"default": "auto"},
        description="How much later than the best path a path may answer before blocks leave it; auto: from the noise.",
        examples=["30us"],
    )
    reflect: Annotated[Reflect, values.choice(Reflect)] = Field(
        default=Reflect.L3,
        description="How flows answer the probes of others: l3 (a routed fabric), l2 (one Ethernet: addresses of IP "
        "stay) or off. The remotes need the same.",
    )


class IpsecConfig(_Mapping):
    """IPsec by Open vSwitch's own monitor (ovs-monitor-ipsec); exactly one of the first three keys."""

    psk_file: Annotated[str | None, values.file] = _key("File with the pre-shared key.", "/etc/xenoovs/psk")
    remote_cert: Annotated[str | None, values.file] = _key(
        "Certificate of the remotes that they signed themselves.", "/etc/keys/remote.pem"
    )
    remote_name: Annotated[str | None, values.host] = _key(
        "Common name in the certificate of the remotes, which the authority of Open vSwitch signed.", "rack7"
    )
    offload: Annotated[IpsecOffload, values.choice(IpsecOffload)] = Field(
        default=IpsecOffload.NONE,
        description="What the NIC does of it: none, crypto, or packet. Only with packet can it encapsulate too.",
    )


class SwitchTunnelConfig(_Mapping):
    """A tunnel of Open vSwitch itself, behind which backends are: an entry of `tunnels` without `host_port`."""

    name: Annotated[str, values.port_name] = Field(
        description="Of its port on the bridge; `egress` of backends names it.", examples=["gnv0"]
    )
    type: Annotated[TunnelType, values.choice(TunnelType)] = Field(
        description="Encapsulation: geneve (UDP 6081), vxlan (UDP 4789) or gre."
    )
    local: Annotated[IPv4Address, values.tunnel_address] = Field(
        description="Our end; a device of this host has this address.", examples=["192.168.77.1"]
    )
    key: Annotated[int | None, values.tunnel_key] = _key(
        "VNI (24 bits), or GRE key (32), of backends that name none.", 5001
    )
    ports: Annotated[TunnelPorts | None, values.choice(TunnelPorts)] = _key(
        "shared (one port to all remotes, and flows say to which) or each (a port for each remote, such as "
        "gnv0-c0a84d0b); left out: shared, each with `ipsec`.",
    )
    dst_port: Annotated[int | None, values.port] = _key(
        "UDP destination port; left out: that of the type. With `ipsec` no other: ovs-monitor-ipsec has policies for "
        "that one alone.",
        6081,
    )
    ipsec: IpsecConfig = _key("Encrypt what the tunnel carries; left out: nothing is encrypted.")


_OF_HOSTS = frozenset(HostTunnelConfig.model_fields) - frozenset(SwitchTunnelConfig.model_fields)


def _kind_of_tunnel(value: Any) -> str:
    """Return which form an entry of `tunnels` has: one with a key that only tunnels of hosts have is such a one."""
    return "host" if isinstance(value, dict) and not _OF_HOSTS.isdisjoint(value) else "switch"


TUNNEL_FORMS: dict[str, type[BaseModel]] = {"host": HostTunnelConfig, "switch": SwitchTunnelConfig}
"""The forms of a tunnel by what the path of a mistake has behind the index."""
TunnelConfig = Annotated[
    Annotated[SwitchTunnelConfig, Tag("switch")] | Annotated[HostTunnelConfig, Tag("host")],
    Discriminator(_kind_of_tunnel),
]


class DefaultsConfig(_Mapping):
    """Keys that services and backends of this file, and of files that it includes, have unless they say otherwise. Of a
    mapping such as `health`, single keys. The defaults of the nearest file go first."""

    services: ServiceDefaults = _key("For all services.")  # type: ignore[valid-type]  # made of the form of a service
    backends: BackendDefaults = _key("For all backends of these services.")  # type: ignore[valid-type]


Includes = Annotated[list[Annotated[str, values.included]], _MOST, _LISTED, _OneOrMany(values.included)]
_INCLUDE = _key(
    "Files with more services, or directories whose *.yaml and *.yml files are read by name. A path counts from the "
    "directory of the file that names it; symbolic links are followed. Included files have `services`, `include` and "
    "`defaults`.",
    "conf.d",
    ["web.yaml", "/etc/xenoovs/conf.d"],
)
_FOR_ALL = "For all services without keys of their own."


class IncludedConfig(_Mapping):
    """A file that another one includes."""

    version: Annotated[int | None, values.version] = None
    services: list[Any] = []
    include: Includes = _INCLUDE
    defaults: DefaultsConfig = Field(default_factory=DefaultsConfig)


class FileConfig(_Mapping):
    """A xenoovs config."""

    version: Annotated[int, values.version] = Field(description="Form of this file.")
    switch: SwitchConfig = Field(description="The bridge of this config, with its ports.")
    health: HealthConfig = Field(default_factory=HealthConfig, description=_FOR_ALL)
    drain: DrainConfig = Field(default_factory=DrainConfig, description=_FOR_ALL)
    notify: NotifyConfig = Field(default_factory=NotifyConfig, description=_FOR_ALL)
    # None where it is left out, which is no value that a file can have.
    announce: AnnounceConfig = _key("Announce the VIPs by BGP; left out: they are not announced.")
    agent_check: AgentCheckConfig = Field(default_factory=AgentCheckConfig, description=_FOR_ALL)
    services: list[ServiceConfig] = Field(max_length=values.MAX_SERVICES)
    tunnels: list[TunnelConfig] = Field(
        default_factory=list,
        max_length=MAX_ITEMS,
        description="Tunnels of Open vSwitch, behind which backends are; with `host_port` tunnels of hosts, whose "
        "packets get the better of several paths (`services` may then be empty).",
    )
    include: Includes = _INCLUDE
    defaults: DefaultsConfig = Field(default_factory=DefaultsConfig)


def json_schema() -> dict[str, Any]:
    """Return the form as JSON Schema, draft 2020-12, for editors."""
    form = _without_noise(FileConfig.model_json_schema())
    for part in (Health(ProbeKind.NONE), Drain(), Notify(()), AgentCheck(0)):
        settings = settings_of(part)
        for key, described in form["$defs"][f"{type(part).__name__}Config"]["properties"].items():
            if key in settings and "examples" not in described:
                described["default"] = settings[key]
    # Of an agent's file in a fleet; `model.fleet.join` reads it before a config is checked.
    form["$defs"]["SwitchConfig"]["properties"]["fleet_ports"] = {
        "description": "Only with `agent --fleet`: which port of this bridge a name in the fleet's config means.",
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kind": "mapping of names to ports",
        "examples": [{"storage": "en3f0pf0sf0"}],
    }
    # Of the config of a fleet; `model.fleet.parse_fleet` reads it before a config is checked.
    group = {"type": "string", "pattern": values.NAME_PATTERN}
    form["$defs"]["ServiceConfig"]["properties"]["groups"] = {
        "description": "Only in the config of a fleet: group, or groups, of DPUs that serve it (`fleet add-dpu "
        "--groups`); left out: all DPUs. Services of different groups must claim different packets too.",
        "anyOf": [group, {"type": "array", "items": group, "minItems": 1}],
        "x-kind": "name, or list of names",
        "examples": ["edge", ["edge", "core"]],
    }
    # What a backend need not have if `defaults` have it.
    form["$defs"]["BackendConfig"]["required"].remove("weight")
    # Included files have the same schema. They are known by having none of the keys that only the first file has.
    del form["required"]
    only_first = [{"required": [key]} for key in FileConfig.model_fields if key not in IncludedConfig.model_fields]
    form["if"] = {"anyOf": only_first}
    form["then"] = {"required": ["version", "switch"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xenoovs config", **form}


def _without_noise(node: Any) -> Any:
    """Return the schema without titles that pydantic makes of names, and without null defaults, which are no values."""
    if isinstance(node, list):
        return [_without_noise(item) for item in node]
    if not isinstance(node, dict):
        return node
    noise = {
        key
        for key, value in node.items()
        if (key == "title" and isinstance(value, str)) or (key == "default" and value is None)
    }
    return {key: _without_noise(value) for key, value in node.items() if key not in noise}
