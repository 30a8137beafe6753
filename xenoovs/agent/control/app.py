"""The HTTP application: routes of the table, and whatever else is mounted beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xenoovs.agent.control.door import PATIENCE_S, Door, made_beside, with_makers
from xenoovs.agent.control.guard import Asked, Guard
from xenoovs.agent.control.handlers import HANDLERS
from xenoovs.agent.control.messages import MAX_BODY_BYTES, EventsQuery, parse_query, parse_request
from xenoovs.agent.control.openapi import openapi_document
from xenoovs.agent.control.routes import ROUTES, Route
from xenoovs.agent.document import to_json
from xenoovs.agent.log import warn
from xenoovs.errors import RequestRefused, XenoovsError

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

Mount = Callable[[web.Application], None]
"""Adds routes of its own to an application, such as metrics or the status page."""

_Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
_KEEP_ALIVE_S = 15.0


def make_app(agent: Agent, guard: Guard, mounts: Iterable[Mount] = (), *, door: Door | None = None) -> web.Application:
    """The API, guarded, with `mounts`. `door`: by which connections come; None: below another application."""
    app = guarded_app(guard, door=door)
    for route in ROUTES:
        app.router.add_route(route.method, route.path, _stream(agent) if route.is_stream else _handler(agent, route))
    app.router.add_get("/v1/openapi.json", _openapi)
    for mount in mounts:
        mount(app)
    return app


def guarded_app(guard: Guard, *, door: Door | None) -> web.Application:
    """Without any route yet. `door`: as of `make_app`."""
    attending = () if door is None else (door.attend(),)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=(*attending, _problems, _guarded(guard)))
    with_makers(app)
    return app


def problem(status: int, code: str, message: str) -> web.Response:
    """An error, in the one form that errors have."""
    response = _json({"error": {"code": code, "message": message}}, status=status)
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Basic realm="xenoovs", charset="UTF-8"'
    return response


def _handler(agent: Agent, route: Route) -> _Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        asked: Any = None
        if route.query is not None:
            asked = parse_query(request.query.items(), route.query)
        if route.request is not None:
            asked = parse_request(await _body(request), route.request)
        found = await HANDLERS[route.name](agent, asked)
        # A status with thousands of backends is megabytes: they are written beside the loop that asks backends.
        return await made_beside(request.app, lambda: _json(found() if callable(found) else found))

    return answer


async def _body(request: web.Request) -> bytes:
    try:
        return await asyncio.wait_for(request.read(), PATIENCE_S)
    except TimeoutError:
        told = f"the body did not come within {PATIENCE_S:g} s"
        raise RequestRefused(told, status=408, code="too_slow") from None


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
                await asyncio.wait_for(response.write("".join(f"{line}\n" for line in lines).encode()), PATIENCE_S)
            except (ConnectionError, TimeoutError):
                # Whoever listened has gone, or listens no more.
                return response
            try:
                await asyncio.wait_for(agent.events.wait_after(last), _KEEP_ALIVE_S)
            except TimeoutError:
                continue

    return answer


async def _openapi(_: web.Request) -> web.Response:
    return _json(openapi_document())


def _guarded(guard: Guard) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: _Answer) -> web.StreamResponse:
        headers = request.headers
        guard.check(
            Asked(request.method, headers.get("Host"), headers.get("Authorization"), headers.get("Content-Type"))
        )
        return await handler(request)

    return check


@web.middleware
async def _problems(request: web.Request, handler: _Answer) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestRefused as refused:
        return problem(refused.status, refused.code, str(refused))
    except XenoovsError as error:
        return problem(503 if error.retryable else 500, "failed", str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return problem(
            error.status,
            error.reason.lower().replace(" ", "_"),
            f"{request.method} {request.path[:200]}: {error.reason}",
        )
    except ConnectionError:
        raise
    except Exception as mistake:  # noqa: BLE001 - a mistake of ours in an answer must not end the agent
        warn("a request failed by a mistake in xenoovs", path=request.path[:200], mistake=repr(mistake))
        return problem(500, "internal", "a mistake in xenoovs; the log of the agent tells more")


def _json(document: object, *, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=to_json(document) + "\n", status=status, content_type="application/json", headers=headers)
