"""The form of a health check. Importing this imports pydantic: do it only where a config is read."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from xenoovs.config import fields, health_fields
from xenoovs.model.health import AllDown, Initial, ProbeKind

_DURATION = {"type": "string", "pattern": health_fields.DURATION_PATTERN}
_COUNT = {"type": "integer", "minimum": 1, "maximum": health_fields.MAX_COUNT}
_PORT = {"type": "integer", "minimum": 1, "maximum": fields.MAX_PORT}
_DEVICE = {"type": "string", "pattern": fields.PORT_NAME_PATTERN}
_NAME = {"type": "string", "pattern": fields.NAME_PATTERN}
_PERCENT = {"type": "string", "pattern": fields.PERCENT_PATTERN}
_PATH = {"type": "string", "pattern": health_fields.PATH_PATTERN}
_QUERY = {"type": "string", "pattern": health_fields.QUERY_PATTERN}
_HOST = {"type": "string", "pattern": health_fields.HOST_PATTERN}
_FILE = {"type": "string", "pattern": health_fields.FILE_PATTERN}
_STATUS = {
    "anyOf": [
        {"type": "integer", "minimum": 100, "maximum": 599},
        {"type": "string", "pattern": health_fields.STATUS_PATTERN},
    ]
}
_COMMAND = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": health_fields.MAX_WORDS}
_TEXT = {"type": "string", "pattern": health_fields.TEXT_PATTERN}


def _words(kinds: type[ProbeKind | Initial | AllDown]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [member.value for member in kinds]})


Duration = Annotated[int | None, PlainValidator(health_fields.duration_ms), WithJsonSchema(_DURATION)]
Count = Annotated[int | None, PlainValidator(health_fields.count), WithJsonSchema(_COUNT)]
Port = Annotated[int | None, PlainValidator(health_fields.port), WithJsonSchema(_PORT)]
Part = Annotated[Fraction | None, PlainValidator(health_fields.part), WithJsonSchema(_PERCENT)]
Device = Annotated[str | None, PlainValidator(fields.port_name), WithJsonSchema(_DEVICE)]
Namespace = Annotated[str | None, PlainValidator(fields.name), WithJsonSchema(_NAME)]
Path = Annotated[str | None, PlainValidator(health_fields.path), WithJsonSchema(_PATH)]
Host = Annotated[str | None, PlainValidator(health_fields.host), WithJsonSchema(_HOST)]
File = Annotated[str | None, PlainValidator(health_fields.file), WithJsonSchema(_FILE)]
Status = Annotated[tuple[int, int] | None, PlainValidator(health_fields.status), WithJsonSchema(_STATUS)]
Flag = Annotated[bool | None, PlainValidator(health_fields.flag), WithJsonSchema({"type": "boolean"})]
Command = Annotated[tuple[str, ...] | None, PlainValidator(health_fields.command), WithJsonSchema(_COMMAND)]
Query = Annotated[str | None, PlainValidator(health_fields.query), WithJsonSchema(_QUERY)]
Text = Annotated[str | None, PlainValidator(health_fields.text), WithJsonSchema(_TEXT)]
Probe = Annotated[ProbeKind | None, PlainValidator(partial(fields.choice, kinds=ProbeKind)), _words(ProbeKind)]
FirstState = Annotated[Initial | None, PlainValidator(partial(fields.choice, kinds=Initial)), _words(Initial)]
OnAllDown = Annotated[AllDown | None, PlainValidator(partial(fields.choice, kinds=AllDown)), _words(AllDown)]


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
