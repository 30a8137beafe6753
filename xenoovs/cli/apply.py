"""`xenoovs apply`: make it so, all or nothing, and read it back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, bridge_command, connect, load, rebalance_option
from xenoovs.cli.output import print_json
from xenoovs.cli.plan import FLOWS_SHOWN

if TYPE_CHECKING:
    from xenoovs.cli.planning import PlannedChange
    from xenoovs.switch.api import Switch


@bridge_command("apply")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@rebalance_option
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
def command(
    config: Path,
    db: str | None,
    lab: str | None,
    *,
    yes: bool,
    dry_run: bool,
    rebalance: bool,
    all_flows: bool,
    output: Output,
) -> None:
    """Make the bridge do what the config FILE says.

    Shows the plan, asks (on a terminal; otherwise --yes is needed), sends only the difference as one atomic OpenFlow
    bundle, reads the flows back and compares. Flows of others are never touched. If anything fails, the bridge has its
    old flows, every one of them.
    """
    from xenoovs.cli.planning import plan_change
    from xenoovs.cli.show_plan import plan_document, show_plan

    balancer, switch = load(config), connect(db, lab)
    change = plan_change(balancer, switch, rebalance=rebalance)
    if output is Output.TEXT:
        show_plan(change, flows_shown=None if all_flows else FLOWS_SHOWN)
    applied = not dry_run and not change.difference.is_empty
    if applied:
        _confirm(change, yes=yes)
        _apply(change, switch)
    if output is Output.JSON:
        print_json({**plan_document(change), "applied": applied})
    elif applied:
        click.echo(f"done: {change.difference.flow_mods} flow-mods in one bundle, read back and found right")


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
