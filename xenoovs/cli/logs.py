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
    last = found["last"]
    while follow:
        last = _follow(client, last, output)
        time.sleep(_RETRY_S)


def _follow(client: Client, last: int, output: Output) -> int:
    """Show what is new until the agent ends; the number of the last event that was shown."""
    try:
        # An agent that was started since counts from 1 again.
        last = min(last, client.ask("events", since=last)["last"])
        for event in client.events(last):
            _show(event, output)
            last = event["number"]
    except AgentMissing:
        pass
    return last


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
