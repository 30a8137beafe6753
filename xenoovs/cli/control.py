"""Commands to a running agent: drain, weight, reset, pause, confirm, logs."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.display import decimal, percent
from xenoovs.errors import AgentMissing, RequestRefused
from xenoovs.terminal.agent_client import agent_command, agent_options, change, find_client
from xenoovs.terminal.completion import complete_backend
from xenoovs.terminal.defaults import option
from xenoovs.terminal.options import backend_and_weight, backend_argument, backend_words, output_option, time_option
from xenoovs.terminal.output import echo, is_text, print_json
from xenoovs.terminal.reach import find_places

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.agent.control.files import AgentPaths

_for_option = time_option("--for", help="Revert it after TIME, such as 30m, also if the agent restarts in between.")


@agent_command("drain")
@backend_argument
@_for_option
@click.option(
    "--now", is_flag=True, help="Put it in maintenance at once: no clients, even as the last backend, and no probes."
)
def drain_command(*, words: tuple[str, ...], for_s: float | None, now: bool) -> int:
    """Drain BACKEND of SERVICE: its clients go to the other backends, by weight.

    Without SERVICE, drain a server in all services, in one change: BACKEND is then a name, or the MAC or the address of
    the server. SERVICE/BACKEND is the same as SERVICE BACKEND.

    The backend stays drained over reloads and restarts of the agent until `xenoovs reset`, until the time of --for is
    over, or until the config gives it another weight. Health checks go on.

    With --now, open connections to it are not kept, and it stays in maintenance until `xenoovs reset` or the end of
    --for. Drain a server before you work on it (HAProxy: state `drain`). Use --now while it must not be reached
    (HAProxy: state `maint`).
    """
    return change("maintenance" if now else "drain", backend_request(words, for_s))


@agent_command("reset")
@backend_argument
def reset_command(*, words: tuple[str, ...]) -> int:
    """Reset BACKEND of SERVICE, or a server in all services, to what the config says.

    Ends a drain, maintenance (`drain --now`) or another weight.
    """
    return change("reset", backend_request(words))


def backend_request(words: tuple[str, ...], for_s: float | None = None) -> dict[str, object]:
    """Return the request about `SERVICE BACKEND`, `SERVICE/BACKEND` or `SERVER`."""
    parts = backend_words(words)
    keys = ("service", "backend")[-len(parts) :]
    return dict(zip(keys, parts, strict=True)) | ({} if for_s is None else {"for_s": for_s})


@agent_command("weight")
@click.argument("words", nargs=-1, required=True, metavar="SERVICE BACKEND [WEIGHT]", shell_complete=complete_backend)
@_for_option
def weight_command(*, words: tuple[str, ...], for_s: float | None) -> int | None:
    """Override the weight of BACKEND of SERVICE with WEIGHT, relative to the other backends. Without WEIGHT, show it.

    SERVICE/BACKEND is the same as SERVICE BACKEND.

    The override stays over reloads and restarts of the agent until `xenoovs reset`, until the time of --for is over, or
    until the config gives the backend another weight. Weight 0 is the same as `xenoovs drain`.
    """
    service, backend, weight = backend_and_weight(words)
    if weight is None:
        _show_weight(service, backend)
        return None
    return change("weight", {**backend_request((service, backend), for_s), "weight": weight})


def _show_weight(service: str, backend: str) -> None:
    from xenoovs.agent.servers import find_named
    from xenoovs.show.snapshot import parse_snapshot

    services = parse_snapshot(find_client().ask("status")["snapshot"]).services
    try:
        of = find_named("service", services, service, "the config")
        found = find_named("backend", of.backends, backend, f"service {service}")
    except RequestRefused as problem:
        problem.hint = "Write SERVICE BACKEND [WEIGHT] or SERVICE/BACKEND [WEIGHT]."
        raise
    if not is_text():
        print_json({key: getattr(found, key) for key in ("weight", "weight_in_use", "target_share", "share")})
    else:
        echo(
            f"{service}/{backend}: weight {decimal(found.weight_in_use)} (the config says {decimal(found.weight)}), "
            f"{percent(found.share)} of the clients"
        )


@click.option("--withdraw", is_flag=True, help="Withdraw all announced VIPs until the pause ends.")
@click.option("--paths", is_flag=True, help="Only moves of blocks between the paths of tunnels.")
@click.option("--end", is_flag=True, help="End the pause: resume reconciliation, or with --paths those moves.")
@agent_command("pause")
def pause_command(*, withdraw: bool, paths: bool, end: bool) -> int:
    """Pause reconciliation, and keep monitoring; or resume it with --end.

    The agent changes nothing on the bridge until `xenoovs pause --end`, also after a restart: there is no failover.
    Health checks go on, and the config is still read. VIPs stay announced while a backend serves, unless --withdraw is
    given.

    With --paths, pause only moves of blocks between the paths of tunnels. Probes go on, and blocks stay where they are
    until `xenoovs pause --paths --end`, even on a dead path.
    """
    if withdraw and (paths or end):
        raise click.UsageError(
            f"--withdraw goes with a pause of the whole bridge: leave --{'end' if end else 'paths'} out."
        )
    name = "resume" if end else "pause"
    return change(f"paths/{name}" if paths else name, {"withdraw": True} if withdraw else None)


@agent_command("confirm")
def confirm_command() -> int:
    """Confirm a change that would be rolled back: of `xenoovs apply --confirm`, or of an agent with --confirm."""
    from xenoovs.agent.control.client import Client

    client, bridge = None, option("bridge")
    if option("control") is None:
        places = find_places()
        if (waiting := _waiting(places, bridge)) is not None:
            client = Client(waiting)
        elif not any(map(_may_answer, places.sockets() if bridge is None else [places.socket(bridge)])):
            raise RequestRefused(
                "nothing waits to be confirmed: neither an `xenoovs apply` nor an agent answers at a socket in "
                f"{places.run}; a change that was not confirmed in time was rolled back",
                status=409,
                code="nothing_waits",
            )
    return change("confirm", client=client)


def _may_answer(path: Path) -> bool:
    """Return whether a process listens at a socket, or the user has no permission to find out."""
    from xenoovs.switch.endpoint import answers

    return path.exists() and (answers(path) or not os.access(path, os.W_OK))


def _waiting(places: AgentPaths, bridge: str | None) -> Path | None:
    """Return the socket of an `apply` that waits for confirmation; None if there is none."""
    from xenoovs.switch.endpoint import answers

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
def logs_command(*, follow: bool, lines: int | None) -> None:
    """Show the last events of the running agent, at most 1,000, oldest first.

    With -o json, one JSON object a line.
    """
    client = find_client()
    found = client.ask("events")
    events = found["events"]
    for event in events if lines is None else events[max(0, len(events) - lines) :]:
        _show_event(event)
    position = found["started_s"], found["last"]
    while follow:
        position = _follow(client, position)
        time.sleep(_RETRY_S)


def _follow(client: Client, position: tuple[float, int]) -> tuple[float, int]:
    """Show events after a position until the agent ends. Return the new position: start of the agent, last number."""
    started_s, last = position
    try:
        now_s = client.ask("events", query={"since": last})["started_s"]
        if now_s != started_s:
            # The agent was restarted, and counts from 1 again.
            started_s, last = now_s, 0
        for event in client.events(last):
            _show_event(event)
            last = event["number"]
    except AgentMissing:
        pass
    return started_s, last


def _show_event(event: dict[str, Any]) -> None:
    if not is_text():
        echo(json.dumps(event))
        return
    from xenoovs.log import render_facts

    moment = datetime.fromtimestamp(event["time_s"]).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    facts = render_facts(event["facts"])
    level = event["level"]
    shown = click.style(level, fg="yellow") if level == "warning" else level
    echo(f"{moment} {shown} {event['text']} {facts}".rstrip())
