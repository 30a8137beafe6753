"""The form of a config file, declared once: it checks files, and the JSON Schema for editors is made from it.

Importing this imports pydantic (a quarter of a second): do it only where a config is read.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from xenoovs.config import values
from xenoovs.config.values import MatchField
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import (
    MAX_KEY_BITS,
    AllDown,
    Churn,
    DrainMode,
    Initial,
    OtherTraffic,
    PortRange,
    ProbeKind,
    Protocol,
)

# The form of a health check. Importing this imports pydantic: do it only where a config is read.


_DURATION = {"type": "string", "pattern": values.DURATION_PATTERN}
_COUNT = {"type": "integer", "minimum": 1, "maximum": values.MAX_COUNT}
_PROBE_PORT = {"type": "integer", "minimum": 1, "maximum": values.MAX_PORT}
_DEVICE = {"type": "string", "pattern": values.DEVICE_PATTERN}
_NAME = {"type": "string", "pattern": values.NAME_PATTERN}
_PERCENT = {"type": "string", "pattern": values.PERCENT_PATTERN}
_PATH = {"type": "string", "pattern": values.PATH_PATTERN}
_QUERY = {"type": "string", "pattern": values.QUERY_PATTERN}
_HOST = {"type": "string", "pattern": values.HOST_PATTERN}
_FILE = {"type": "string", "pattern": values.FILE_PATTERN}
_STATUS = {
    "anyOf": [
        {"type": "integer", "minimum": 100, "maximum": 599},
        {"type": "string", "pattern": values.STATUS_PATTERN},
    ]
}
_COMMAND = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": values.MAX_WORDS}
_TEXT = {"type": "string", "pattern": values.TEXT_PATTERN}


def _health_words(kinds: type[ProbeKind | Initial | AllDown]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [member.value for member in kinds]})


Duration = Annotated[int | None, PlainValidator(values.duration_ms), WithJsonSchema(_DURATION)]
Count = Annotated[int | None, PlainValidator(values.count), WithJsonSchema(_COUNT)]
Port = Annotated[int | None, PlainValidator(values.port), WithJsonSchema(_PROBE_PORT)]
Part = Annotated[Fraction | None, PlainValidator(values.part), WithJsonSchema(_PERCENT)]
Device = Annotated[str | None, PlainValidator(values.device), WithJsonSchema(_DEVICE)]
Namespace = Annotated[str | None, PlainValidator(values.name), WithJsonSchema(_NAME)]
Path = Annotated[str | None, PlainValidator(values.path), WithJsonSchema(_PATH)]
Host = Annotated[str | None, PlainValidator(values.host), WithJsonSchema(_HOST)]
File = Annotated[str | None, PlainValidator(values.file), WithJsonSchema(_FILE)]
Status = Annotated[tuple[int, int] | None, PlainValidator(values.status), WithJsonSchema(_STATUS)]
Flag = Annotated[bool | None, PlainValidator(values.flag), WithJsonSchema({"type": "boolean"})]
Command = Annotated[tuple[str, ...] | None, PlainValidator(values.command), WithJsonSchema(_COMMAND)]
Query = Annotated[str | None, PlainValidator(values.query), WithJsonSchema(_QUERY)]
Text = Annotated[str | None, PlainValidator(values.text), WithJsonSchema(_TEXT)]
Probe = Annotated[ProbeKind | None, PlainValidator(partial(values.choice, kinds=ProbeKind)), _health_words(ProbeKind)]
FirstState = Annotated[Initial | None, PlainValidator(partial(values.choice, kinds=Initial)), _health_words(Initial)]
OnAllDown = Annotated[AllDown | None, PlainValidator(partial(values.choice, kinds=AllDown)), _health_words(AllDown)]


class HealthConfig(BaseModel):
    """The health check of backends, made by `xenoovs agent`. A key of a service goes before the one of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    probe: Probe = Field(
        default=None, json_schema_extra={"default": "none"}, description="What is sent to each backend."
    )
    port: Port = Field(
        default=None,
        examples=[8080],
        description="Of tcp, http, https, dns and udp probes; left out: the first port of the service.",
    )
    interface: Device = Field(
        default=None, examples=["en3f0pf0sf0"], description="Device to ask by; an arp probe needs one."
    )
    netns: Namespace = Field(
        default=None, examples=["probes"], description="Network namespace to ask from (see ip-netns(8))."
    )
    path: Path = Field(
        default=None, json_schema_extra={"default": "/"}, description="Asked for by an http or https probe."
    )
    host: Host = Field(
        default=None,
        examples=["www.example.org"],
        description="Host header of an http or https probe; left out: the address.",
    )
    status: Status = Field(
        default=None,
        json_schema_extra={"default": "200-399"},
        examples=[204],
        description="Status, or range of them, with which an http or https probe is answered. Redirections are not "
        "followed.",
    )
    body: Text = Field(
        default=None,
        json_schema_extra={"default": ""},
        description="What the body of the answer must hold, within its first MiB.",
    )
    ca_file: File = Field(
        default=None,
        examples=["/etc/ssl/ca.pem"],
        description="Authorities that an https probe trusts (PEM); left out: those of the system.",
    )
    server_name: Host = Field(
        default=None,
        examples=["www.example.org"],
        description="Name in the certificate, also sent as SNI; left out: `host`, else the address.",
    )
    insecure: Flag = Field(
        default=None, json_schema_extra={"default": False}, description="An https probe takes any certificate."
    )
    command: Command = Field(
        default=None,
        examples=[["/usr/local/bin/check-web", "--quick"]],
        description="Of an exec probe: program and arguments, no shell; status 0 is good. It finds XENOOVS_ADDRESS, "
        "XENOOVS_MAC and XENOOVS_PORT in its environment. The agent runs programs only with --allow-exec.",
    )
    query: Query = Field(default=None, examples=["example.org"], description="Name whose address a dns probe asks for.")
    send: Text = Field(default=None, json_schema_extra={"default": ""}, description="Text of a udp probe.")
    expect: Text = Field(
        default=None, json_schema_extra={"default": ""}, description="What the answer to a udp probe must hold."
    )
    interval: Duration = Field(
        default=None, json_schema_extra={"default": "1s"}, description="From one probe to the next."
    )
    fast_interval: Duration = Field(
        default=None,
        json_schema_extra={"default": "250ms"},
        description="The same while results contradict the state; left out: a quarter of interval.",
    )
    timeout: Duration = Field(
        default=None,
        json_schema_extra={"default": "500ms"},
        description="Without an answer by then the probe has failed; left out: half of interval.",
    )
    rise: Count = Field(
        default=None, json_schema_extra={"default": 2}, description="So many answers in a row bring a backend back."
    )
    fall: Count = Field(
        default=None, json_schema_extra={"default": 3}, description="So many failures in a row take a backend out."
    )
    jitter: Part = Field(
        default=None,
        json_schema_extra={"default": "10%"},
        description="Each interval is shorter by up to this part, by chance, so that probes do not go all at once.",
    )
    ramp: Duration = Field(
        default=None,
        examples=["30s"],
        description="Slow start: a backend that comes or comes back gets its clients in eight steps during this time; "
        "left out: all at once.",
    )
    initial: FirstState = Field(
        default=None,
        json_schema_extra={"default": "trusted"},
        description="A new backend: trusted (the first result decides) or closed (out until `rise` answers).",
    )
    max_down: Part = Field(
        default=None,
        json_schema_extra={"default": "50%"},
        description="No more than this part of the backends is taken out at once, rounded down; the rest stays in.",
    )
    on_all_down: OnAllDown = Field(
        default=None,
        json_schema_extra={"default": "keep"},
        description="When no backend answers: keep (max_down holds, clients stay) or drop (their packets).",
    )


