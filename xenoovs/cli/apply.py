"""`xenoovs apply`: make it so, all or nothing, and read it back."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
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
from xenoovs.cli.output import print_json
from xenoovs.cli.plan import FLOWS_SHOWN
from xenoovs.errors.words import counted

if TYPE_CHECKING:
    from xenoovs.cli.show_drains import Steps
    from xenoovs.engine.change import Change
    from xenoovs.engine.engine import Engine
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.live import LiveSwitch


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
def command(**given: Any) -> None:
    """Make the bridge do what the config FILE says.

    Shows the plan, asks (on a terminal; otherwise --yes is needed), sends only the difference as one atomic OpenFlow
    bundle, reads the flows back and compares. Flows of others are never touched. If anything fails, the bridge has its
    old flows, every one of them.

    With --confirm or --rollback-unless-offloaded the bridge gets exactly its old flows back also when this command is
    interrupted or killed, or its terminal is lost. Flows of services that it did not change stay as they are then.

    Where an agent keeps the bridge nothing is changed: edit the config of the agent.

    With `drain: {mode: pin}` open connections stay with their backend for a while: the command waits for the end of it
    and sends two more bundles: after two seconds new connections go to the new backend, at the end all clients do.
    Interrupted, it can be called again and goes on; a running `xenoovs agent` does it too.
    """
    from xenoovs.cli.show_drains import Steps
    from xenoovs.cli.show_plan import plan_document, show_plan
    from xenoovs.engine.engine import Engine
    from xenoovs.engine.step import Options as How

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
    from xenoovs.cli.show_drains import wait_for_drains

    waited_s = wait_for_drains(steps)
    if options.output is Output.TEXT:
        click.echo(f"drained: all blocks have moved after {waited_s:.0f} s")
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
    _confirm(change, yes=options.yes)
    if options.has_way_back:
        _apply_with_way_back(sending, options)
    else:
        sending.engine.apply(change)
    if options.output is Output.TEXT:
        click.echo(f"done: {counted(change.difference.flow_mods, 'flow-mod')} in one bundle, read back and found right")


def _apply_with_way_back(sending: _Sending, options: Options) -> None:
    from xenoovs.agent.confirm import roll_back, take_flows
    from xenoovs.agent.control.unix import bound_socket
    from xenoovs.cli.agent_client import Where, find_places, refuse_beside_agent
    from xenoovs.cli.apply_keep import require_offload, wait_for_confirmation, with_way_back
    from xenoovs.errors import NotConfirmed
    from xenoovs.switch.guard import Guard

    change, switch = sending.change, sending.switch
    places = find_places(Where(None, change.bridge, options.db, options.lab))
    # Once more: a person may have thought for long.
    refuse_beside_agent(places, change.bridge)
    before = take_flows(switch, change.bridge)
    with bound_socket(places.waiting(change.bridge)) as sock:
        guard = Guard(lambda: roll_back(switch, before, services=change.touched))
        with with_way_back(guard):
            sending.engine.apply(change)
            if options.must_offload:
                click.echo(require_offload(sending.balancer, switch, guard, within_s=options.within_s), err=True)
            if options.confirm_s is not None:
                wait_for_confirmation(guard, sock, sending.steps, within_s=options.confirm_s)
            elif not guard.keep():
                raise NotConfirmed(after_s=options.within_s)


def _confirm(change: Change, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: add --yes to apply, or --dry-run to look.")
    click.confirm(f"Change {change.bridge}?", abort=True)
