"""Requests and answers of the control API as records, and parsers of requests in JSON and in addresses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from xenoovs import __version__
from xenoovs.dataclass import dataclass
from xenoovs.display import unique_keys
from xenoovs.errors import RequestRefused
from xenoovs.model import values
from xenoovs.model.values import Number, Parser, show
from xenoovs.show.codec import REFERENCE, read_request, request_schema, schemas
from xenoovs.show.column import column, fields_of, record
from xenoovs.show.paths import BlockReason, PathReason, PlannedMove, RemoteView
from xenoovs.show.snapshot import BlockView, Event, Snapshot

API_VERSION = 1
MAX_BODY_BYTES = 64 * 1024
MAX_BLOCKS = 1_000
"""Most blocks in one answer; a service may have 65,536."""
_MAX_DIGITS = 15
_MAX_S = 366 * 86_400
"""Longest time after which a request may end by itself: a year."""

R = TypeVar("R")


def _whole_number(text: object) -> int:
    digits = str(text)
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ValueError(f"{digits[:40]!r} is not a whole number, 0 or more")
    return int(digits)


def _seconds(value: object) -> float:
    number = float(value.text) if isinstance(value, Number) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 1 <= number <= _MAX_S:
        raise ValueError(f"{show(value)} is not a time from 1 to {_MAX_S} seconds")
    return float(number)


_WHOLE_NUMBER = Parser(_whole_number, {"type": "integer", "minimum": 0})
_SECONDS = Parser(_seconds, {"type": "number", "minimum": 1, "maximum": _MAX_S})
_SERVER = values.matching(r"^[0-9A-Za-z._:%-]{1,63}$", "the name, MAC or address of a server")
_REMOTE = values.matching(
    r"^[0-9A-Za-z._-]{1,63}/[0-9A-Za-z._-]{1,63}$", "the name of a tunnel and a remote, such as rack7/b"
)


# Requests.


@record
class BackendRequest:
    """A backend of a service, by their names in the config; without `service`, a server in all services."""

    backend: str = column(
        "Name of the backend; without `service` also the MAC or the address of the server.", parser=_SERVER
    )
    service: str | None = column("Name of the service.", parser=values.name, default=None)


@record
class TimedRequest(BackendRequest):
    """A backend, or a server in all services, and for how long."""

    for_s: float | None = column("Seconds until it ends by itself; left out: never.", parser=_SECONDS, default=None)


@record
class WeightRequest:
    """A backend and its weight, relative to the others."""

    backend: str = column("Name of the backend.", parser=_SERVER)
    service: str = column("Name of the service.", parser=values.name)
    weight: Fraction = column("At most 9 decimals; 0 drains it.", parser=values.weight)
    for_s: float | None = column("Seconds until it ends by itself; left out: never.", parser=_SECONDS, default=None)


@record
class PauseRequest:
    """A pause of reconciliation."""

    withdraw: bool = column("Withdraw all announced VIPs for the time of the pause.", parser=values.flag, default=False)


@record
class RemoteRequest:
    """One remote of a tunnel, or all."""

    remote: str | None = column(
        "Names of the tunnel and the remote, such as `rack7/b`; all remotes if left out.", parser=_REMOTE, default=None
    )


@record
class PinRequest:
    """One remote of a tunnel, and the path to which its traffic is pinned."""

    remote: str = column("Names of the tunnel and the remote, such as `rack7/b`.", parser=_REMOTE)
    path: str | None = column(
        "Name of the path; left out: all paths may carry traffic again.", parser=values.device, default=None
    )


@record
class WhyQuery:
    """One remote of a tunnel, and optionally a source port of the host's packets."""

    remote: str = column("Names of the tunnel and the remote, such as `rack7/b`.", parser=_REMOTE)
    source_port: int | None = column("Source port of packets of the host.", parser=_WHOLE_NUMBER, default=None)


@record
class EmptyRequest:
    """An empty request: `{}`, or no body."""


@record
class EventsQuery:
    """The events after a number."""

    since: int = column("Only events with a larger number.", parser=_WHOLE_NUMBER, default=0)


@record
class BlocksQuery:
    """Blocks of one service."""

    service: str = column("Name of the service in the config.", parser=values.name)
    after: int = column("How many blocks to skip: those of earlier answers.", parser=_WHOLE_NUMBER, default=0)


# Answers.


@record
class ChangedBackend:
    """A backend that a request changed."""

    service: str = column("Name of the service.")
    backend: str = column("Name of the backend.")


@record
class ReadyAnswer:
    """Whether this host should get clients, for the check of a BGP speaker."""

    ready: bool = column("Whether it should: the status is 200, otherwise 503.")
    reason: str = column("Why it should not; empty if it should.")


@record
class Done:
    """The result of a change."""

    message: str = column("The result in a sentence.")
    is_applied: bool = column(
        "Whether the bridge has the change. If not, the agent retries, or is paused.", default=True
    )
    flow_mods: int = column("Flows added, changed and deleted.", default=0)
    clients_moved: dict[str, float] = column(
        "By service, the share of its clients that have another backend now, 0..1.", factory=dict
    )
    backends: tuple[ChangedBackend, ...] = column("The backends that the request changed.", default=())


@record
class Status:
    """The state of the agent, without blocks and events."""

    api_version: int = column("Of the schema of this document; increased when that changes.")
    version: str = column("Version of xenoovs.")
    snapshot: Snapshot = column("Services, backends and problems.")


@record
class BlockList:
    """Blocks of one service on the bridge, in the order of the address space."""

    service: str = column("Name of the service in the config.")
    blocks: tuple[BlockView, ...] = column("At most 1,000.")
    total: int = column("How many blocks the service has.")
    next: int | None = column("The value of `after` for the next blocks; null at the end.")


