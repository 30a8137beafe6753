"""The HTTP application of the control API: who may ask what, and what each route does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from xenoovs import __version__
from xenoovs.agent.control.limits import PATIENCE_S, Door, made_beside, with_makers
from xenoovs.agent.control.routes import (
    API_VERSION,
    MAX_BLOCKS,
    MAX_BODY_BYTES,
    ROUTES,
    BackendRequest,
    BlockList,
    BlocksQuery,
    Done,
    EmptyRequest,
    EventList,
    EventsQuery,
    Route,
    Status,
    WeightRequest,
    openapi_document,
    parse_query,
    parse_request,
)
from xenoovs.agent.daemon import Outcome
from xenoovs.agent.log import warn
from xenoovs.agent.overrides import find_backend, find_service
from xenoovs.agent.snapshot import to_json
from xenoovs.display import decimal, duration, percent
from xenoovs.errors import (
    BudgetUnreachable,
    CompileError,
    ListenError,
    RequestRefused,
    ToleranceUnreachable,
    XenoovsError,
)

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


# Who may ask what, by the way a request came.


_LEAST_TOKEN = 16
_HOST = re.compile(r"\[?([0-9A-Za-z.:-]+?)\]?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a guard decides by. Headers are as they came, None where they did not.

    host: The host that the request is for: that of an absolute-form target, else the `Host` header.
    """

    method: str
    host: str | None
    authorization: str | None
    content_type: str | None


class LocalGuard:
    """The unix socket: its mode lets in its owner and root alone."""

    def check(self, asked: Asked) -> None:
        """Everything is allowed."""


class LoopbackGuard:
    """A TCP port of this machine without a token: everybody here may look and nobody may change anything."""

    def check(self, asked: Asked) -> None:
        """Raises RequestRefused."""
        # A page of some site whose name was made to lead here must not read this (DNS rebinding).
        if not is_loopback(asked.host or ""):
            raise RequestRefused(
                f"the host {(asked.host or 'of nobody')[:80]!r} is not this machine; ask for 127.0.0.1 or localhost",
                status=403,
                code="wrong_host",
            )
        if asked.method not in ("GET", "HEAD"):
            raise RequestRefused(
                "without a token this port only shows; use the unix socket (`xenoovs drain ...`), or start the agent "
                "with --token-file",
                status=403,
                code="read_only",
            )


@dataclass(frozen=True, slots=True)
class TokenGuard:
    """A TCP port with a token, as `Authorization: Bearer` (RFC 6750) or as the password of Basic (RFC 7617)."""

    token: str

    def check(self, asked: Asked) -> None:
        """Raises RequestRefused."""
        told = _token_of(asked.authorization or "")
        # Bytes of a header that are no UTF-8 come as surrogates (RFC 9110 lets fields have them).
        if not hmac.compare_digest(told.encode(errors="surrogateescape"), self.token.encode()):
            raise RequestRefused(
                "the token is missing or wrong; send `Authorization: Bearer TOKEN`", status=401, code="unauthorized"
            )
        # A browser that remembers the password sends it for forms of other sites too, but no such form can send JSON.
        if asked.method == "POST" and (asked.content_type or "").partition(";")[0].strip() != "application/json":
            raise RequestRefused("send JSON: `Content-Type: application/json`", status=415, code="not_json")


Guard = LocalGuard | LoopbackGuard | TokenGuard


def is_loopback(host: str) -> bool:
    """Whether a `Host` header, or the host of an address to listen at, names this machine alone."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1]
    if host.count(":") > 1 and not host.startswith("["):
        name = host
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def read_token(path: Path) -> str:
    """The token in a file that nobody else may read. Raises ListenError."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ListenError(f"--token-file {path}: cannot be read: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ListenError(f"--token-file {path}: others may read it; `chmod 600 {path}`")
    if len(text) < _LEAST_TOKEN or any(char.isspace() for char in text):
        raise ListenError(
            f"--token-file {path}: expected one line of {_LEAST_TOKEN} characters or more; make one with "
            f"`openssl rand -hex 32 > {path}`"
        )
    return text


def _token_of(authorization: str) -> str:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode(errors="replace").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


# What each route does.


Handler = Callable[["Agent", Any], Awaitable[object]]
"""Gives the answer, or a function that makes it in any thread."""


async def status(agent: Agent, _: object) -> Callable[[], Status]:
    """Without events: those have a route of their own."""
    glance = agent.glance()
    return lambda: Status(API_VERSION, __version__, replace(glance.snapshot(), events=()))


async def blocks(agent: Agent, asked: BlocksQuery) -> Callable[[], BlockList]:
    find_service(agent.config.balancer, asked.service)
    glance = agent.glance()

    def made() -> BlockList:
        found, end = glance.blocks(asked.service), asked.after + MAX_BLOCKS
        return BlockList(asked.service, found[asked.after : end], len(found), end if end < len(found) else None)

    return made


