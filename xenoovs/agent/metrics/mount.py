"""The route that Prometheus asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from xenoovs.agent.metrics.exposition import CONTENT_TYPE, Timings, exposition
from xenoovs.agent.metrics.metric import Detail
from xenoovs.agent.snapshot import Glance


def mount_metrics(
    glance: Callable[[], Glance], timings: Timings, *, detail: Detail = Detail.ALWAYS
) -> Callable[[web.Application], None]:
    """Adds `/metrics`."""

    async def answer(_: web.Request) -> web.StreamResponse:
        # A glance is a value, so the text is made beside the loop that asks backends.
        text = await asyncio.to_thread(exposition, glance(), timings, detail=detail)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    def mount(app: web.Application) -> None:
        app.router.add_get("/metrics", answer)

    return mount