@record
class RemoteList:
    """The remotes of tunnels, and their paths."""

    remotes: tuple[RemoteView, ...] = column("Those that are probed, in the order of the config.")
    are_moves_paused: bool = column("Whether moves of blocks between paths are paused.")
    now_s: float = column("When this was read, UTC.")


@record
class RemoteReasons:
    """Why the blocks of a remote are on their paths."""

    paths: tuple[PathReason, ...] = column("In their order.")
    block: BlockReason | None = column(
        "The block of the requested source port; null without one, or if the bridge has no blocks yet."
    )
    now_s: float = column("When this was read, UTC.")


@record
class MovePlan:
    """The blocks that the next decision would move."""

    moves: tuple[PlannedMove, ...] = column("")


@record
class EventList:
    """Events, oldest first."""

    events: tuple[Event, ...] = column("At most 1,000.")
    last: int = column("The number of the newest event, for the next `since`.")
    started_s: float = column("When the agent started, UTC. Another agent counts its events from 1 again.")


@record
class ErrorDetail:
    """Why a request was refused."""

    code: str = column("Kind of the error, such as `unknown_backend`.")
    message: str = column("What happened, with which value, and what to do.")


@record
class ErrorAnswer:
    """The answer to every request that was refused or has failed."""

    error: ErrorDetail = column("")


# Reading.


def parse_request(data: bytes, kind: type[R], *, ignores_others: bool = False) -> R:
    """Parse a request in JSON. Missing and repeated keys are refused, and unknown ones too unless `ignores_others`.
    Raises RequestRefused with status 400."""
    try:
        return read_request(kind, _json_object(data), ignores_others=ignores_others)
    except ValueError as error:
        raise RequestRefused(f"the request cannot be used: {error}", status=400, code="bad_request") from None


def parse_query(pairs: Iterable[tuple[str, str]], kind: type[R]) -> R:
    """Parse a request in the parameters of an address. Raises RequestRefused with status 400."""
    try:
        return read_request(kind, unique_keys(pairs))
    except ValueError as error:
        raise RequestRefused(f"the address cannot be used: {error}", status=400, code="bad_request") from None


def _json_object(data: bytes) -> dict[str, object]:
    if not data.strip():
        return {}
    try:
        found = json.loads(data, object_pairs_hook=unique_keys, parse_float=Number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object; write one such as {}")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


# Routes of the control API, and the OpenAPI document made from them.


Handler = Callable[[Any, Any], Awaitable[object]]
"""Called with an agent and a request. Returns the answer, or a function that makes it in any thread."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API. It reads the agent, or it has a body and changes the agent.

    Attributes:
        name: Its path below `/v1/`, with `_` for `/`.
        handler: None if the answer is a stream without end, with one JSON value a line.
        request, query: The types of the body, and of the parameters in the address; None if it has none.
        refusals: Statuses of errors besides 400, 401 and 403 (RFC 9110).
    """

    name: str
    summary: str
    answer: type
    handler: Handler | None = None
    request: type | None = None
    query: type | None = None
    refusals: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        return "GET" if self.request is None else "POST"

    @property
    def path(self) -> str:
        return f"/v1/{self.name.replace('_', '/')}"


READY_PATH = "/ready"
"""Not among the routes, because its status is the answer: 503 is no error."""

_MEANINGS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    403: "This listener is read-only, or the request is for another host.",
    404: "There is no such service, backend, remote or path.",
    409: "The change is impossible now.",
    507: "The change cannot be saved, so it was not made.",
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of --token-file, over TCP."},
    "basic": {"type": "http", "scheme": "basic", "description": "The same token as password; any user name."},
}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. It is deterministic: routes are in their order, and schemas by name."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths[READY_PATH] = {"get": _ready_operation()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "xenoovs agent",
            "version": f"v{API_VERSION}",
            "summary": f"Control and status of a running agent (xenoovs {__version__.partition('+')[0]}).",
        },
        "servers": [{"url": "http://localhost", "description": "The agent's unix socket, or where --api says."}],
        "paths": paths,
        "components": {"schemas": _schemas(routes), "securitySchemes": _SECURITY},
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    media = "application/x-ndjson" if route.handler is None else "application/json"
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.query is not None:
        schema = request_schema(route.query)
        operation["parameters"] = [
            {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": one}
            for name, one in schema["properties"].items()
        ]
    if route.request is not None:
        operation["requestBody"] = {"required": bool(fields_of(route.request)), **_content(route.request)}
    answers = {"200": {"description": "Done.", **_content(route.answer, media)}}
    refusals = (400, 401, 403, *route.refusals)
    refused = {str(status): {"description": _MEANINGS[status], **_content(ErrorAnswer)} for status in refusals}
    return {**operation, "responses": answers | refused}


def _ready_operation() -> dict[str, Any]:
    answers = {200: "This host should get clients.", 503: "This host should get no clients; the answer has the reason."}
    return {
        "operationId": "ready",
        "summary": "Whether routers should send clients to this host.",
        "responses": {
            **{str(status): {"description": text, **_content(ReadyAnswer)} for status, text in answers.items()},
            **{str(status): {"description": _MEANINGS[status], **_content(ErrorAnswer)} for status in (400, 401, 403)},
        },
    }


def _content(kind: type, media: str = "application/json") -> dict[str, Any]:
    return {"content": {media: {"schema": {"$ref": REFERENCE.format(kind.__name__)}}}}


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    requests = {route.request for route in routes if route.request is not None}
    found = {each.__name__: request_schema(each) for each in requests}
    found |= schemas(ErrorAnswer, ReadyAnswer, *(route.answer for route in routes))
    return dict(sorted(found.items()))
