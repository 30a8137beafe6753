"""The form of a config file, declared once: it checks files, and the JSON Schema for editors is made from it.

Importing this imports pydantic (a quarter of a second): do it only where a config is read.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from xenoovs.config import fields, health_fields
from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.fields import MatchField
from xenoovs.config.health_schema import HealthConfig
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import OtherTraffic
from xenoovs.model.block_key import MAX_KEY_BITS
from xenoovs.model.service import Churn, PortRange, Protocol

MAX_SERVICES = 1_000
MAX_BACKENDS = 1_000
MAX_ITEMS = 1_000  # addresses, port ranges or ports of the bridge in one list

_DATAPATH_ID = {"type": "string", "pattern": fields.DATAPATH_ID_PATTERN}
_NAME = {"type": "string", "pattern": fields.NAME_PATTERN}
_PORT_NAME = {"type": "string", "pattern": fields.PORT_NAME_PATTERN}
_MAC = {"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"}
_VIP = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
_PORT = {"type": "integer", "minimum": 0, "maximum": fields.MAX_PORT}
_PORTS = {"anyOf": [_PORT, {"type": "string", "pattern": fields.PORT_RANGE_PATTERN}]}
_WEIGHT = {"type": "number", "minimum": 0, "maximum": fields.MAX_WEIGHT}
_PERCENT = {"type": "string", "pattern": fields.PERCENT_PATTERN}
_TOLERANCE = {"anyOf": [_PERCENT, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]}
_POSITIONS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": fields.HIGHEST_BIT},
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
    return PlainValidator(partial(fields.choice, kinds=kinds))


_Many = (Field(max_length=MAX_ITEMS), BeforeValidator(fields.one_or_many))

Name = Annotated[str, PlainValidator(fields.name), WithJsonSchema(_NAME)]
PortName = Annotated[str, PlainValidator(fields.port_name), WithJsonSchema(_PORT_NAME)]
PortNames = Annotated[list[PortName], *_Many, _one_or_many(_PORT_NAME)]
DatapathId = Annotated[int | None, PlainValidator(fields.datapath_id), WithJsonSchema(_DATAPATH_ID)]
MacAddress = Annotated[Mac | None, PlainValidator(fields.mac), WithJsonSchema(_MAC)]
SourceMac = Annotated[
    Mac | bool, PlainValidator(fields.source_mac), WithJsonSchema({"anyOf": [{"type": "boolean"}, _MAC]})
]
Vips = Annotated[list[Annotated[IPAddress, PlainValidator(fields.vip)]], *_Many, _one_or_many(_VIP)]
Ports = Annotated[list[Annotated[PortRange, PlainValidator(fields.ports)]], *_Many, _one_or_many(_PORTS)]
Weight = Annotated[Fraction, PlainValidator(fields.weight), WithJsonSchema(_WEIGHT)]
Tolerance = Annotated[Fraction, PlainValidator(fields.tolerance), WithJsonSchema(_TOLERANCE)]
MaxFlows = Annotated[
    int | None,
    PlainValidator(fields.max_flows),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": fields.MAX_FLOWS}),
]
Bits = Annotated[str | int | tuple[int, ...], PlainValidator(fields.bits), WithJsonSchema(_BITS)]
Version = Annotated[int, PlainValidator(fields.version), WithJsonSchema({"const": 1})]


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SwitchConfig(_Mapping):
    """The bridge and its ports."""

    bridge: PortName = Field(default="ovsbr1", description="Open vSwitch bridge.")
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
    egress: Annotated[str | None, PlainValidator(fields.port_name), WithJsonSchema(_PORT_NAME)] = Field(
        default=None, description="Port of the bridge towards it; left out: switch.egress.", examples=["pf0hpf"]
    )
    address: Annotated[IPAddress | None, PlainValidator(health_fields.server_address), WithJsonSchema(_VIP)] = Field(
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
