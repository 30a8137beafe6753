"""The status pages: files that the browser renders with the JSON of `/now`, and the server of both."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import groupby
from typing import Any

from aiohttp import web

from xenoovs.agent.control.limits import run_beside
from xenoovs.log import render_facts
from xenoovs.openflow.text import render_bits
from xenoovs.show.codec import to_json
from xenoovs.show.column import Row, columns_of, page_table
from xenoovs.show.conditions import addressed, hardware_share, headline, notices
from xenoovs.show.paths import RemoteView
from xenoovs.show.snapshot import BackendState, BackendView, BlockView, LazySnapshot, ServiceView, totals

_MAX_EVENTS = 30
MAX_SERVICES = 40
"""If there are more services, those with problems come first, and `xenoovs top` shows the rest."""
COLUMNS = 512
"""Most cells in a strip: a screen cannot show more."""
_CELLS = {
    "state": BackendView.state_cell,
    "since": BackendView.since_cell,
    "weight": BackendView.weight_cell,
    "pps": BackendView.pps_cell,
    "bps": BackendView.bps_cell,
    "in_hw": BackendView.hw_cell,
    "probe": BackendView.probe_cell,
}
"""Columns of a backend that the page and `xenoovs status` render in the same way."""


def agent_json(lazy_snapshot: LazySnapshot) -> str:
    """Return the content of an agent's page. Blocks are computed only for the services that it shows."""
    snapshot, options = lazy_snapshot.snapshot(), lazy_snapshot.command_options
    shown = _shown(snapshot.services)
    left = f"{len(snapshot.services) - len(shown)} more services: see `xenoovs top`."
    newest = sorted(snapshot.events, key=lambda event: -event.number)[:_MAX_EVENTS]
    remotes = [Row(remote, None, snapshot.now_s) for remote in snapshot.remotes]
    return to_json(
        {
            "snapshot": replace(snapshot, services=shown, events=()),
            "badges": [badge for badge in (headline(snapshot), hardware_share(snapshot)) if badge is not None],
            "notices": [(addressed(text, options), how) for text, how in notices(snapshot)],
            "totals": totals(snapshot),
            "services": {
                service.name: {
                    "facts": [*service.facts],
                    "backends": [
                        {name: cell.text(Row(each, service, snapshot.now_s)) for name, cell in _CELLS.items()}
                        for each in service.backends
                    ],
                    "cells": cells(lazy_snapshot.blocks(service.name)),
                }
                for service in shown
            },
            "left": addressed(left, options) if len(shown) < len(snapshot.services) else "",
            "remotes": page_table(columns_of(RemoteView), remotes),
            "hint": addressed("one line per remote; `xenoovs paths list` shows each path", options),
            "events": [
                {"time_s": e.time_s, "level": e.level, "text": e.text, "facts": render_facts(e.facts)} for e in newest
            ],
        }
    )


def _shown(services: tuple[ServiceView, ...]) -> tuple[ServiceView, ...]:
    if len(services) <= MAX_SERVICES:
        return services
    troubled = {
        each.name
        for each in services
        if each.unanswered or any(one.state is BackendState.DOWN or one.is_ejected for one in each.backends)
    }
    return tuple(sorted(services, key=lambda service: service.name not in troubled)[:MAX_SERVICES])


# The clients of a service as a strip: one cell for each block, or for each column if there are too many blocks.


def cells(blocks: Sequence[BlockView]) -> list[dict[str, Any]]:
    """Return the cells in the order of drawing: later cells cover earlier ones. `start` and `size` are from 0 to 1."""
    return [_cell(b, b.start, b.size, _bits(b)) for b in blocks] if len(blocks) <= COLUMNS else list(_runs(blocks))


def _runs(blocks: Sequence[BlockView]) -> Iterator[dict[str, Any]]:
    """Yield one cell for each run of columns with the same backend and verdict."""
    columns: list[BlockView | None] = [None] * COLUMNS
    for block in blocks:
        first = int(block.start * COLUMNS)
        for place in range(first, max(first + 1, int((block.start + block.size) * COLUMNS))):
            columns[min(place, COLUMNS - 1)] = block
    start = 0
    for _, run in groupby(columns, key=lambda block: block and (block.backend, block.verdict)):
        here, *others = run
        size = 1 + len(others)
        if here is not None:
            yield _cell(here, start / COLUMNS, size / COLUMNS, f"{len(blocks)} blocks in {COLUMNS} columns")
        start += size


def _bits(block: BlockView) -> str:
    value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
    return f"{block.field}={value}/{mask}"


def _cell(block: BlockView, start: float, size: float, clients: str) -> dict[str, Any]:
    verdict = None if block.verdict is None else block.verdict.value
    tip = f"{block.backend} · {verdict or 'not sampled yet'} · {clients}"
    return {"start": start, "size": size, "backend": block.backend, "verdict": verdict, "tip": tip}


# The files, and the routes.


@cache
def page(script: str) -> tuple[str, dict[str, str]]:
    """Return the whole document, and its headers, by which the browser may use only this script, this style and this
    server (CSP Level 3)."""
    parts = {"style": _asset("style.css"), "script": _asset("page.js") + _asset(script)}
    document = _asset("page.html")
    for tag, text in parts.items():
        document = document.replace(f"<{tag}></{tag}>", f"<{tag}>{text}</{tag}>")
    digests = {tag: base64.b64encode(sha256(text.encode()).digest()).decode() for tag, text in parts.items()}
    policy = (
        "default-src 'none'",
        f"script-src 'sha256-{digests['script']}'",
        f"style-src 'sha256-{digests['style']}'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return document, {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def _asset(name: str) -> str:
    return (files("xenoovs.agent.web") / name).read_text(encoding="utf-8")


def page_routes(script: str, now: Callable[[], Callable[[], str]]) -> list[web.RouteDef]:
    """Return `/`, and `/now`: the JSON that the page fetches periodically. `now` returns a
    function that makes it in a thread, because many services take long, and the event loop must send health checks."""

    async def document(_: web.Request) -> web.StreamResponse:
        text, headers = page(script)
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers)

    async def data(request: web.Request) -> web.StreamResponse:
        text = await run_beside(request.app, now())
        headers = page(script)[1]
        return web.Response(text=text, content_type="application/json", charset="utf-8", headers=headers)

    return [web.get("/", document), web.get("/now", data)]
