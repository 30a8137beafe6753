"""One TCP port for several agents: each has its API, its metrics and its page below the name of its bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aiohttp import web

from xenoovs.agent.control.app import Mount, guarded_app, make_app
from xenoovs.agent.control.door import Door
from xenoovs.agent.control.guard import Guard
from xenoovs.agent.control.serve import Opened, serve_app
from xenoovs.agent.log import speaking_of

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


@dataclass(frozen=True, slots=True)
class Shown:
    """An agent, and what is served beside its API."""

    agent: Agent
    mounts: tuple[Mount, ...]


async def serve_several(shown: Mapping[str, Shown], opened: Iterable[Opened]) -> None:
    """By the labels of their bridges, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for one in opened:
            group.create_task(serve_app(partial(several_app, shown, one.guard), one))


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
        with speaking_of(bridge):
            answer: web.StreamResponse = await handler(request)
        return answer

    return speak
