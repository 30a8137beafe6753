"""The forms of the control API: parsers of requests in JSON and in addresses, routes, and the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from xenoovs import __version__
from xenoovs.dataclass import dataclass
from xenoovs.display import unique_keys
from xenoovs.errors import RequestRefused
from xenoovs.model.values import Number, Parser, matching, show
from xenoovs.show.codec import REFERENCE, read_request, request_schema, schemas
from xenoovs.show.column import column, fields_of, record

API_VERSION = 1
MAX_BODY_BYTES = 64 * 1024
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


WHOLE_NUMBER = Parser(_whole_number, {"type": "integer", "minimum": 0})
SECONDS = Parser(_seconds, {"type": "number", "minimum": 1, "maximum": _MAX_S})
SERVER = matching(r"^[0-9A-Za-z._:%-]{1,63}$", "the name, MAC or address of a server")
REMOTE = matching(r"^[0-9A-Za-z._-]{1,63}/[0-9A-Za-z._-]{1,63}$", "the name of a tunnel and a remote, such as rack7/b")


# Answers that are not of one operation.


@record
class ReadyAnswer:
    """Whether this host should get clients, for the check of a BGP speaker."""

    ready: bool = column("Whether it should: the status is 200, otherwise 503.")
    reason: str = column("Why it should not; empty if it should.")


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
