"""`xenoovs apply`: make it so, all or nothing, and read it back."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import (
    Output,
    bridge_command,
    duration,
    hinting_partial,
    load_resolved,
    partial_option,
    reach,
    rebalance_option,
)
from xenoovs.cli.output import confirm, echo, print_json
from xenoovs.cli.plan import FLOWS_SHOWN
from xenoovs.errors import NotConfirmed, NotOffloaded, SwitchError, TakenBack, counted

if TYPE_CHECKING:
    from xenoovs.cli.plan import Steps
    from xenoovs.engine.change import Change
    from xenoovs.engine.engine import Engine
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.guard import Guard
    from xenoovs.switch.live import LiveSwitch


# `xenoovs apply` with a way back: what decides whether a change stays.


_LOOK_S = 1.0
"""Between two looks at the hardware."""
_ANSWER_S = 2.0
_MOST_BYTES = 65_536
_SLACK_S = 5.0
"""More than a look takes: until then the guard leaves the decision to us."""


class _Interrupted(KeyboardInterrupt):
    """A signal. No Exception: click.echo takes any of those for a stream that it cannot remember, and goes on."""


@contextmanager
def with_way_back(guard: Guard) -> Iterator[None]:
    """A change and the decision to keep it, which ends with `guard.keep`. Any other end takes the change back."""

    def interrupted(number: int, _frame: FrameType | None) -> None:
        raise _Interrupted(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupted) for number in numbers]
    try:
        yield
    except BaseException as error:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        guard.undo()
        if isinstance(error, _Interrupted):
            raise TakenBack(reason=f"interrupted by {error}") from None
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def require_offload(balancer: Balancer, switch: LiveSwitch, guard: Guard, *, within_s: float) -> str:
    """Look until all blocks are seen in hardware, or until time is up; what to tell then.

    Raises NotOffloaded where a block that has traffic is not in hardware at the end, or where nobody could look.
    """
    from xenoovs.cli.offload import looker_of
    from xenoovs.verify.findings import Conclusion, carry_over

    guard.limit(within_s + _SLACK_S)
    deadline = time.monotonic() + within_s
    try:
        looker = looker_of(balancer, switch)
        found = looker.look().findings
        while time.monotonic() < deadline and (found.absent or found.conclusion is not Conclusion.IN_HARDWARE):
            time.sleep(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            found = carry_over(found, looker.look().findings)
    except SwitchError as error:
        raise NotOffloaded(reason=f"nobody could look: {error}") from None
    seen = len(found.blocks) - found.absent
    if found.conclusion is Conclusion.NOTHING_SEEN:
        return "no block has had traffic, which is neither good nor bad: kept; look later with `xenoovs verify-offload`"
    if found.is_overridden:
        names = ", ".join(dict.fromkeys(taking.service for taking in found.overrides if not taking.is_drop))
        raise NotOffloaded(reason=f"packets of {names} go elsewhere by flows of others; see `xenoovs verify-offload`")
    if found.conclusion is not Conclusion.IN_HARDWARE:
        wrong = [block for block in found.blocks if block.megaflows and block.verdict.value != "HW"]
        raise NotOffloaded(
            reason=f"{len(wrong)} of {counted(seen, 'block')} with traffic not in hardware after {within_s:g} s"
            if wrong
            else "the datapath could not be judged"
        )
    return f"{counted(seen, 'block')} with traffic, all in hardware"


def wait_for_confirmation(guard: Guard, sock: socket, steps: Steps, *, within_s: float) -> None:
    """Until ENTER, or `xenoovs confirm` from anywhere on this machine. Raises NotConfirmed when time is up.

    Drains go on meanwhile. The guard keeps the time: it goes on when this process is stopped (Ctrl-Z).
    """
    guard.limit(within_s)
    is_asked = sys.stdin.isatty()
    how = "press ENTER to keep it, or run `xenoovs confirm`" if is_asked else "keep it with `xenoovs confirm`"
    echo(f"applied; it is taken back in {within_s:g} s: {how}", err=True)
    watched: list[int] = [sock.fileno(), guard.ended, *([sys.stdin.fileno()] if is_asked else [])]
    while True:
        ready, _, _ = select.select(watched, [], [], steps.look_s)
        if guard.ended in ready:
            raise NotConfirmed(after_s=within_s)
        if not ready:
            steps.go_on()
            continue
        if sock.fileno() in ready and not _answer(sock, guard):
            continue
        if is_asked and sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 1024):
            raise TakenBack(reason="the terminal is gone")
        if not guard.keep():
            raise NotConfirmed(after_s=within_s)
        return


def _answer(sock: socket, guard: Guard) -> bool:
    """Answer one request as an agent would (`POST /v1/confirm`). Whether it asked for that."""
    # Imported here: it imports ssl, which takes longer than all of `apply --help`.
    from http.server import BaseHTTPRequestHandler

    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # The body may come after the head; an end before it would look to the client as if nobody were here.
            length = self.headers.get("Content-Length", "0")
            self.rfile.read(min(int(length), _MOST_BYTES) if length.isdecimal() else 0)
            is_kept = self.path == "/v1/confirm" and guard.keep()
            heard.append(self.path)
            message = "confirmed: the change stays" if is_kept else "too late: the change was taken back"
            error = {"error": {"code": "too_late", "message": message}}
            body = json.dumps({"message": message, "is_applied": True} if is_kept else error).encode()
            self.send_response(200 if is_kept else 409)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a person reads this terminal."""

    with suppress(OSError):
        connection, _ = sock.accept()
        with connection:
            connection.settimeout(_ANSWER_S)
            Handler(connection, ("", 0), None)  # type: ignore[arg-type]
    return "/v1/confirm" in heard


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path
    db: str | None
    lab: str | None
    yes: bool
    dry_run: bool
    rebalance: bool
    partial: bool
    no_drain: bool
    all_flows: bool
    output: Output
    confirm_s: float | None
    must_offload: bool
    within_s: float
    force: bool

    @property
    def has_way_back(self) -> bool:
        return self.confirm_s is not None or self.must_offload


