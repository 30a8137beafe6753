"""The last events on the status page, newest first."""

from __future__ import annotations

from datetime import UTC, datetime

from xenoovs.agent.snapshot import Event
from xenoovs.agent.web.html import Markup, element

SHOWN = 30


def events_card(events: tuple[Event, ...]) -> Markup:
    """The newest of them."""
    if not events:
        return element("section", element("h2", "Events"), element("p", "None yet.", class_="quiet"), class_="card")
    newest = sorted(events, key=lambda event: -event.number)[:SHOWN]
    title = element("h2", "Events", element("small", "the newest first, times in UTC"))
    return element("section", title, element("ol", *map(_event, newest)), class_="card events")


def _event(event: Event) -> Markup:
    moment = datetime.fromtimestamp(event.time_s, UTC)
    facts = " ".join(f"{name}={value}" for name, value in event.facts.items())
    return element(
        "li",
        element("time", moment.strftime("%H:%M:%S"), datetime=moment.isoformat(timespec="seconds")),
        element("b", event.text),
        element("small", facts) if facts else None,
        class_=event.level,
    )
