"""`xenoovs logs`: what the agent said."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.agent_client import Where, agent_options, find_client
from xenoovs.cli.options import Output, output_option
from xenoovs.errors import AgentMissing

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client

_RETRY_S = 0.5


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on until interrupted, also over a restart of the agent.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N events so far.")
@agent_options
@output_option
def command(*, follow: bool, lines: int | None, output: Output, **given: str | None) -> None:
    """Show the last events of the running agent, at most 1,000, oldest first.

    With -o json one JSON object a line.
    """
    client = find_client(Where(**given))  # type: ignore[arg-type]
    found = client.ask("events")
    events = found["events"]
    for event in events if lines is None else events[max(0, len(events) - lines) :]:
        _show(event, output)
    place = found["started_s"], found["last"]
    while follow:
        place = _follow(client, place, output)
        time.sleep(_RETRY_S)


def _follow(client: Client, place: tuple[float, int], output: Output) -> tuple[float, int]:
    """Show what is new until the agent ends. `place`: when it started, and the last event of it that was shown."""
    started_s, last = place
    try:
        now_s = client.ask("events", query={"since": last})["started_s"]
        if now_s != started_s:
            # Another agent, which counts from 1 again.
            started_s, last = now_s, 0
        for event in client.events(last):
            _show(event, output)
            last = event["number"]
    except AgentMissing:
        pass
    return started_s, last


def _show(event: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        click.echo(json.dumps(event))
        return
    from xenoovs.agent.log import render_facts

    moment = datetime.fromtimestamp(event["time_s"]).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    facts = render_facts(event["facts"])
    level = event["level"]
    shown = click.style(level, fg="yellow") if level == "warning" else level
    click.echo(f"{moment} {shown} {event['text']} {facts}".rstrip())