@bridge_command("apply")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@rebalance_option
@partial_option
@click.option("--no-drain", is_flag=True, help="Move all clients at once, whatever `drain` of the config says.")
@click.option("--force", is_flag=True, help="Also beside a running agent, which will take the change back.")
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
@click.option(
    "--confirm",
    "confirm_s",
    type=duration,
    metavar="TIME",
    help="Take the change back unless ENTER or `xenoovs confirm` comes within TIME (30s, 2m).",
)
@click.option(
    "--rollback-unless-offloaded",
    "must_offload",
    is_flag=True,
    help="Take the change back if blocks with traffic are not in hardware; see --within.",
)
@click.option(
    "--within",
    "within_s",
    type=duration,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="How long --rollback-unless-offloaded looks.",
)
def apply_command(**given: Any) -> None:
    """Make the bridge do what the config FILE says.

    Shows the plan, asks (on a terminal; otherwise --yes is needed), sends only the difference as one atomic OpenFlow
    bundle, reads the flows back and compares. Flows of others are never touched. If anything fails, the bridge has its
    old flows, every one of them.

    With --confirm or --rollback-unless-offloaded the bridge gets exactly its old flows back also when this command is
    interrupted or killed, or its terminal is lost. Flows of services that it did not change stay as they are then.

    If an agent reconciles the bridge, nothing is changed: edit the config of the agent.

    With `drain: {mode: pin}` open connections stay with their backend for a while: the command waits for the end of it
    and sends two more bundles: after two seconds new connections go to the new backend, at the end all clients do.
    Interrupted, it can be called again and goes on; a running `xenoovs agent` does it too.
    """
    from xenoovs.cli.plan import Steps, plan_document, show_plan
    from xenoovs.engine.change import Options as How
    from xenoovs.engine.engine import Engine

    options = Options(**given)
    balancer, switch = load_resolved(options.config), reach(options.db, options.lab)
    engine, how = Engine(switch), How(drain=not options.no_drain, partial=options.partial)
    with hinting_partial():
        change = engine.plan(balancer, replace(how, rebalance=options.rebalance), now_s=time.monotonic())
    if options.output is Output.TEXT:
        show_plan(change, flows_shown=None if options.all_flows else FLOWS_SHOWN)
    steps = Steps(engine, change, plan_again=lambda: engine.plan(balancer, how, now_s=time.monotonic()))
    applied = not options.dry_run and not change.difference.is_empty
    if applied:
        _send(_Sending(balancer, change, switch, engine, steps), options)
    waited_s = _wait(steps, options) if change.drains and not options.dry_run else 0.0
    if options.output is Output.JSON:
        print_json({**plan_document(change), "applied": applied, "drained_s": round(waited_s, 3)})


def _wait(steps: Steps, options: Options) -> float:
    """For the end of the drains; how many seconds it took."""
    from xenoovs.cli.plan import wait_for_drains

    waited_s = wait_for_drains(steps)
    if options.output is Output.TEXT:
        echo(f"drained: all blocks have moved after {waited_s:.0f}s")
    return waited_s


@dataclass(frozen=True, slots=True)
class _Sending:
    """A change to be made. `steps`: what its drains need afterwards."""

    balancer: Balancer
    change: Change
    switch: LiveSwitch
    engine: Engine
    steps: Steps


def _send(sending: _Sending, options: Options) -> None:
    from xenoovs.cli.agent_client import Where, check_agent, find_places, refuse_beside_agent

    change, where = sending.change, Where(None, None, options.db, options.lab)
    if options.has_way_back:
        refuse_beside_agent(find_places(where), change.bridge)
    else:
        check_agent(where, change.bridge, force=options.force)
    confirm(f"Change {change.bridge}?", yes=options.yes, instead=", or --dry-run to see the plan")
    if options.has_way_back:
        _apply_with_way_back(sending, options)
    else:
        sending.engine.apply(change)
    if options.output is Output.TEXT:
        echo(f"done: {counted(change.difference.flow_mods, 'flow-mod')} in one bundle, read back and found right")


def _apply_with_way_back(sending: _Sending, options: Options) -> None:
    from xenoovs.agent.control.paths import bound_socket
    from xenoovs.agent.rollback import roll_back, take_checkpoint
    from xenoovs.cli.agent_client import Where, find_places, refuse_beside_agent
    from xenoovs.switch.guard import Guard

    change, switch = sending.change, sending.switch
    places = find_places(Where(None, change.bridge, options.db, options.lab))
    # Once more: a person may have thought for long.
    refuse_beside_agent(places, change.bridge)
    before = take_checkpoint(switch, change.bridge)
    with bound_socket(places.waiting(change.bridge)) as sock:
        guard = Guard(lambda: roll_back(switch, before, services=change.touched))
        with with_way_back(guard):
            sending.engine.apply(change)
            if options.must_offload:
                echo(require_offload(sending.balancer, switch, guard, within_s=options.within_s), err=True)
            if options.confirm_s is not None:
                wait_for_confirmation(guard, sock, sending.steps, within_s=options.confirm_s)
            elif not guard.keep():
                raise NotConfirmed(after_s=options.within_s)
