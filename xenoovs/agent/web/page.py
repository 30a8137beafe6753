"""The status page as one document: nothing is loaded from anywhere, and the browser is told to allow nothing else."""

from __future__ import annotations

import base64
from functools import cache
from hashlib import sha256
from importlib.resources import files

from xenoovs.agent.snapshot import Glance
from xenoovs.agent.web.body import body_of
from xenoovs.agent.web.html import Markup, element, join

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
