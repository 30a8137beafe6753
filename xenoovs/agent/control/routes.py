"""What the control API offers: its routes, requests and answers as values, and the OpenAPI document made from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from xenoovs import __version__
from xenoovs.agent.snapshot import BlockView, Event, Snapshot
from xenoovs.config import values
from xenoovs.config.values import Number
from xenoovs.errors import RequestRefused

# What the control API is asked and what it answers, as values; the OpenAPI document is made from them too.


API_VERSION = 1
MAX_BODY_BYTES = 64 * 1024
MAX_BLOCKS = 1_000
"""In one answer; a service may have 65,536."""
_MOST_DIGITS = 15

R = TypeVar("R")


def _whole(text: object) -> int:
    told = str(text)
    if not told.isascii() or not told.isdigit() or len(told) > _MOST_DIGITS:
        raise ValueError(f"{told[:40]!r} is not a whole number, 0 or more")
    return int(told)


_NUMBER: dict[str, Any] = {"parse": _whole, "schema": {"minimum": 0}}
_NAME: dict[str, Any] = {"parse": values.name, "schema": {"pattern": values.NAME_PATTERN}}
_WEIGHT: dict[str, Any] = {
    "parse": values.weight,
    "schema": {"type": "number", "minimum": 0, "maximum": values.MAX_WEIGHT},
}


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """One backend of one service, by their names in the config."""

    service: str = field(metadata=_NAME)
    backend: str = field(metadata=_NAME)


@dataclass(frozen=True, slots=True)
class WeightRequest:
    """A backend and its weight, relative to the others, at most 9 decimals; 0 drains it."""

    service: str = field(metadata=_NAME)
    backend: str = field(metadata=_NAME)
    weight: Fraction = field(metadata=_WEIGHT)


@dataclass(frozen=True, slots=True)
class EmptyRequest:
    """Nothing to say: `{}`, or no body."""


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """since: only events with a number above this one."""

    since: int = field(default=0, metadata=_NUMBER)


@dataclass(frozen=True, slots=True)
class BlocksQuery:
    """service: by its name in the config. after: leave out so many, those of the answers before."""

    service: str = field(metadata=_NAME)
    after: int = field(default=0, metadata=_NUMBER)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change.

    message:       for people.
    is_applied:    whether the bridge is so already; if not, the agent goes on trying, or is paused.
    flow_mods:     sent for it.
    clients_moved: by service, the share of its clients that got another backend, 0..1.
    """

    message: str
    is_applied: bool = True
    flow_mods: int = 0
    clients_moved: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """All that the agent knows but blocks and events.

    version: of xenoovs. api_version: of this form, raised when it changes.
    """

    api_version: int
    version: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BlockList:
    """Blocks of one service on the bridge, in the order of the address space.

    total: how many it has. next: what `after` has to be for those that follow; null at the end.
    """

    service: str
    blocks: tuple[BlockView, ...]
    total: int
    next: int | None


@dataclass(frozen=True, slots=True)
class EventList:
    """Events, oldest first.

    last:      the number of the newest, for the next `since`.
    started_s: UTC, when the agent started; another one counts its events from 1 again.
    """

    events: tuple[Event, ...]
    last: int
    started_s: float


@dataclass(frozen=True, slots=True)
class ProblemDetail:
    """`code`: for programs, such as `unknown_backend`; `message`: what happened, with which value, what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The answer to every request that could not be done."""

    error: ProblemDetail


def parse_request(data: bytes, kind: type[R]) -> R:
    """A request from its JSON. Unknown, missing and repeated keys are refused. Raises RequestRefused."""
    try:
        return _build(_document(data), kind)
    except ValueError as error:
        raise RequestRefused(f"the request cannot be used: {error}", status=400, code="bad_request") from None


def parse_query(pairs: Iterable[tuple[str, str]], kind: type[R]) -> R:
    """The same from the parameters in an address, in their order there. Raises RequestRefused."""
    try:
        return _build(_unique(list(pairs)), kind)
    except ValueError as error:
        raise RequestRefused(f"the address cannot be used: {error}", status=400, code="bad_request") from None


