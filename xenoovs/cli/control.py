"""Commands to a running agent: drain, undrain, weight, pause, resume, confirm, logs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.agent_client import Where, agent_command, agent_options, ask, change, find_client, find_places
from xenoovs.cli.options import OutputFormat, output_option
from xenoovs.cli.output import echo, print_json
from xenoovs.display import decimal, percent
from xenoovs.errors import AgentMissing, RequestRefused

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.agent.control.paths import AgentPaths


@agent_command("drain", "service", "backend")
def drain_command(*, service: str, backend: str, where: Where, output: OutputFormat) -> int:
    """Drain BACKEND of SERVICE: its clients go to the other backends, by weight.

    The backend stays drained over reloads and restarts of the agent until `xenoovs undrain`, or until the config gives
    it another weight. Health checks go on.
    """
    return change(where, output, "drain", {"service": service, "backend": backend})


@agent_command("undrain", "service", "backend")
def undrain_command(*, service: str, backend: str, where: Where, output: OutputFormat) -> int:
    """Return BACKEND of SERVICE to its weight in the config, after `xenoovs drain` or `xenoovs weight`."""
    return change(where, output, "undrain", {"service": service, "backend": backend})


@agent_command("weight", "service", "backend", "[weight]")
def weight_command(*, service: str, backend: str, weight: str | None, where: Where, output: OutputFormat) -> int | None:
    """Override the weight of BACKEND of SERVICE with WEIGHT, relative to the other backends. Without WEIGHT, show it.

    The override stays over reloads and restarts of the agent until `xenoovs undrain`, or until the config gives the
    backend another weight. Weight 0 is the same as `xenoovs drain`.
    """
    if weight is None:
        _show_weight(where, service, backend, output=output)
        return None
    return change(where, output, "weight", {"service": service, "backend": backend, "weight": _parse(weight)})


def _parse(text: str) -> Fraction:
    from xenoovs.config import values
    from xenoovs.config.values import parse_plain_scalar

    try:
        return values.weight(parse_plain_scalar(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="WEIGHT") from None


def _show_weight(where: Where, service: str, backend: str, *, output: OutputFormat) -> None:
    services = {one["name"]: one for one in ask(where, "status")["snapshot"]["services"]}
    if service not in services:
        raise click.BadParameter(f"{service} is not one of: {', '.join(services)}.", param_hint="SERVICE")
    backends = {one["name"]: one for one in services[service]["backends"]}
    if backend not in backends:
        raise click.BadParameter(f"{backend} is not one of: {', '.join(backends)}.", param_hint="BACKEND")
    found = backends[backend]
    shown = {key: found[key] for key in ("weight", "weight_in_use", "target_share", "share")}
    if output is OutputFormat.JSON:
        print_json(shown)
    else:
        echo(
            f"{service}/{backend}: weight {decimal(found['weight_in_use'])} "
            f"(the config says {decimal(found['weight'])}), "
            f"{percent(found['share'])} of the clients"
        )


@agent_command("pause")
def pause_command(*, where: Where, output: OutputFormat) -> int:
    """Pause reconciliation; keep monitoring.

    The agent changes nothing on the bridge until `xenoovs resume`, also after a restart: there is no failover. Health
    checks go on, and the config is still read.
    """
    return change(where, output, "pause")


@agent_command("resume")
def resume_command(*, where: Where, output: OutputFormat) -> int:
    """Resume reconciliation after a pause."""
    return change(where, output, "resume")


@agent_command("confirm")
def confirm_command(*, where: Where, output: OutputFormat) -> int:
    """Confirm a change that would be rolled back: of `xenoovs apply --confirm`, or of an agent with --confirm."""
    if where.control is None:
        places = find_places(where)
        if (waiting := _waiting(places, where.bridge)) is not None:
            where = replace(where, control=waiting)
        elif not any(map(_may_answer, _agents(places, where.bridge))):
            raise RequestRefused(
                "nothing waits to be confirmed: neither an `xenoovs apply` nor an agent answers at a socket in "
                f"{places.run}; a change that was not confirmed in time was rolled back",
                status=409,
                code="nothing_waits",
            )
    return change(where, output, "confirm")


def _agents(places: AgentPaths, bridge: str | None) -> Iterable[Path]:
    return places.sockets() if bridge is None else (places.socket(bridge),)


def _may_answer(path: Path) -> bool:
    """Return whether a process listens there, or whether the user may not find out."""
    from xenoovs.agent.control.paths import answers

    return path.exists() and (answers(path) or not os.access(path, os.W_OK))


def _waiting(places: AgentPaths, bridge: str | None) -> Path | None:
    """Return the socket of an `apply` that waits for confirmation; None: there is none."""
    from xenoovs.agent.control.paths import answers

    pattern = "*" if bridge is None else bridge
    found = [path for path in sorted(places.run.glob(places.waiting(pattern).name)) if answers(path)]
    if len(found) > 1:
        raise click.UsageError(
            f"Several changes wait ({', '.join(path.stem for path in found)}): choose one with --bridge NAME."
        )
    return found[0] if found else None


_RETRY_S = 0.5


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Follow new events, also over restarts of the agent.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the last N events so far.")
@agent_options
@output_option
def logs_command(*, follow: bool, lines: int | None, where: Where, output: OutputFormat) -> None:
    """Show the last events of the running agent, at most 1,000, oldest first.

    With -o json, one JSON object a line.
    """
    client = find_client(where)
    found = client.ask("events")
    events = found["events"]
    for event in events if lines is None else events[max(0, len(events) - lines) :]:
        _show_event(event, output)
    position = found["started_s"], found["last"]
    while follow:
        position = _follow(client, position, output)
        time.sleep(_RETRY_S)


def _follow(client: Client, position: tuple[float, int], output: OutputFormat) -> tuple[float, int]:
    """Show new events until the agent ends.

    Args:
        client: Of the agent.
        position: When the agent started, and the number of its last event that was shown.
        output: Form of the events.

    Returns:
        The new position.
    """
    started_s, last = position
    try:
        now_s = client.ask("events", query={"since": last})["started_s"]
        if now_s != started_s:
            # The agent was restarted, and counts from 1 again.
            started_s, last = now_s, 0
        for event in client.events(last):
            _show_event(event, output)
            last = event["number"]
    except AgentMissing:
        pass
    return started_s, last


def _show_event(event: dict[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        echo(json.dumps(event))
        return
    from xenoovs.agent.log import render_facts

    moment = datetime.fromtimestamp(event["time_s"]).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    facts = render_facts(event["facts"])
    level = event["level"]
    shown = click.style(level, fg="yellow") if level == "warning" else level
    echo(f"{moment} {shown} {event['text']} {facts}".rstrip())
