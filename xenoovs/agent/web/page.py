"""The status page, made from a snapshot alone, and its routes."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TypeVar

from aiohttp import web

from xenoovs.agent.control.limits import run_beside
from xenoovs.agent.log import render_facts
from xenoovs.agent.web.html import Markup, element, join
from xenoovs.agent.web.service import service_card
from xenoovs.display import duration
from xenoovs.errors import worded
from xenoovs.show.agent import BackendState, Event, LazySnapshot, ServiceView, Snapshot, totals
from xenoovs.show.column import Row, columns_of
from xenoovs.show.conditions import addressed, hardware_share, headline, notices
from xenoovs.show.paths import RemoteView

T = TypeVar("T")

_MAX_EVENTS = 30
MAX_SERVICES = 40
"""Of more services, those in trouble come first, and `xenoovs top` shows the rest."""


def body(lazy_snapshot: LazySnapshot) -> Markup:
    """Return the part of the page that is fetched again and again."""
    return body_of(lazy_snapshot.snapshot(), lazy_snapshot)


def body_of(snapshot: Snapshot, lazy_snapshot: LazySnapshot) -> Markup:
    """Return the same for a snapshot that is made. Only the services that are shown have their blocks made."""
    shown, blocks, options = _shown(snapshot.services), lazy_snapshot.blocks, lazy_snapshot.command_options
    left = addressed(f"{len(snapshot.services) - len(shown)} more services: see `xenoovs top`.", options)
    more = element("p", left, class_="quiet") if len(shown) < len(snapshot.services) else None
    return join(
        _head(snapshot),
        *(element("p", addressed(text, options), class_=f"notice {how}") for text, how in notices(snapshot)),
        _facts(snapshot),
        *(service_card(service, blocks(service.name), now_s=snapshot.now_s) for service in shown),
        more,
        _remotes(snapshot, options),
        _events(snapshot.events),
    )


def _shown(services: tuple[ServiceView, ...]) -> tuple[ServiceView, ...]:
    if len(services) <= MAX_SERVICES:
        return services
    return tuple(sorted(services, key=lambda service: not _is_in_trouble(service))[:MAX_SERVICES])


def _is_in_trouble(service: ServiceView) -> bool:
    return bool(service.unanswered) or any(
        backend.state is BackendState.DOWN or backend.is_ejected for backend in service.backends
    )


def _head(snapshot: Snapshot) -> Markup:
    badges = (badge for badge in (headline(snapshot), hardware_share(snapshot)) if badge is not None)
    return element(
        "header",
        element("h1", "xenoovs", element("span", snapshot.bridge, class_="bridge")),
        element("p", *(element("span", text, class_=f"pill {kind}") for text, kind in badges), class_="badges"),
    )


def _facts(snapshot: Snapshot) -> Markup:
    sums, rounds = totals(snapshot), snapshot.rounds
    since_s = None if snapshot.last_round_s is None else snapshot.now_s - snapshot.last_round_s
    sampled = "no sample yet" if snapshot.sampled_s is None else f"of packets, {sums['sampled']} ago"
    facts = (
        ("in hardware", sums["in_hw"], sampled),
        ("packets", sums["pps"], "a second"),
        ("bits", sums["bps"], "a second"),
        ("backends up", sums["up"], "with a health check"),
        ("flows", str(snapshot.flows), f"{rounds} {worded(rounds, 'change', 'changes')} so far"),
        ("last reconcile", duration(since_s), "ago"),
    )
    tiles = (
        element("div", element("dt", name), element("dd", value), element("dd", under, class_="under"))
        for name, value, under in facts
    )
    return element("dl", *tiles, class_="facts")


def _remotes(snapshot: Snapshot, options: str) -> Markup | None:
    if not snapshot.remotes:
        return None
    shown = [each for each in columns_of(RemoteView) if each.header]
    head = element("tr", *(element("th", each.header.lower()) for each in shown))
    rows = (
        element("tr", *(element("td", each.text(row)) for each in shown), class_=RemoteView.state_cell.text(row))
        for row in (Row(remote, None, snapshot.now_s) for remote in snapshot.remotes)
    )
    table = element("table", element("thead", head), element("tbody", *rows))
    hint = addressed("one line per remote; `xenoovs paths list` shows each path", options)
    title = element("h2", "Tunnels", element("small", hint))
    return element("section", title, element("div", table, class_="scroll"), class_="card remotes")


def _events(events: tuple[Event, ...]) -> Markup:
    if not events:
        return element("section", element("h2", "Events"), element("p", "None yet.", class_="quiet"), class_="card")
    newest = sorted(events, key=lambda event: -event.number)[:_MAX_EVENTS]
    title = element("h2", "Events", element("small", "newest first, times in UTC"))
    return element("section", title, element("ol", *map(_event, newest)), class_="card events")


def _event(event: Event) -> Markup:
    moment = datetime.fromtimestamp(event.time_s, timezone.utc)
    return element(
        "li",
        element("time", moment.strftime("%H:%M:%S"), datetime=moment.isoformat(timespec="seconds")),
        element("b", event.text),
        element("small", render_facts(event.facts)) if event.facts else None,
        class_=event.level,
    )


_RELOAD_S = 5
"""Interval of reloads without JavaScript."""

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect y='4' width='8' height='8' fill='%230072b2'/%3E"
    "%3Crect x='8' y='4' width='5' height='8' fill='%23e69f00'/%3E"
    "%3Crect x='13' y='4' width='3' height='8' fill='%23cc79a7'/%3E%3C/svg%3E"
)


def page(lazy_snapshot: LazySnapshot) -> str:
    """Return the whole document."""
    snapshot = lazy_snapshot.snapshot()
    return document(snapshot.bridge, body_of(snapshot, lazy_snapshot), _patterns(), server="agent")


def document(name: str, now: Markup, *others: Markup, server: str, before: Markup | None = None) -> str:
    """Return a document that fetches a part of itself again and again.

    Args:
        name: Of what it shows, for the title.
        now: That part.
        others: Elements after it.
        server: What has to answer: `agent` or `controller`.
        before: Elements before it, which stay as they are.
    """
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup(f'<noscript><meta http-equiv="refresh" content="{_RELOAD_S}"></noscript>'),
        element("title", f"xenoovs · {name}"),
        Markup(f'<link rel="icon" href="{_ICON}">'),
        element("style", Markup(asset("style.css"))),
    )
    rest = element(
        "body",
        before,
        element("main", now, id="now"),
        *others,
        element("div", id="tip", role="status", hidden=""),
        element("p", f"The {server} does not answer. The data shown is old.", id="silent", role="alert", hidden=""),
        element("script", Markup(asset("script.js"))),
    )
    return f"<!doctype html>\n{element('html', head, rest, lang='en')}\n"


@cache
def asset(name: str) -> str:
    """Return the text of a file beside this module."""
    return (files("xenoovs.agent.web") / name).read_text(encoding="utf-8")


@cache
def headers() -> dict[str, str]:
    """Return the headers: the browser may use this script, this style and this agent only (CSP Level 3)."""
    policy = (
        "default-src 'none'",
        f"script-src '{_digest('script.js')}'",
        f"style-src '{_digest('style.css')}'",
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


def _digest(name: str) -> str:
    return "sha256-" + base64.b64encode(sha256(asset(name).encode()).digest()).decode()


_STRIPES = (
    '<pattern id="s{0}" class="p{0}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="7" height="7"/><rect class="ink" width="2.5" height="7"/></pattern>'
)
_DOTS = (
    '<pattern id="d{0}" class="p{0}" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="ground" width="6" height="6"/><circle class="ink" cx="3" cy="3" r="1.4"/></pattern>'
)


def _patterns() -> Markup:
    """Return stripes and dots, so that backends can be distinguished without colours."""
    made = [form.format(number) for number in range(7) for form in (_STRIPES, _DOTS)]
    made += [form.format(name) for form in (_STRIPES, _DOTS) for name in ("-hw", "-sw", "-tc")]
    defs = Markup("".join(made))
    return element("svg", element("defs", defs), class_="patterns", aria_hidden="true")


# The routes of the status page.


def mount_page(lazy_snapshot: Callable[[], LazySnapshot]) -> Callable[[web.Application], None]:
    """Return what adds `/`, and `/now`: the part that the page fetches again and again."""
    return mount_documents(lazy_snapshot, page, body)


def mount_documents(
    snapshot: Callable[[], T], page_of: Callable[[T], str], now_of: Callable[[T], str]
) -> Callable[[web.Application], None]:
    """Return what adds `/` and `/now`, each made from a new snapshot."""

    def mount(app: web.Application) -> None:
        app.router.add_get("/", _answer(snapshot, page_of))
        app.router.add_get("/now", _answer(snapshot, now_of))

    return mount


def _answer(
    snapshot: Callable[[], T], render: Callable[[T], str]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        # With many services this takes long, and the event loop sends health checks.
        text = await run_beside(request.app, render, snapshot())
        return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers())

    return answer
