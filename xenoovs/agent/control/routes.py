"""The table of routes of the control API, and the OpenAPI document made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xenoovs import __version__
from xenoovs.agent.control.schemas import (
    API_VERSION,
    BackendRequest,
    BlockList,
    BlocksQuery,
    Done,
    EmptyRequest,
    ErrorAnswer,
    EventList,
    EventsQuery,
    MovePlan,
    PauseRequest,
    PinRequest,
    ReadyAnswer,
    RemoteList,
    RemoteReasons,
    RemoteRequest,
    Status,
    TimedRequest,
    WeightRequest,
    WhyQuery,
)
from xenoovs.show.agent import Event
from xenoovs.show.codec import request_schema, schemas
from xenoovs.show.column import fields_of


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API. It reads the agent, or it has a body and changes the agent.

    Attributes:
        name: Its path below `/v1/`, with `_` for `/`.
        summary: What it does, a sentence.
        request: The type of the body; None: it has none.
        query: The type of the parameters in the address; None: it has none.
        is_stream: Whether it answers with one JSON value a line, without an end.
        refusals: Statuses of errors besides 400, 401 and 403 (RFC 9110).
    """

    name: str
    summary: str
    answer: type
    request: type | None = None
    query: type | None = None
    is_stream: bool = False
    refusals: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        return "GET" if self.request is None else "POST"

    @property
    def path(self) -> str:
        return f"/v1/{self.name.replace('_', '/')}"


ROUTES = (
    Route("status", "Services, backends, overrides, and what is wrong; without blocks.", Status),
    Route(
        "blocks",
        "Blocks of one service with their verdicts, at most 1,000 in one answer.",
        BlockList,
        query=BlocksQuery,
        refusals=(404,),
    ),
    Route("events", "The last events, at most 1,000.", EventList, query=EventsQuery),
    Route(
        "events_stream",
        "Events as they happen, one JSON object a line; an empty line every 15 s while nothing happens.",
        Event,
        query=EventsQuery,
        is_stream=True,
    ),
    Route(
        "drain",
        "Drain a backend, or a server in all services, until `undrain` or `for_s`, or until the config changes its "
        "weight.",
        Done,
        request=TimedRequest,
        refusals=(404, 409, 507),
    ),
    Route("undrain", "End a drain.", Done, request=BackendRequest, refusals=(404, 409, 507)),
    Route(
        "maintenance",
        "Take a backend, or a server in all services, out of service at once, until `reset` or `for_s`. It gets no "
        "clients, also not as the last one, and is not probed.",
        Done,
        request=TimedRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "weight",
        "Override the weight of a backend, until `reset` or `for_s`, or until the config changes its weight.",
        Done,
        request=WeightRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "reset",
        "Reset a backend, or a server in all services, to what the config says: end a drain, maintenance or weight.",
        Done,
        request=BackendRequest,
        refusals=(404, 409, 507),
    ),
    Route("pause", "Pause reconciliation; keep monitoring.", Done, request=PauseRequest, refusals=(409, 507)),
    Route("paths", "The remotes of tunnels, their paths, and what probes say of them.", RemoteList),
    Route("paths_plan", "The blocks that would move between paths now.", MovePlan),
    Route(
        "paths_why",
        "Why the blocks of a remote are on their paths.",
        RemoteReasons,
        query=WhyQuery,
        refusals=(404,),
    ),
    Route(
        "paths_pin",
        "Leave all blocks of a remote on one path, or end that.",
        Done,
        request=PinRequest,
        refusals=(404, 409, 507),
    ),
    Route(
        "paths_discover",
        "Look for the source ports of paths again, also where they are known.",
        Done,
        request=RemoteRequest,
        refusals=(404, 409),
    ),
    Route(
        "paths_pause",
        "Pause moves of blocks between paths; keep probing.",
        Done,
        request=EmptyRequest,
        refusals=(409, 507),
    ),
    Route("paths_resume", "Resume moves of blocks between paths.", Done, request=EmptyRequest, refusals=(409, 507)),
    Route("resume", "Resume reconciliation after a pause.", Done, request=EmptyRequest, refusals=(507,)),
    Route(
        "confirm",
        "Confirm a change that would be rolled back.",
        Done,
        request=EmptyRequest,
        refusals=(409,),
    ),
)


READY_PATH = "/ready"
"""Beside the table, because its status is an answer: 503 is no error."""

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
_REFERENCE = "#/components/schemas/{model}"


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. It is deterministic: routes in the order of the table, schemas by name."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
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
        "components": {"schemas": _schemas(), "securitySchemes": _SECURITY},
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    media = "application/x-ndjson" if route.is_stream else "application/json"
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
    return {"content": {media: {"schema": {"$ref": _REFERENCE.format(model=kind.__name__)}}}}


def _schemas() -> dict[str, Any]:
    requests = {route.request for route in ROUTES if route.request is not None}
    found = {each.__name__: request_schema(each) for each in requests}
    found |= schemas(_REFERENCE, ErrorAnswer, ReadyAnswer, *(route.answer for route in ROUTES))
    return dict(sorted(found.items()))
