"""The routes of the status page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from xenoovs.agent.snapshot import Snapshot
from xenoovs.agent.web.body import body
from xenoovs.agent.web.page import headers, page


def mount_page(snapshot: Callable[[], Snapshot]) -> Callable[[web.Application], None]:
    """Adds `/`, and `/now`: the part that the page fetches again and again."""

    def mount(app: web.Application) -> None:
        app.router.add_get("/", _answer(snapshot, page))
        app.router.add_get("/now", _answer(snapshot, body))

    return mount


def _answer(
    snapshot: Callable[[], Snapshot], render: Callable[[Snapshot], str]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        # A snapshot is a value, so what takes long with many services is done beside the loop that asks backends.
        text = await asyncio.to_thread(render, snapshot())
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers())

    return answer
