"""The status pages: files that the browser draws from the JSON of `now`, and what serves both."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files

from aiohttp import web

from xenoovs.agent.control.limits import run_beside
from xenoovs.agent.log import render_facts
from xenoovs.datapath.megaflow import Verdict
from xenoovs.openflow.text import render_bits
from xenoovs.show.agent import BackendState, BackendView, BlockView, LazySnapshot, ServiceView, totals
from xenoovs.show.codec import to_json
from xenoovs.show.column import Row, columns_of
from xenoovs.show.conditions import addressed, hardware_share, headline, notices
from xenoovs.show.paths import RemoteView

_MAX_EVENTS = 30
MAX_SERVICES = 40
"""Of more services, those in trouble come first, and `xenoovs top` shows the rest."""
COLUMNS = 512
"""The largest number of cells in a strip: a screen shows no more."""
_CELLS = {
    "state": BackendView.state_cell,
    "since": BackendView.since_cell,
    "weight": BackendView.weight_cell,
    "pps": BackendView.pps_cell,
    "bps": BackendView.bps_cell,
    "in_hw": BackendView.hw_cell,
    "probe": BackendView.probe_cell,
}
"""Columns of a backend that the page shows as `status` does."""
_AGENT, _FLEET = ("page.js", "agent.js"), ("page.js", "fleet.js")


def agent_json(lazy_snapshot: LazySnapshot) -> str:
    """Return what the page of an agent shows. Only the services that are shown have their blocks made."""
    snapshot, options = lazy_snapshot.snapshot(), lazy_snapshot.command_options
    shown = _shown(snapshot.services)
    left = f"{len(snapshot.services) - len(shown)} more services: see `xenoovs top`."
    newest = sorted(snapshot.events, key=lambda event: -event.number)[:_MAX_EVENTS]
    remotes = [Row(remote, None, snapshot.now_s) for remote in snapshot.remotes]
    columns = [each for each in columns_of(RemoteView) if each.header]
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
                    "cells": [
                        {"start": c.start, "size": c.size, "backend": c.backend, "verdict": c.verdict, "tip": c.tip}
                        for c in cells(lazy_snapshot.blocks(service.name))
                    ],
                }
                for service in shown
            },
            "left": addressed(left, options) if len(shown) < len(snapshot.services) else "",
            "remotes": {
                "headers": [each.header.lower() for each in columns],
                "rows": [(RemoteView.state_cell.text(row), [each.text(row) for each in columns]) for row in remotes],
                "hint": addressed("one line per remote; `xenoovs paths list` shows each path", options),
            },
            "events": [
                {"time_s": e.time_s, "level": e.level, "text": e.text, "facts": render_facts(e.facts)} for e in newest
            ],
        }
    )


def _shown(services: tuple[ServiceView, ...]) -> tuple[ServiceView, ...]:
    if len(services) <= MAX_SERVICES:
        return services
    return tuple(sorted(services, key=lambda service: not _is_in_trouble(service))[:MAX_SERVICES])


def _is_in_trouble(service: ServiceView) -> bool:
    return bool(service.unanswered) or any(
        backend.state is BackendState.DOWN or backend.is_ejected for backend in service.backends
    )


# The clients of a service as a strip: one cell for a block, or for a column where there are very many blocks.


@dataclass(frozen=True, slots=True)
class Cell:
    """Part of a strip. `start` and `size` are from 0 to 1; `tip` describes it."""

    start: float
    size: float
    backend: str
    verdict: Verdict | None
    tip: str


def cells(blocks: Sequence[BlockView]) -> tuple[Cell, ...]:
    """Return what is drawn, in this order: later cells cover earlier ones."""
    if len(blocks) <= COLUMNS:
        return tuple(Cell(b.start, b.size, b.backend, b.verdict, _tip(b)) for b in blocks)
    return tuple(_runs(blocks))


def _runs(blocks: Sequence[BlockView]) -> Iterator[Cell]:
    """Yield one cell for neighbouring columns that look the same."""
    columns: list[BlockView | None] = [None] * COLUMNS
    for block in blocks:
        first = int(block.start * COLUMNS)
        for column in range(first, max(first + 1, int((block.start + block.size) * COLUMNS))):
            columns[min(column, COLUMNS - 1)] = block
    start = 0
    for column in range(1, COLUMNS + 1):
        here = columns[start]
        if column < COLUMNS and _appearance(columns[column]) == _appearance(here):
            continue
        if here is not None:
            tip = f"{here.backend} · {_word(here.verdict)} · {len(blocks)} blocks in {COLUMNS} columns"
            yield Cell(start / COLUMNS, (column - start) / COLUMNS, here.backend, here.verdict, tip)
        start = column


def _appearance(block: BlockView | None) -> tuple[str, Verdict | None] | None:
    return None if block is None else (block.backend, block.verdict)


def _tip(block: BlockView) -> str:
    value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
    return f"{block.backend} · {_word(block.verdict)} · {block.field}={value}/{mask}"


def _word(verdict: Verdict | None) -> str:
    return "not sampled yet" if verdict is None else verdict.value


# The files, and the routes.


@cache
def asset(name: str) -> str:
    """Return the text of a file beside this module."""
    return (files("xenoovs.agent.web") / name).read_text(encoding="utf-8")


@cache
def page(*scripts: str) -> str:
    """Return the whole document, with its style and its scripts in it."""
    style = f"<style>{asset('style.css')}</style>"
    return (
        asset("page.html")
        .replace("<style></style>", style)
        .replace("<script></script>", f"<script>{_script(scripts)}</script>")
    )


def _script(names: Sequence[str]) -> str:
    return "".join(map(asset, names))


@cache
def headers(*scripts: str) -> dict[str, str]:
    """Return the headers: the browser may use this script, this style and this agent only (CSP Level 3)."""
    policy = (
        "default-src 'none'",
        f"script-src '{_digest(_script(scripts))}'",
        f"style-src '{_digest(asset('style.css'))}'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()


def mount_page(lazy_snapshot: Callable[[], LazySnapshot]) -> Callable[[web.Application], None]:
    """Return what adds `/`, and `/now`: the JSON that the page fetches again and again."""

    def now() -> Callable[[], str]:
        at = lazy_snapshot()
        return lambda: agent_json(at)

    return _mount(now, _AGENT)


def mount_fleet_page(fleet_json: Callable[[], str]) -> Callable[[web.Application], None]:
    """Return the same for a fleet; `fleet_json` is called in a thread."""
    return _mount(lambda: fleet_json, _FLEET)


def _mount(now: Callable[[], Callable[[], str]], scripts: tuple[str, ...]) -> Callable[[web.Application], None]:
    def mount(app: web.Application) -> None:
        app.router.add_get("/", _answer(lambda: lambda: page(*scripts), "text/html", scripts))
        app.router.add_get("/now", _answer(now, "application/json", scripts))

    return mount


def _answer(
    make: Callable[[], Callable[[], str]], content_type: str, scripts: tuple[str, ...]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        # With many services this takes long, and the event loop sends health checks.
        text = await run_beside(request.app, make())
        return web.Response(text=text, content_type=content_type, charset="utf-8", headers=headers(*scripts))

    return answer