async def events(agent: Agent, asked: EventsQuery) -> EventList:
    return EventList(agent.events.since(asked.since), agent.events.last, agent.started_s)


async def drain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), Fraction(0))


async def weight(agent: Agent, asked: WeightRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), asked.weight)


async def undrain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), None)


async def pause(agent: Agent, _: EmptyRequest) -> Done:
    is_news = await agent.set_paused(paused=True) is not None
    told = "paused" if is_news else "paused already"
    return Done(f"{told}: the agent looks on and changes nothing until `xenoovs resume`")


async def resume(agent: Agent, _: EmptyRequest) -> Done:
    outcome = await agent.set_paused(paused=False)
    return Done("the agent is not paused") if outcome is None else _done("resumed", outcome)


async def confirm(agent: Agent, _: EmptyRequest) -> Done:
    if not agent.reloader.confirm():
        raise RequestRefused("no change waits to be confirmed", status=409, code="nothing_waits")
    return Done(f"confirmed: config {agent.config.digest} stays")


HANDLERS: dict[str, Handler] = {
    "status": status,
    "blocks": blocks,
    "events": events,
    "drain": drain,
    "undrain": undrain,
    "weight": weight,
    "pause": pause,
    "resume": resume,
    "confirm": confirm,
}


async def _set(agent: Agent, names: tuple[str, str], wanted: Fraction | None) -> Done:
    configured = find_backend(agent.config.balancer, names).weight
    try:
        outcome = await agent.set_weight(names, wanted)
    except (CompileError, ToleranceUnreachable, BudgetUnreachable) as problem:
        raise RequestRefused(f"{problem}; nothing was changed", status=409, code="impossible") from None
    used = configured if wanted is None else wanted
    if wanted is not None and not used:
        told = f"{'/'.join(names)} is drained"
    else:
        told = f"{'/'.join(names)} has the weight {decimal(used)}"
    config = "as the config says" if used == configured else f"the config says {decimal(configured)}"
    slowly = ", by a slow start" if agent.desired.ramps.get(names, 1) != 1 else ""
    return _done(f"{told} ({config}{slowly})", outcome)


def _done(told: str, outcome: Outcome) -> Done:
    if isinstance(outcome, XenoovsError):
        return Done(f"{told}, but the bridge is not so yet: {outcome}", is_applied=False)
    moving = [change for change in outcome.services() if change.moved]
    moved = {change.name: float(change.moved) for change in moving}
    mods = outcome.difference.flow_mods
    shares = ", ".join(
        f"{percent(change.moved)} of the clients of {change.name} (least possible: {percent(change.least_moved)})"
        for change in moving
    )
    what = f"{shares} moved by {mods} flow-mods" if shares else f"no client moved; {mods} flow-mods"
    what = what if mods else "no flow had to change"
    left_s = max((drain.left_s for drain in outcome.drains), default=0.0)
    kept = f"; open connections stay where they are for at most {duration(left_s)}" if outcome.drains else ""
    return Done(f"{told}: {what}{kept}", flow_mods=mods, clients_moved=moved)


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
    except asyncio.TimeoutError:
        told = f"the body did not come within {PATIENCE_S:g}s"
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
            except (ConnectionError, asyncio.TimeoutError):
                # Whoever listened has gone, or listens no more.
                return response
            try:
                await asyncio.wait_for(agent.events.wait_after(last), _KEEP_ALIVE_S)
            except asyncio.TimeoutError:
                continue

    return answer


async def _openapi(_: web.Request) -> web.Response:
    return _json(openapi_document())


def _guarded(guard: Guard) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: _Answer) -> web.StreamResponse:
        headers = request.headers
        # `GET http://host/path` is accepted, and its host goes before the `Host` header (RFC 9112, section 3.2.2).
        host = headers.get("Host") if request.raw_path.startswith("/") else request.host
        guard.check(Asked(request.method, host, headers.get("Authorization"), headers.get("Content-Type")))
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
"""Of errors that aiohttp raises. Not from `http.HTTPStatus`: Python 3.13 renamed some of its phrases."""


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
        code = _CODES.get(error.status, f"status_{error.status}")
        answer = problem(error.status, code, f"{request.method} {request.path[:200]}: {code.replace('_', ' ')}")
        if allowed := error.headers.get("Allow"):
            answer.headers["Allow"] = allowed
        return answer
    except ConnectionError:
        raise
    except Exception as mistake:  # noqa: BLE001 - a mistake of ours in an answer must not end the agent
        warn("a request failed by a mistake in xenoovs", path=request.path[:200], mistake=repr(mistake))
        return problem(500, "internal", "a mistake in xenoovs; the log of the agent tells more")


def _json(document: object, *, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=to_json(document) + "\n", status=status, content_type="application/json", headers=headers)
