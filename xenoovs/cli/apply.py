"""`xenoovs apply`: make it so, all or nothing, and read it back."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, config_argument, connect, load, output_option, rebalance_option, switch_options
from xenoovs.cli.output import print_json
from xenoovs.cli.plan import FLOWS_SHOWN

if TYPE_CHECKING:
    from xenoovs.cli.planning import PlannedChange
    from xenoovs.switch.api import Switch


@click.command("apply")
@config_argument
@switch_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@rebalance_option
@click.option("--no-drain", is_flag=True, help="Move all clients at once, whatever `drain` of the config says.")
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
@output_option
def command(
    config: Path,
    db: str | None,
    lab: str | None,
    *,
    yes: bool,
    dry_run: bool,
    rebalance: bool,
    no_drain: bool,
    all_flows: bool,
    output: Output,
) -> None:
    """Make the bridge do what the config FILE says.

    Shows the plan, asks (on a terminal; otherwise --yes is needed), sends only the difference as one atomic OpenFlow
    bundle, reads the flows back and compares. Flows of others are never touched. If anything fails, the bridge has its
    old flows, every one of them.

    With `drain: {mode: pin}` open connections stay with their backend for a while: the command waits for the end of it
    and sends a second bundle. Interrupted, it can be called again and goes on; a running `xenoovs agent` does it too.
    """
    from xenoovs.agent.drains import Drains
    from xenoovs.cli.planning import plan_change
    from xenoovs.cli.show_drains import wait_for_drains
    from xenoovs.cli.show_plan import plan_document, show_plan

    balancer, switch = load(config), connect(db, lab)
    drains = None if no_drain else Drains(switch)
    change = plan_change(balancer, switch, rebalance=rebalance, drains=drains, now_s=time.monotonic())
    if output is Output.TEXT:
        show_plan(change, flows_shown=None if all_flows else FLOWS_SHOWN)
    applied = not dry_run and not change.difference.is_empty
    if applied:
        _confirm(change, yes=yes)
        _apply(change, switch)
    if applied and output is Output.TEXT:
        click.echo(f"done: {change.difference.flow_mods} flow-mods in one bundle, read back and found right")
    waited_s = 0.0
    if change.drains and not dry_run:
        waited_s = wait_for_drains(
            change,
            plan_again=lambda: plan_change(balancer, switch, drains=drains, now_s=time.monotonic()),
            apply=lambda again: _apply(again, switch),
        )
        if output is Output.TEXT:
            click.echo(f"drained: no connection was cut for {waited_s:.0f} s, and all blocks have moved")
    if output is Output.JSON:
        print_json({**plan_document(change), "applied": applied, "drained_s": round(waited_s, 3)})


def _confirm(change: PlannedChange, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: add --yes to apply, or --dry-run to look.")
    click.confirm(f"Change {change.bridge}?", abort=True)


def _apply(change: PlannedChange, switch: Switch) -> None:
    from xenoovs.cli.planning import read_back
    from xenoovs.errors import ReadBackDiffers

    switch.apply(change.bridge, change.bundle)
    wrong = read_back(change, switch)
    if wrong:
        raise ReadBackDiffers(bridge=change.bridge, flows=wrong)
