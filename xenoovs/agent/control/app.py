"""The HTTP application of the control API: authorisation, routes, and errors in one form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xenoovs.agent.control.auth import Auth, TokenAuth
from xenoovs.agent.control.handlers import ROUTES, EventsQuery
from xenoovs.agent.control.limits import REQUEST_TIMEOUT_S, ConnectionLimit, add_executor, read_body, run_beside
from xenoovs.agent.control.schemas import (
    MAX_BODY_BYTES,
    READY_PATH,
    ErrorAnswer,
    ErrorDetail,
    Handler,
    ReadyAnswer,
    Route,
    openapi_document,
    parse_query,
    parse_request,
)
from xenoovs.agent.state import SamplesAsked
from xenoovs.agent.tasks import within
from xenoovs.errors import RequestRefused, XenoovsError
from xenoovs.log import warn
from xenoovs.show.codec import to_json

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

_Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
_STREAM_IDLE_S = 15.0
_SHOWS_SAMPLES = ("/", "/now", "/api", "/v1/status", "/v1/blocks")
"""Paths whose clients show offload samples. Requests for them make samples more frequent."""


def make_app(agent: Agent, auth: Auth, *, limit: ConnectionLimit | None = None) -> web.Application:
    """Return the API of an agent, with its other `routes`. `limit`: of the server; None for a subapplication."""
    app = bare_app(auth, limit=limit)
    for route in ROUTES:
        app.router.add_route(
            route.method, route.path, _handler(agent, route, route.handler) if route.handler else _stream(agent)
        )
    app.router.add_get("/v1/openapi.json", _openapi)
    app.router.add_get(READY_PATH, _ready(agent))
    app.add_routes(agent.routes)

    async def prepared(request: web.Request, _: web.StreamResponse) -> None:
        if request.path.endswith(_SHOWS_SAMPLES):
            agent.store.publish(SamplesAsked())

    app.on_response_prepare.append(prepared)
    return app


def bare_app(auth: Auth, *, limit: ConnectionLimit | None) -> web.Application:
    """Return an application without routes. `limit`: as for `make_app`."""
    outermost = () if limit is None else (limit.middleware(),)
    innermost = () if auth is None else (_authorised(auth),)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=(*outermost, _errors, *innermost))
    add_executor(app)
    return app


def _handler(agent: Agent, route: Route, handle: Handler) -> _Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = b"" if route.request is None else await read_body(request)
        found = await ask(agent, route, handle, request.query.items(), body)
        # The status of thousands of backends has megabytes, and the event loop must send health checks.
        return await run_beside(request.app, lambda: _json(to_json(found() if callable(found) else found)))

    return answer


async def ask(agent: Agent, route: Route, handle: Handler, query: Iterable[tuple[str, str]], body: bytes) -> object:
    """Return the answer of a route, or a function that makes it in any thread. Raises XenoovsError."""
    asked: Any = None
    if route.query is not None:
        asked = parse_query(query, route.query)
    if route.request is not None:
        asked = parse_request(body, route.request)
    return await handle(agent, asked)


def _stream(agent: Agent) -> _Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        last = parse_query(request.query.items(), EventsQuery).since
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        while True:
            found = agent.events.since(last)
            last = found[-1].number if found else last
            lines = [to_json(event) for event in found] or [""]
            try:
                written = response.write("".join(f"{line}\n" for line in lines).encode())
                await within(REQUEST_TIMEOUT_S, written)
            except (ConnectionError, asyncio.TimeoutError):
                # The client has closed the connection, or does not read.
                return response
            try:
                await within(_STREAM_IDLE_S, agent.events.wait_after(last))
            except asyncio.TimeoutError:
                continue

    return answer


def _ready(agent: Agent) -> _Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        reason = agent.not_ready()
        return _json(to_json(ReadyAnswer(not reason, reason)), status=503 if reason else 200)

    return answer


async def _openapi(_: web.Request) -> web.Response:
    return _json(json.dumps(openapi_document(ROUTES), separators=(",", ":")))


def _authorised(auth: TokenAuth) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: _Answer) -> web.StreamResponse:
        # `GET http://host/path` must be accepted, and its host replaces the `Host` header (RFC 9112, section 3.2.2).
        host = request.headers.get("Host", "") if request.raw_path.startswith("/") else request.host
        auth.check(request.method, host, request.headers)
        return await handler(request)

    return check


_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    411: "length_required",
    413: "request_entity_too_large",
    415: "unsupported_media_type",
    417: "expectation_failed",
}
"""Codes of errors that aiohttp raises. Not from `http.HTTPStatus`: Python 3.13 renamed some of its phrases."""


@web.middleware
async def _errors(request: web.Request, handler: _Answer) -> web.StreamResponse:
    try:
        return await handler(request)
    except XenoovsError as error:
        return _problem(*status_and_code(error), str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        code = _CODES.get(error.status, f"status_{error.status}")
        answer = _problem(error.status, code, f"{request.method} {request.path[:200]}: {code.replace('_', ' ')}")
        if allowed := error.headers.get("Allow"):
            answer.headers["Allow"] = allowed
        return answer
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - an error in one answer must not end the agent
        warn("internal error while handling request", path=request.path[:200], error=repr(error))
        return _problem(500, "internal", "internal error in xenoovs; see the log of the agent")


def status_and_code(error: XenoovsError) -> tuple[int, str]:
    """Return the HTTP status and the code of the answer for an error."""
    if isinstance(error, RequestRefused):
        return error.status, error.code
    return 503 if error.retryable else 500, "failed"


def _problem(status: int, code: str, message: str) -> web.Response:
    response = _json(to_json(ErrorAnswer(ErrorDetail(code, message))), status=status)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Basic realm="xenoovs", charset="UTF-8"'
    return response


def _json(text: str, *, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=f"{text}\n", status=status, content_type="application/json", headers=headers)
