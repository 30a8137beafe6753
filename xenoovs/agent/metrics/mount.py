"""The route that Prometheus asks."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from aiohttp import web

from xenoovs.agent.control.door import made_beside
from xenoovs.agent.metrics.exposition import CONTENT_TYPE, Timings, exposition
from xenoovs.agent.metrics.metric import Detail
from xenoovs.agent.snapshot import Glance

_LEVEL = 1
"""Of gzip: a scrape of 16,000 backends is a twentieth then; higher levels cost more than they save."""


def mount_metrics(
    glance: Callable[[], Glance], timings: Timings, *, detail: Detail = Detail.ALWAYS
) -> Callable[[web.Application], None]:
    """Adds `/metrics`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        if packs:
            headers["Content-Encoding"] = "gzip"
        # A glance is a value, so the text is made beside the loop that asks backends.
        text = await made_beside(request.app, made, glance(), packs=packs)
        return web.Response(body=text, headers=headers)

    def made(seen: Glance, *, packs: bool) -> bytes:
        text = exposition(seen, timings, detail=detail)
        return gzip.compress(text, _LEVEL, mtime=0) if packs else text

    def mount(app: web.Application) -> None:
        app.router.add_get("/metrics", answer)

    return mount
