"""Serves the API at the unix socket and at a TCP port, for one agent or for several."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from logging import CRITICAL, Logger
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from aiohttp import web

from xenoovs.agent.control.app import (
    Guard,
    LocalGuard,
    LoopbackGuard,
    Mount,
    TokenGuard,
    guarded_app,
    is_loopback,
    make_app,
    read_token,
)
from xenoovs.agent.control.limits import PATIENCE_S, Door
from xenoovs.agent.log import bridge_context, info
from xenoovs.agent.tasks import run_all
from xenoovs.errors import ListenError

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


_GRACE_S = 0.5
"""For answers under way when the agent ends."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A TCP port to listen at. `tls`: certificate chain and key. `token_file`: who may do everything.

    option: by which it was asked for.
    """

    host: str
    port: int
    tls: tuple[Path, Path] | None = None
    token_file: Path | None = None
    option: str = "--api"

    def check(self) -> None:
        """Raises ListenError for what would be open to a network."""
        if is_loopback(self.host):
            return
        missing = [
            option
            for option, given in (("--tls-cert and --tls-key", self.tls), ("--token-file", self.token_file))
            if given is None
        ]
        if missing:
            raise ListenError(
                f"{self.option} {self.host}:{self.port} is reached from other machines, so it needs "
                f"{' and '.join(missing)}; or listen at 127.0.0.1"
            )

    def guard(self) -> Guard:
        """Raises ListenError."""
        return LoopbackGuard() if self.token_file is None else TokenGuard(read_token(self.token_file))

    def context(self) -> ssl.SSLContext | None:
        """Raises ListenError."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(*self.tls)
        except (OSError, ssl.SSLError) as error:
            raise ListenError(f"--tls-cert {self.tls[0]}, --tls-key {self.tls[1]}: {error}") from None
        return context


@dataclass(frozen=True, slots=True)
class Opened:
    """A socket that listens, and who may ask what there. `url`: how it is reached."""

    socket: socket
    guard: Guard
    url: str
    context: ssl.SSLContext | None = None


def open_local(sock: socket) -> Opened:
    """The unix socket."""
    return Opened(sock, LocalGuard(), f"unix:{sock.getsockname()}")


def open_port(listen: Listen) -> Opened:
    """A TCP port. Raises ListenError."""
    listen.check()
    guard, context = listen.guard(), listen.context()
    host = "127.0.0.1" if listen.host == "localhost" else listen.host
    sock = socket(AF_INET6 if ":" in host else AF_INET, SOCK_STREAM)
    try:
        sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        sock.bind((host, listen.port))
        sock.listen()
        sock.settimeout(0)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen at {listen.host}:{listen.port}: {error.strerror or error}") from None
    name = f"[{host}]" if ":" in host else host
    return Opened(sock, guard, f"{'http' if context is None else 'https'}://{name}:{sock.getsockname()[1]}", context)


async def serve(agent: Agent, opened: Opened, mounts: Iterable[Mount] = ()) -> None:
    """Answer until cancelled."""
    await serve_app(lambda door: make_app(agent, opened.guard, mounts, door=door), opened)


async def serve_app(make: Callable[[Door], web.Application], opened: Opened) -> None:
    """The same for any application."""
    door, loop = Door(), asyncio.get_running_loop()
    # What is no HTTP makes the library log a traceback, as often as somebody likes to send it.
    silent = Logger("xenoovs.http", CRITICAL)
    runner = web.AppRunner(make(door), access_log=None, logger=silent, shutdown_timeout=_GRACE_S)
    await runner.setup()
    admit = door.open(cast("web.Server", runner.server))
    handshake_s = None if opened.context is None else PATIENCE_S
    server = await loop.create_server(admit, sock=opened.socket, ssl=opened.context, ssl_handshake_timeout=handshake_s)
    try:
        info("listening", at=opened.url)
        await door.sweep()
    finally:
        server.close()
        await runner.cleanup()


# One TCP port for several agents: each has its API, its metrics and its page below the name of its bridge.


@dataclass(frozen=True, slots=True)
class Shown:
    """An agent, and what is served beside its API."""

    agent: Agent
    mounts: tuple[Mount, ...]


async def serve_several(shown: Mapping[str, Shown], opened: Iterable[Opened]) -> None:
    """By the labels of their bridges, until cancelled."""
    await run_all(serve_app(partial(several_app, shown, one.guard), one) for one in opened)


def several_app(shown: Mapping[str, Shown], guard: Guard, door: Door | None = None) -> web.Application:
    """`/ovsbr1/v1/status`, `/ovsbr1/metrics`, `/ovsbr1/` and so on; `/` leads to the pages."""
    root = guarded_app(guard, door=door)
    root.router.add_get("/", _index(tuple(shown)))
    for bridge, one in shown.items():
        app = make_app(one.agent, guard, one.mounts)
        app.middlewares.append(_speaking(bridge))
        root.add_subapp(f"/{bridge}", app)
    return root


def _index(bridges: tuple[str, ...]) -> Any:
    links = "".join(f'<li><a href="{quote(bridge)}/">{escape(bridge)}</a></li>' for bridge in bridges)
    text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>xenoovs</title><ul>{links}</ul></html>\n'

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html", headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _speaking(bridge: str) -> Any:
    @web.middleware
    async def speak(request: web.Request, handler: Any) -> web.StreamResponse:
        with bridge_context(bridge):
            answer: web.StreamResponse = await handler(request)
        return answer

    return speak