# The form of `drain`. Importing this imports pydantic: do it only where a config is read.


Mode = Annotated[
    DrainMode | None,
    PlainValidator(partial(values.choice, kinds=DrainMode)),
    WithJsonSchema({"enum": [mode.value for mode in DrainMode]}),
]


class DrainConfig(BaseModel):
    """Open connections of clients that get another backend. A key of a service goes before the one of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: Mode = Field(
        default=None,
        json_schema_extra={"default": "none"},
        description="none (clients move at once) or pin (open connections stay with the old backend for a while, new "
        "TCP connections go to the new one).",
    )
    timeout: Duration = Field(
        default=None,
        json_schema_extra={"default": "60s"},
        description="After which clients move with all that is still open.",
    )
    rest: Duration = Field(
        default=None,
        json_schema_extra={"default": "10s"},
        description="They move earlier when the old backend has got no packet of them for so long.",
    )


MAX_SERVICES = 1_000
MAX_BACKENDS = 1_000
MAX_ITEMS = 1_000  # addresses, port ranges or ports of the bridge in one list

_DATAPATH_ID = {"type": "string", "pattern": values.DATAPATH_ID_PATTERN}
_PORT_NAME = {"type": "string", "pattern": values.PORT_NAME_PATTERN}
_MAC = {"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"}
_VIP = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
_PORT = {"type": "integer", "minimum": 0, "maximum": values.MAX_PORT}
_PORTS = {"anyOf": [_PORT, {"type": "string", "pattern": values.PORT_RANGE_PATTERN}]}
_WEIGHT = {"type": "number", "minimum": 0, "maximum": values.MAX_WEIGHT}
_TOLERANCE = {"anyOf": [_PERCENT, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]}
_POSITIONS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": values.HIGHEST_BIT},
    "minItems": 1,
    "maxItems": MAX_KEY_BITS,
    "uniqueItems": True,
}
_BITS = {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": MAX_KEY_BITS}, _POSITIONS]}


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_ITEMS}]})


def _words(kinds: type[Protocol | Churn | OtherTraffic | MatchField]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [member.value for member in kinds]})


def _choice(kinds: type[Any]) -> PlainValidator:
    return PlainValidator(partial(values.choice, kinds=kinds))


_MOST, _LISTED = Field(max_length=MAX_ITEMS), BeforeValidator(values.one_or_many)

Name = Annotated[str, PlainValidator(values.name), WithJsonSchema(_NAME)]
PortName = Annotated[str, PlainValidator(values.port_name), WithJsonSchema(_PORT_NAME)]
PortNames = Annotated[list[PortName], _MOST, _LISTED, _one_or_many(_PORT_NAME)]
DatapathId = Annotated[int | None, PlainValidator(values.datapath_id), WithJsonSchema(_DATAPATH_ID)]
MacAddress = Annotated[Mac | None, PlainValidator(values.mac), WithJsonSchema(_MAC)]
SourceMac = Annotated[
    Mac | bool, PlainValidator(values.source_mac), WithJsonSchema({"anyOf": [{"type": "boolean"}, _MAC]})
]
Vips = Annotated[list[Annotated[IPAddress, PlainValidator(values.vip)]], _MOST, _LISTED, _one_or_many(_VIP)]
Ports = Annotated[list[Annotated[PortRange, PlainValidator(values.ports)]], _MOST, _LISTED, _one_or_many(_PORTS)]
Weight = Annotated[Fraction, PlainValidator(values.weight), WithJsonSchema(_WEIGHT)]
Tolerance = Annotated[Fraction, PlainValidator(values.tolerance), WithJsonSchema(_TOLERANCE)]
MaxFlows = Annotated[
    int | None,
    PlainValidator(values.max_flows),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": values.MAX_FLOWS}),
]
Bits = Annotated[str | int | tuple[int, ...], PlainValidator(values.bits), WithJsonSchema(_BITS)]
Version = Annotated[int, PlainValidator(values.version), WithJsonSchema({"const": 1})]


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SwitchConfig(_Mapping):
    """The bridge and its ports."""

    bridge: Annotated[str, PlainValidator(values.device), WithJsonSchema(_DEVICE)] = Field(
        default="ovsbr1", description="Open vSwitch bridge."
    )
    datapath_id: DatapathId = Field(
        default=None,
        description="Its datapath id, 16 hexadecimal digits in quotes (`ovs-vsctl get bridge ovsbr1 datapath_id`): "
        "tells bridges of one name on several hosts apart, and keeps the config off every other bridge. Left out: any.",
        examples=["0000c470bda056ac"],
    )
    ingress: PortNames = Field(description="Port, or ports, where client traffic enters.", examples=[["p0"]])
    egress: PortName = Field(description="Port towards backends that name none of their own.", examples=["p1"])
    other_traffic: Annotated[OtherTraffic, _choice(OtherTraffic), _words(OtherTraffic)] = Field(
        default=OtherTraffic.PASSTHROUGH,
        description="Packets of no service: passthrough (ingress to egress and back), normal (the bridge learns and "
        "switches), drop, or leave (flows of others decide).",
    )


class MatchConfig(_Mapping):
    """Which bits of a packet split the clients."""

    field: Annotated[MatchField, _choice(MatchField), _words(MatchField)] = Field(
        default=MatchField.SOURCE_ADDRESS,
        description="source_address: of the family of the VIPs, IPv4 without a VIP; or ipv4_source, ipv6_source. "
        "source_port: of TCP, UDP or SCTP; connections of one client then go to several backends.",
    )
    bits: Bits = Field(
        default="auto",
        description="auto: as few low bits as the tolerance needs, at most 16; a number: at most so many; a list: "
        "these bit positions, 0 the lowest, in the order in which blocks use them; of a port up to 15, of IPv6 up to "
        "111, because ovs-ofctl cannot match single bits of the first 16. Without a list, the lowest bit of a TCP "
        "source port comes last: Linux opens connections from even ports.",
        examples=["auto", 8, [8, 9, 0, 1]],
    )


class BackendConfig(_Mapping):
    """One server."""

    name: Name = Field(description="Unique in the service.", examples=["fips2"])
    mac: MacAddress = Field(
        default=None,
        description="Ethernet address of the server; left out: found on the network by its `address`, and followed "
        "when it changes.",
        examples=["02:00:5e:10:00:02"],
    )
    weight: Weight = Field(
        description="Share relative to the other weights, at most 9 decimals; 0: configured, gets nothing.",
        examples=[50, 0.5],
    )
    egress: Annotated[str | None, PlainValidator(values.port_name), WithJsonSchema(_PORT_NAME)] = Field(
        default=None, description="Port of the bridge towards it; left out: switch.egress.", examples=["pf0hpf"]
    )
    address: Annotated[IPAddress | None, PlainValidator(values.server_address), WithJsonSchema(_VIP)] = Field(
        default=None,
        description="Its own address, where health probes ask, and by which a MAC that is left out is found.",
        examples=["192.0.2.21"],
    )


class ServiceConfig(_Mapping):
    """What clients connect to, and the servers that answer."""

    name: Name = Field(description="Unique in the file.", examples=["dns"])
    vip: Vips = Field(
        default_factory=list,
        description="Address, or addresses, that clients connect to; left out: every packet of the family that enters.",
        examples=["192.0.2.10", ["192.0.2.10", "2001:db8::10"]],
    )
    protocol: Annotated[Protocol | None, _choice(Protocol), _words(Protocol)] = Field(
        default=None, description="Left out: any."
    )
    ports: Ports = Field(
        default_factory=list,
        description="Destination ports and ranges; left out: any.",
        examples=[[53], [80, "8000-8003"]],
    )
    vip_mac: MacAddress = Field(
        default=None,
        description="Answer ARP for the IPv4 VIPs with this MAC, and through the controller neighbour solicitations "
        "for the IPv6 VIPs; left out: do not answer.",
        examples=["02:00:5e:10:00:01"],
    )
    match: MatchConfig = Field(default_factory=MatchConfig, description="Which bits of a packet split the clients.")
    tolerance: Tolerance = Field(
        default=Fraction(1, 20),
        json_schema_extra={"default": "5%"},
        description="How far a backend's share may be from its weight, relative to it.",
        examples=["5%", 0.05],
    )
    max_flows: MaxFlows = Field(
        default=None,
        description="Budget of flows for the blocks of the service. The least tolerance that fits is used, whatever "
        "`tolerance` says; `xenoovs validate` shows it. Left out: no budget.",
        examples=[64],
    )
    rewrite_source_mac: SourceMac = Field(
        default=False,
        description="Rewrite the Ethernet source: true to vip_mac, or to a MAC; multiplies hardware entries by the "
        "number of client-side MACs.",
    )
    churn: Annotated[Churn, _choice(Churn), _words(Churn)] = Field(
        default=Churn.BALANCED,
        description="What a change of weights spares: least (as few clients move as can be), compact (as few hardware "
        "entries as can be), or balanced.",
    )
    health: HealthConfig = Field(default_factory=HealthConfig, description="Health check of the backends.")
    drain: DrainConfig = Field(
        default_factory=DrainConfig, description="Open connections of clients that get another backend."
    )
    backends: list[BackendConfig] = Field(
        min_length=1, max_length=MAX_BACKENDS, description="The servers, at least one with a weight."
    )


class FileConfig(_Mapping):
    """A xenoovs config."""

    version: Version = Field(description="Form of this file.")
    switch: SwitchConfig
    health: HealthConfig = Field(
        default_factory=HealthConfig, description="For all services that do not say it themselves."
    )
    drain: DrainConfig = Field(
        default_factory=DrainConfig, description="For all services that do not say it themselves."
    )
    services: list[ServiceConfig] = Field(max_length=MAX_SERVICES)


def json_schema() -> dict[str, Any]:
    """The form as JSON Schema, draft 2020-12, for editors."""
    form = _without_noise(FileConfig.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xenoovs config", **form}


def _without_noise(node: Any) -> Any:
    """Less the titles that pydantic makes of class and key names, and the null defaults, which no file may hold."""
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
