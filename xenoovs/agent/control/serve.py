"""Serves the API at the unix socket and at TCP ports, for one agent or for several."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from html import escape
from logging import CRITICAL, Logger
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from aiohttp import web

from xenoovs.agent.control.app import bare_app, make_app
from xenoovs.agent.control.auth import Auth, TokenAuth, read_token
from xenoovs.agent.control.limits import REQUEST_TIMEOUT_S, ConnectionLimit
from xenoovs.dataclass import dataclass
from xenoovs.errors import ListenError
from xenoovs.log import bridge_context, info
from xenoovs.switch.endpoint import is_loopback

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


_GRACE_S = 0.5
"""Time for requests in progress when the agent ends."""


@dataclass(frozen=True, slots=True)
class ApiListener:
    """A listening socket. `context`: None without TLS."""

    socket: socket
    auth: Auth
    url: str
    context: ssl.SSLContext | None = None


def unix_listener(sock: socket) -> ApiListener:
    return ApiListener(sock, None, f"unix:{sock.getsockname()}")


def open_port(
    host: str,
    port: int,
    *,
    tls: tuple[Path, Path] | None = None,
    token_file: Path | None = None,
    option: str = "--api",
    is_readable: bool = False,
) -> ApiListener:
    """Listen at a TCP port, 0 for any free one.

    Args:
        tls: Files of certificate chain and key.
        token_file: None if the port is read-only.
        option: Of the command line, for messages.
        is_readable: Whether reads need no token on the loopback interface, for clients that have none.

    Raises:
        ListenError: It cannot be opened, or other machines can reach it without TLS and a token.
    """
    needed = {"--tls-cert and --tls-key": tls, "--token-file": token_file}
    missing = [name for name, given in needed.items() if given is None]
    if missing and not is_loopback(host):
        raise ListenError(
            f"{option} {host}:{port} is open to other machines, so it needs {' and '.join(missing)}; or listen at "
            "127.0.0.1"
        )
    token = None if token_file is None else read_token(token_file)
    auth = TokenAuth(token, is_readable=is_readable and is_loopback(host))
    context = None if tls is None else _tls_context(*tls)
    bound = "127.0.0.1" if host == "localhost" else host
    sock = socket(AF_INET6 if ":" in bound else AF_INET, SOCK_STREAM)
    try:
        sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        sock.bind((bound, port))
        sock.listen()
        sock.settimeout(0)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None
    name = f"[{bound}]" if ":" in bound else bound
    scheme = "http" if context is None else "https"
    return ApiListener(sock, auth, f"{scheme}://{name}:{sock.getsockname()[1]}", context)


def _tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"--tls-cert {cert}, --tls-key {key}: {error}") from None
    return context


async def serve(agent: Agent, listener: ApiListener) -> None:
    """Serve the API of one agent until cancelled."""
    await serve_app(lambda limit: make_app(agent, listener.auth, limit=limit), listener)


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


async def serve_several(agents: Mapping[str, Agent], listener: ApiListener) -> None:
    """Serve agents, by the labels of their bridges, until cancelled."""
    await serve_app(lambda limit: _several_app(agents, listener.auth, limit), listener)


def _several_app(agents: Mapping[str, Agent], auth: Auth, limit: ConnectionLimit) -> web.Application:
    """Return the application of several agents: `/ovsbr1/v1/status`, `/ovsbr1/metrics`, `/ovsbr1/`; `/` has links."""
    root = bare_app(auth, limit=limit)
    root.router.add_get("/", _index(tuple(agents)))
    for bridge, agent in agents.items():
        app = make_app(agent, auth)
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
