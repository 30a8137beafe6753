"""The status page, made from a snapshot alone, and its routes."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from importlib.resources import files

from aiohttp import web

from xenoovs.agent.conditions import headline, troubles, unanswered
from xenoovs.agent.control.limits import made_beside
from xenoovs.agent.snapshot import BackendState, BlockView, Event, Glance, ServiceView, Snapshot
from xenoovs.agent.web.service import Markup, element, join, offload_share, service_card
from xenoovs.display import decimal, duration, percent, quantity

# The last events on the status page, newest first.


SHOWN = 30


def events_card(events: tuple[Event, ...]) -> Markup:
    """The newest of them."""
    if not events:
        return element("section", element("h2", "Events"), element("p", "None yet.", class_="quiet"), class_="card")
    newest = sorted(events, key=lambda event: -event.number)[:SHOWN]
    title = element("h2", "Events", element("small", "the newest first, times in UTC"))
    return element("section", title, element("ol", *map(_event, newest)), class_="card events")


def _event(event: Event) -> Markup:
    moment = datetime.fromtimestamp(event.time_s, timezone.utc)
    facts = " ".join(f"{name}={value}" for name, value in event.facts.items())
    return element(
        "li",
        element("time", moment.strftime("%H:%M:%S"), datetime=moment.isoformat(timespec="seconds")),
        element("b", event.text),
        element("small", facts) if facts else None,
        class_=event.level,
    )


# What the status page shows, from a snapshot alone.


MOST_SERVICES = 40
"""Of more, those in trouble are shown first, and the rest is left to `xenoovs top`."""


def body(glance: Glance) -> Markup:
    """The part of the page that is made anew again and again."""
    return body_of(glance.snapshot(), glance.blocks)


def body_of(snapshot: Snapshot, blocks: Callable[[str], tuple[BlockView, ...]]) -> Markup:
    """Of the services only those that are shown have their blocks made."""
    shown = _shown(snapshot.services)
    left = len(snapshot.services) - len(shown)
    more = element("p", f"{left} more services: see `xenoovs top`.", class_="quiet") if left else None
    return join(
        _head(snapshot),
        *_notices(snapshot),
        _facts(snapshot),
        *(service_card(service, blocks(service.name), now_s=snapshot.now_s) for service in shown),
        more,
        events_card(snapshot.events),
    )


def _shown(services: tuple[ServiceView, ...]) -> tuple[ServiceView, ...]:
    if len(services) <= MOST_SERVICES:
        return services
    return tuple(sorted(services, key=lambda service: not _is_in_trouble(service))[:MOST_SERVICES])


def _is_in_trouble(service: ServiceView) -> bool:
    return bool(unanswered(service)) or any(one.state is BackendState.DOWN or one.is_out for one in service.backends)


def _head(snapshot: Snapshot) -> Markup:
    told, kind = headline(snapshot)
    return element(
        "header",
        element("h1", "xenoovs", element("span", snapshot.bridge, class_="bridge")),
        element("p", told, class_=f"pill {kind}"),
    )


def _notices(snapshot: Snapshot) -> Iterator[Markup]:
    for told, how in troubles(snapshot):
        yield element("p", told, class_=f"notice {how}")
    for override in snapshot.overrides:
        names = f"{override.service}/{override.backend}"
        since = duration(snapshot.now_s - override.since_s)
        what = f"has weight {decimal(override.weight)}" if override.weight else "is drained"
        yield element("p", f"{names} {what} by an operator for {since}.", class_="notice")


def _facts(snapshot: Snapshot) -> Markup:
    backends = [backend for service in snapshot.services for backend in service.backends]
    rates = [backend.rate for backend in backends if backend.rate is not None]
    checked = [b for b in backends if b.state in (BackendState.UP, BackendState.DOWN)]
    up = sum(backend.state is BackendState.UP for backend in checked)
    pps = sum(rate.pps for rate in rates) if rates else None
    bps = sum(rate.bps for rate in rates) if rates else None
    facts = (
        ("in the NIC", percent(offload_share(rates)), f"of packets, {_looked(snapshot)}"),
        ("packets", quantity(pps), "a second"),
        ("bits", quantity(bps), "a second"),
        ("backends up", f"{up} of {len(checked)}" if checked else "-", "that are asked"),
        (
            "flows",
            quantity(snapshot.flows),
            f"{snapshot.rounds} {'change' if snapshot.rounds == 1 else 'changes'} so far",
        ),
        ("found right", _since(snapshot.now_s, snapshot.last_round_s), "ago"),
    )
    tiles = (
        element("div", element("dt", name), element("dd", value), element("dd", under, class_="under"))
        for name, value, under in facts
    )
    return element("dl", *tiles, class_="facts")


def _looked(snapshot: Snapshot) -> str:
    """When the datapath was looked at: verdicts and rates are of then."""
    return "never looked at" if snapshot.verified_s is None else f"{duration(snapshot.now_s - snapshot.verified_s)} ago"


def _since(now_s: float, then_s: float | None) -> str:
    return "-" if then_s is None else duration(now_s - then_s)


_RELOAD_S = 5
"""Without JavaScript."""

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect y='4' width='8' height='8' fill='%230072b2'/%3E"
    "%3Crect x='8' y='4' width='5' height='8' fill='%23e69f00'/%3E"
    "%3Crect x='13' y='4' width='3' height='8' fill='%23cc79a7'/%3E%3C/svg%3E"
)


def page(glance: Glance) -> str:
    """The whole document."""
    snapshot = glance.snapshot()
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup(f'<noscript><meta http-equiv="refresh" content="{_RELOAD_S}"></noscript>'),
        element("title", f"xenoovs · {snapshot.bridge}"),
        Markup(f'<link rel="icon" href="{_ICON}">'),
        element("style", Markup(asset("style.css"))),
    )
    rest = element(
        "body",
        element("main", body_of(snapshot, glance.blocks), id="now"),
        _patterns(),
        element("div", id="tip", role="status", hidden=""),
        element("p", "No answer from the agent. What is shown is old.", id="silent", role="alert", hidden=""),
        element("script", Markup(asset("script.js"))),
    )
    return f"<!doctype html>\n{element('html', head, rest, lang='en')}\n"


@cache
def asset(name: str) -> str:
    """A file beside this module."""
    return (files("xenoovs.agent.web") / name).read_text(encoding="utf-8")


@cache
def headers() -> dict[str, str]:
    """What the browser may do: run our script and style, ask this agent, and nothing else (CSP Level 3)."""
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


def _patterns() -> Markup:
    """Stripes and dots, so that nobody needs to tell colours apart."""
    stripes = element(
        "pattern",
        element("rect", class_="ground", width="7", height="7"),
        element("rect", class_="ink", width="2.5", height="7"),
        width="7",
        height="7",
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    dots = element(
        "pattern",
        element("rect", class_="ground", width="6", height="6"),
        element("circle", class_="ink", cx="3", cy="3", r="1.4"),
        width="6",
        height="6",
        patternUnits="userSpaceOnUse",
    )
    made = []
    for index in range(7):
        made.append(Markup(stripes.replace("<pattern", f'<pattern id="s{index}" class="p{index}"', 1)))
        made.append(Markup(dots.replace("<pattern", f'<pattern id="d{index}" class="p{index}"', 1)))
    made.append(Markup(stripes.replace("<pattern", '<pattern id="s-sw" class="p-sw"', 1)))
    made.append(Markup(dots.replace("<pattern", '<pattern id="d-tc" class="p-tc"', 1)))
    return element("svg", element("defs", join(*made)), class_="patterns", aria_hidden="true")


# The routes of the status page.


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
