"""The routes of the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from xenoovs.agent.control.door import made_beside
from xenoovs.agent.snapshot import Glance
from xenoovs.agent.web.body import body
from xenoovs.agent.web.page import headers, page


def mount_page(glance: Callable[[], Glance]) -> Callable[[web.Application], None]:
    """Adds `/`, and `/now`: the part that the page fetches again and again."""

    def mount(app: web.Application) -> None:
        app.router.add_get("/", _answer(glance, page))
        app.router.add_get("/now", _answer(glance, body))

    return mount


def _answer(
    glance: Callable[[], Glance], render: Callable[[Glance], str]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        # A glance is a value, so what takes long with many services is done beside the loop that asks backends.
        text = await made_beside(request.app, render, glance())
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers())

    return answer
