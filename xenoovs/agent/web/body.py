"""What the status page shows, from a snapshot alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xenoovs.agent.snapshot import BackendState, BlockView, Glance, ServiceView, Snapshot
from xenoovs.agent.standing import headline, troubles, unanswered
from xenoovs.agent.web.events import events_card
from xenoovs.agent.web.html import Markup, element, join
from xenoovs.agent.web.service import offload_share, service_card
from xenoovs.agent.words import ago, percent, quantity

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
        since = ago(snapshot.now_s - override.since_s)
        what = f"has weight {float(override.weight):g}" if override.weight else "is drained"
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
    return "never looked at" if snapshot.verified_s is None else f"{ago(snapshot.now_s - snapshot.verified_s)} ago"


def _since(now_s: float, then_s: float | None) -> str:
    return "-" if then_s is None else ago(now_s - then_s)