def _document(data: bytes) -> dict[str, object]:
    if not data.strip():
        return {}
    try:
        found = json.loads(data, object_pairs_hook=_unique, parse_float=Number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object; write one such as {}")
    return found


def _build(document: dict[str, object], kind: type[R]) -> R:
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(document.keys() - known)
    missing = [name for name, one in known.items() if name not in document and one.default is MISSING]
    if unknown:
        raise ValueError(f"{unknown[0][:63]!r} is not a key here; {_keys(known)}")
    if missing:
        raise ValueError(f"{missing[0]} is missing; {_keys(known)}")
    values: dict[str, Any] = {}
    for name in document:
        try:
            values[name] = known[name].metadata["parse"](document[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return kind(**values)


def _keys(known: dict[str, Any]) -> str:
    return f"the keys are {', '.join(known)}" if known else "it has no keys"


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `request`: None where it has no body. `query`: None where its address has no parameters.

    `is_stream`: JSON values, one a line, without an end.
    refusals: the statuses besides 400, 401 and 403 that it may answer with (RFC 9110).
    """

    name: str
    method: str
    path: str
    summary: str
    answer: type
    request: type | None = None
    query: type | None = None
    is_stream: bool = False
    refusals: tuple[int, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes something, which not everybody may."""
        return self.method != "GET"


ROUTES = (
    Route("status", "GET", "/v1/status", "Services, backends, overrides, and what is wrong; without blocks.", Status),
    Route(
        "blocks",
        "GET",
        "/v1/blocks",
        "Blocks of one service with their verdicts, at most 1,000 in one answer.",
        BlockList,
        query=BlocksQuery,
        refusals=(404,),
    ),
    Route("events", "GET", "/v1/events", "The last events, at most 1,000.", EventList, query=EventsQuery),
    Route(
        "events_stream",
        "GET",
        "/v1/events/stream",
        "Events as they happen, one JSON object a line; an empty line every 15 s while nothing happens.",
        Event,
        query=EventsQuery,
        is_stream=True,
    ),
    Route(
        "drain",
        "POST",
        "/v1/drain",
        "Give a backend no clients, until undrain or until the config changes its weight.",
        Done,
        request=BackendRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "undrain",
        "POST",
        "/v1/undrain",
        "Go back to the weight of the config.",
        Done,
        request=BackendRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "weight",
        "POST",
        "/v1/weight",
        "Give a backend another weight than the config.",
        Done,
        request=WeightRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "pause",
        "POST",
        "/v1/pause",
        "Look on and tell, but change nothing.",
        Done,
        request=EmptyRequest,
        refusals=(507,),
    ),
    Route(
        "resume",
        "POST",
        "/v1/resume",
        "Make the bridge right again after a pause.",
        Done,
        request=EmptyRequest,
        refusals=(507,),
    ),
    Route(
        "confirm",
        "POST",
        "/v1/confirm",
        "Keep a change that waits to be confirmed.",
        Done,
        request=EmptyRequest,
        refusals=(409,),
    ),
)


# The OpenAPI 3.1 document of the control API, made from the table of routes and the dataclasses.


_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Fraction: {"type": "number"},
    object: {},
}
_MEANING = {
    400: "The request cannot be used.",
    401: "The token is missing or wrong.",
    403: "This way in only shows, or the host is another.",
    404: "There is no such service or backend.",
    409: "It cannot be done now.",
    507: "It cannot be saved, so it was not done.",
}


def openapi_document() -> dict[str, Any]:
    """Deterministic: routes in the order of the table, schemas by name."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "xenoovs agent",
            "version": f"v{API_VERSION}",
            "summary": f"Control and status of a running agent (xenoovs {__version__.partition('+')[0]}).",
        },
        "servers": [{"url": "http://localhost", "description": "The agent's unix socket, or where --api says."}],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": _SECURITY},
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of --token-file, over TCP."},
    "basic": {"type": "http", "scheme": "basic", "description": "The same token as password; any user name."},
}


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    media = "application/x-ndjson" if route.is_stream else "application/json"
    refusals = (400, 401, 403, *route.refusals)
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.query is not None:
        operation["description"] = _description(route.query)
        operation["parameters"] = [_parameter(route.query, one) for one in fields(route.query)]
    if route.request is not None:
        body = {"schema": _schema(route.request, schemas)}
        operation["requestBody"] = {
            "required": bool(fields(route.request)),
            "content": {"application/json": body},
        }
    answers = {"200": {"description": "Done.", "content": {media: {"schema": _schema(route.answer, schemas)}}}}
    wrong = {"content": {"application/json": {"schema": _schema(Problem, schemas)}}}
    operation["responses"] = answers | {str(status): {"description": _MEANING[status], **wrong} for status in refusals}
    return operation


def _parameter(kind: type, one: Any) -> dict[str, Any]:
    schema = {**_schema(get_type_hints(kind)[one.name], {}), **_extra(one)}
    if one.default is not MISSING:
        schema["default"] = one.default
    return {"name": one.name, "in": "query", "required": one.default is MISSING, "schema": schema}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a type; dataclasses and enums are put into `schemas`."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        choices = [arg for arg in get_args(kind) if arg is not NoneType]
        return {"anyOf": [*(_schema(choice, schemas) for choice in choices), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(kind)[0], schemas)}
    if origin in (dict, Mapping):
        _, value = get_args(kind)
        return {"type": "object", "additionalProperties": _schema(value, schemas)}
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}
        schemas[kind.__name__] = _object(kind, schemas) if is_dataclass(kind) else _enum(kind)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {one.name: {**_schema(hints[one.name], schemas), **_extra(one)} for one in fields(kind)}
    # Answers always have all keys; requests must have those without a default.
    is_request = any("parse" in one.metadata for one in fields(kind))
    needed = [one.name for one in fields(kind) if not is_request or one.default is MISSING]
    described = {"type": "object", "description": _description(kind), "properties": properties, "required": needed}
    return described | ({"additionalProperties": False} if is_request or not properties else {})


def _extra(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = one.metadata.get("schema", {})
    return found


def _enum(kind: type[Enum]) -> dict[str, Any]:
    return {"type": "string", "description": _description(kind), "enum": [member.value for member in kind]}


def _description(kind: type) -> str:
    return re.sub(r"\s+", " ", kind.__doc__ or "").strip()
