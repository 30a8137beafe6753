"""Serves the API at the unix socket and at TCP ports, for one agent or for several."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from logging import CRITICAL, Logger
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from aiohttp import web

from xenoovs.agent.control.app import Mount, bare_app, make_app
from xenoovs.agent.control.auth import Auth, TokenAuth, is_loopback, read_token
from xenoovs.agent.control.limits import REQUEST_TIMEOUT_S, ConnectionLimit
from xenoovs.agent.tasks import run_all
from xenoovs.dataclass import dataclass
from xenoovs.errors import ListenError
from xenoovs.log import bridge_context, info

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


_GRACE_S = 0.5
"""Time for requests in progress when the agent ends."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A TCP port to listen at, 0 for any free one. `tls`: files of certificate chain and key. `token_file`: None if the
    port is read-only. `option`: of the command line, for messages. `is_readable`: whether reads need no token on the
    loopback interface, for clients that have none."""

    host: str
    port: int
    tls: tuple[Path, Path] | None = None
    token_file: Path | None = None
    option: str = "--api"
    is_readable: bool = False

    def check(self) -> None:
        """Raise ListenError if other machines can reach the port without TLS and a token."""
        if is_loopback(self.host):
            return
        missing = [
            option
            for option, given in (("--tls-cert and --tls-key", self.tls), ("--token-file", self.token_file))
            if given is None
        ]
        if missing:
            raise ListenError(
                f"{self.option} {self.host}:{self.port} is open to other machines, so it needs "
                f"{' and '.join(missing)}; or listen at 127.0.0.1"
            )

    def auth(self) -> TokenAuth:
        """Return the authorisation at the port. Raises ListenError."""
        token = None if self.token_file is None else read_token(self.token_file)
        return TokenAuth(token, is_readable=self.is_readable and is_loopback(self.host))

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS. Raises ListenError."""
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
class ApiListener:
    """A listening socket. `context`: None without TLS."""

    socket: socket
    auth: Auth
    url: str
    context: ssl.SSLContext | None = None


def unix_listener(sock: socket) -> ApiListener:
    return ApiListener(sock, None, f"unix:{sock.getsockname()}")


def open_port(listen: Listen) -> ApiListener:
    """Return a listener at a TCP port. Raises ListenError."""
    listen.check()
    auth, context = listen.auth(), listen.tls_context()
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
    return ApiListener(
        sock, auth, f"{'http' if context is None else 'https'}://{name}:{sock.getsockname()[1]}", context
    )


async def serve(agent: Agent, listener: ApiListener, mounts: Iterable[Mount] = ()) -> None:
    """Serve the API of one agent until cancelled."""
    await serve_app(lambda limit: make_app(agent, listener.auth, mounts, limit=limit), listener)


async def serve_app(make: Callable[[ConnectionLimit], web.Application], listener: ApiListener) -> None:
    """Serve an application until cancelled."""
    limit, loop = ConnectionLimit(), asyncio.get_running_loop()
    # For each request that is not HTTP the library would log a traceback.
    silent = Logger("xenoovs.http", CRITICAL)
    runner = web.AppRunner(make(limit), access_log=None, logger=silent, shutdown_timeout=_GRACE_S)
    await runner.setup()
    factory = limit.factory(cast("web.Server", runner.server))
    handshake_s = None if listener.context is None else REQUEST_TIMEOUT_S
    server = await loop.create_server(
        factory, sock=listener.socket.dup(), ssl=listener.context, ssl_handshake_timeout=handshake_s
    )
    try:
        info("listening", at=listener.url)
        await limit.close_idle()
    finally:
        server.close()
        await runner.cleanup()


# One listener for several agents. The API, metrics and page of each are below the name of its bridge.


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent, and the functions that add routes to its API."""

    agent: Agent
    mounts: tuple[Mount, ...]


async def serve_several(agents: Mapping[str, ServedAgent], listeners: Iterable[ApiListener]) -> None:
    """Serve agents at all listeners until cancelled. `agents`: by the labels of their bridges."""
    await run_all(serve_app(partial(several_app, agents, listener.auth), listener) for listener in listeners)


def several_app(agents: Mapping[str, ServedAgent], auth: Auth, limit: ConnectionLimit | None = None) -> web.Application:
    """Return the application of several agents: `/ovsbr1/v1/status`, `/ovsbr1/metrics`, `/ovsbr1/`; `/` has links."""
    root = bare_app(auth, limit=limit)
    root.router.add_get("/", _index(tuple(agents)))
    for bridge, each in agents.items():
        app = make_app(each.agent, auth, each.mounts)
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
