"""Limits connections: at most 64 at a listener, of which idle ones are closed.

Each connection takes a file descriptor. Without a limit, clients could use up those that health checks need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from xenoovs.agent.tasks import within
from xenoovs.display import span
from xenoovs.errors import RequestRefused

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler


MAX_CONNECTIONS = 64
"""At one listener. At the limit, a new connection replaces the one that would be closed first."""
REQUEST_TIMEOUT_S = 10.0
"""Time limit of a whole request, of a TLS handshake, and of a client that reads the next part of a stream."""
KEEP_ALIVE_S = 60.0
"""Time limit of a client that reads an answer and sends its next request."""
SWEEP_S = 1.0
_THREADS = 2

R = TypeVar("R")

_EXECUTOR = web.AppKey("executor", ThreadPoolExecutor)
"""Threads for answers that take long. Rounds have other threads, and never wait for these."""


def add_executor(app: web.Application) -> None:
    """Give an application its own threads, for as long as it runs."""
    app[_EXECUTOR] = ThreadPoolExecutor(_THREADS, thread_name_prefix="answer")

    async def stop(_: web.Application) -> None:
        app[_EXECUTOR].shutdown(wait=False, cancel_futures=True)

    app.on_cleanup.append(stop)


async def run_beside(app: web.Application, make: Callable[[], R]) -> R:
    """Return what `make` returns, called in a thread of the application, because the event loop sends health checks."""
    return await asyncio.get_running_loop().run_in_executor(app.get(_EXECUTOR), make)


async def read_body(request: web.Request) -> bytes:
    """Return the body of a request. Raises RequestRefused if it does not arrive in time."""
    try:
        return await within(REQUEST_TIMEOUT_S, request.read())
    except asyncio.TimeoutError:
        message = f"the body did not arrive within {span(REQUEST_TIMEOUT_S)}"
        raise RequestRefused(message, status=408, code="too_slow") from None


class ConnectionLimit:
    """Makes the protocol of each connection of one server. `middleware` must be the outermost middleware."""

    def __init__(self) -> None:
        self._until_s: dict[RequestHandler, float] = {}
        """When each connection is closed, on the loop's clock; infinity while it is served."""
        self._new: set[RequestHandler] = set()
        """Those without a request yet, which may still be in their TLS handshake."""
        self._server: web.Server | None = None

    def factory(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """Return the protocol factory for `create_server`."""
        self._server = server
        return partial(self._admit, server)

    def middleware(self) -> Any:
        """Return the middleware that distinguishes idle connections from busy ones."""

        @web.middleware
        async def served(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            self._new.discard(request.protocol)
            self._until_s[request.protocol] = inf
            try:
                return await handler(request)
            finally:
                self._until_s[request.protocol] = asyncio.get_running_loop().time() + KEEP_ALIVE_S

        return served

    async def close_idle(self) -> None:
        """Close connections that have been idle for too long, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._forget_closed()
            now_s = asyncio.get_running_loop().time()
            for handler in [each for each, until_s in self._until_s.items() if until_s < now_s]:
                self._close(handler)

    def _admit(self, server: web.Server) -> asyncio.Protocol:
        if len(self._until_s) >= MAX_CONNECTIONS:
            self._forget_closed()
        if len(self._until_s) >= MAX_CONNECTIONS:
            connected = _connected(server)
            waiting = [each for each, until_s in self._until_s.items() if until_s < inf and each in connected]
            if not waiting:
                return _Refused()
            self._close(min(waiting, key=lambda handler: self._until_s[handler]))
        handler: RequestHandler = server()
        self._until_s[handler] = asyncio.get_running_loop().time() + REQUEST_TIMEOUT_S
        self._new.add(handler)
        return handler

    def _forget_closed(self) -> None:
        connected, now_s = _connected(self._server), asyncio.get_running_loop().time()
        self._new -= connected
        self._until_s = {
            each: until_s
            for each, until_s in self._until_s.items()
            if each in connected or (each in self._new and until_s > now_s)
        }
        self._new &= self._until_s.keys()

    def _close(self, handler: RequestHandler) -> None:
        self._new.discard(handler)
        self._until_s.pop(handler, None)
        handler.force_close()


def _connected(server: web.Server | None) -> set[RequestHandler]:
    """Return the open connections. aiohttp also lists closed ones while it serves them, such as a stream."""
    return set() if server is None else {each for each in server.connections if each.transport is not None}


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
