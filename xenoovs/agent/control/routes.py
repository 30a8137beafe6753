"""Routes of the control API, and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from xenoovs import __version__
from xenoovs.agent.control.schemas import API_VERSION, ErrorAnswer, ReadyAnswer
from xenoovs.dataclass import dataclass
from xenoovs.show.codec import request_schema, schemas
from xenoovs.show.column import fields_of

Handler = Callable[[Any, Any], Awaitable[object]]
"""Gets an agent and a request; returns the answer, or a function that makes it in any thread."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API. It reads the agent, or it has a body and changes the agent.

    Attributes:
        name: Its path below `/v1/`, with `_` for `/`.
        handler: None: it answers with one JSON value a line, without an end.
        request, query: The types of the body, and of the parameters in the address; None: it has none.
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
"""Beside the others, because its status is an answer: 503 is no error."""

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


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. It is deterministic: routes in their order, schemas by name."""
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
    return {"content": {media: {"schema": {"$ref": _REFERENCE.format(model=kind.__name__)}}}}


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    requests = {route.request for route in routes if route.request is not None}
    found = {each.__name__: request_schema(each) for each in requests}
    found |= schemas(_REFERENCE, ErrorAnswer, ReadyAnswer, *(route.answer for route in routes))
    return dict(sorted(found.items()))
