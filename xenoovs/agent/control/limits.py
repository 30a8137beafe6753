"""Limits connections: so many at once, and none that only waits.

Each connection takes a file descriptor, of which probes need some; whoever may connect could have them all otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler


MOST = 64
"""Connections at one socket; when all are taken the one that has waited longest goes."""
PATIENCE_S = 10.0
"""For a request to come as a whole, for TLS to be agreed on, and for the next part of a stream to be taken."""
KEPT_S = 60.0
"""For an answer to be taken as a whole, and for the next request after it."""
SWEEP_S = 1.0
_THREADS = 2

P = ParamSpec("P")
R = TypeVar("R")

MAKERS = web.AppKey("makers", ThreadPoolExecutor)
"""Where answers are made that take long; rounds have other threads, and never wait for them."""


def with_makers(app: web.Application) -> None:
    """Threads of its own for the time that an application is there."""
    app[MAKERS] = ThreadPoolExecutor(_THREADS, thread_name_prefix="answer")

    async def end(_: web.Application) -> None:
        app[MAKERS].shutdown(wait=False, cancel_futures=True)

    app.on_cleanup.append(end)


async def made_beside(app: web.Application, make: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `make` returns, made beside the loop that asks backends."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(app.get(MAKERS), lambda: make(*args, **kwargs))


class Door:
    """Makes the protocol of each connection. `attend` is to be the outermost middleware."""

    def __init__(self) -> None:
        self._coming: dict[RequestHandler, float] = {}
        self._waiting: dict[RequestHandler, float] = {}
        """Each with the time of the loop at which it goes; `coming`: it may not be there yet, as TLS is agreed on."""
        self._busy: set[RequestHandler] = set()
        self._server: web.Server | None = None

    def open(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """The factory for `create_server`."""
        self._server = server
        return partial(self._admit, server)

    def attend(self) -> Any:
        """Tells waiting from being served."""

        @web.middleware
        async def attended(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            protocol = request.protocol
            self._coming.pop(protocol, None)
            self._waiting.pop(protocol, None)
            self._busy.add(protocol)
            try:
                return await handler(request)
            finally:
                self._busy.discard(protocol)
                self._waiting[protocol] = asyncio.get_running_loop().time() + KEPT_S

        return attended

    async def sweep(self) -> None:
        """Send away who waits for too long, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._forget_gone()
            now_s = asyncio.get_running_loop().time()
            for handler in [one for one, until_s in self._known().items() if until_s < now_s]:
                self._send_away(handler)

    def _admit(self, server: web.Server) -> asyncio.Protocol:
        if self._is_full():
            self._forget_gone()
        if self._is_full():
            there = _connected(server)
            waiting = {one: until_s for one, until_s in self._known().items() if one in there}
            if not waiting:
                return _Refused()
            self._send_away(min(waiting, key=lambda handler: waiting[handler]))
        handler: RequestHandler = server()
        self._coming[handler] = asyncio.get_running_loop().time() + PATIENCE_S
        return handler

    def _is_full(self) -> bool:
        return len(self._coming) + len(self._waiting) + len(self._busy) >= MOST

    def _known(self) -> dict[RequestHandler, float]:
        return self._coming | self._waiting

    def _forget_gone(self) -> None:
        there, now_s = _connected(self._server), asyncio.get_running_loop().time()
        self._waiting = {one: until_s for one, until_s in self._known().items() if one in there}
        self._coming = {one: until_s for one, until_s in self._coming.items() if one not in there and until_s > now_s}
        self._busy &= there

    def _send_away(self, handler: RequestHandler) -> None:
        self._coming.pop(handler, None)
        self._waiting.pop(handler, None)
        handler.force_close()


def _connected(server: web.Server | None) -> set[RequestHandler]:
    """The library keeps those that have left for as long as they are served, as a stream is until its next line."""
    return set() if server is None else {one for one in server.connections if one.transport is not None}


class _Refused(asyncio.Protocol):
    """There is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
