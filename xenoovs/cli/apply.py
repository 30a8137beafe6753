"""`xenoovs apply`: install the flows of a config, all or nothing, and read them back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from xenoovs.cli.agent_client import Where, check_agent, find_places, refuse_beside_agent
from xenoovs.cli.drain_rounds import DrainRounds
from xenoovs.cli.options import (
    OutputFormat,
    bridge_command,
    duration,
    hinting_partial,
    load_resolved,
    partial_option,
    reach,
    rebalance_option,
    yes_option,
)
from xenoovs.cli.output import confirm, echo, print_json
from xenoovs.cli.plan import all_flows_option, plan_document, show_plan
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import counted


@bridge_command("apply")
@yes_option
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@rebalance_option
@partial_option
@click.option("--no-drain", is_flag=True, help="Move all clients at once, whatever `drain` in the config says.")
@click.option("--force", is_flag=True, help="Apply beside a running agent, which will revert the change.")
@all_flows_option
@click.option(
    "--confirm",
    "confirm_s",
    type=duration,
    metavar="TIME",
    help="Roll back unless ENTER is pressed or `xenoovs confirm` is run within TIME (30s, 2m).",
)
@click.option(
    "--rollback-unless-offloaded",
    "must_offload",
    is_flag=True,
    help="Roll back if blocks with traffic are not in hardware; see --within.",
)
@click.option(
    "--within",
    "within_s",
    type=duration,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="Time for --rollback-unless-offloaded.",
)
def apply_command(
    config: Path,
    *,
    db: str | None,
    lab: str | None,
    yes: bool,
    dry_run: bool,
    rebalance: bool,
    partial: bool,
    no_drain: bool,
    force: bool,
    all_flows: bool,
    confirm_s: float | None,
    must_offload: bool,
    within_s: float,
    output: OutputFormat,
) -> None:
    """Install the flows of the config FILE on its bridge.

    Shows the plan, asks for confirmation (unless --yes), sends only the difference as one atomic OpenFlow bundle,
    reads the flows back and compares. Foreign flows are never touched. If the switch refuses the bundle, the bridge
    keeps all of its old flows.

    --confirm and --rollback-unless-offloaded also roll back if this command is interrupted or killed, or its terminal
    is closed. Services that the change touched get exactly their old flows back; all other flows stay.

    If an agent reconciles the bridge, nothing is changed without --force: edit the config of the agent.

    With `drain: {mode: pin}`, open connections stay with their backend for a while. The command waits for the end of
    the drain and sends two more bundles: after two seconds for new connections, at the end for all clients. If it is
    interrupted, run it again to continue; a running `xenoovs agent` continues too.
    """
    balancer, switch = load_resolved(config), reach(db, lab)
    engine, options = Engine(switch), PlanOptions(drain=not no_drain, partial=partial)
    with hinting_partial():
        change = engine.plan(balancer, replace(options, rebalance=rebalance), now_s=time.monotonic())
    if output is OutputFormat.TEXT:
        show_plan(change, all_flows=all_flows)
    rounds = DrainRounds(engine, balancer, options, change)
    is_applied = not dry_run and not change.difference.is_empty
    if is_applied:
        where = Where(None, change.bridge, db, lab)
        has_rollback = confirm_s is not None or must_offload
        if has_rollback:
            refuse_beside_agent(find_places(where), change.bridge)
        else:
            check_agent(where, change.bridge, force=force)
        confirm(f"Change {change.bridge}?", yes=yes, instead=", or --dry-run to see the plan")
        if has_rollback:
            # Imported here: http.server imports ssl, which takes longer than all of `apply --help`.
            from xenoovs.cli.apply_rollback import apply_with_rollback

            offloaded_s, places = within_s if must_offload else None, find_places(where)
            apply_with_rollback(
                engine, switch, balancer, rounds, change, places, confirm_s=confirm_s, offloaded_s=offloaded_s
            )
        else:
            engine.apply(change)
        if output is OutputFormat.TEXT:
            echo(f"done: {counted(change.difference.flow_mods, 'flow-mod')} in one bundle, read back and verified")
    waited_s = rounds.wait() if change.drains and not dry_run else 0.0
    if waited_s and output is OutputFormat.TEXT:
        echo(f"drained: all blocks have moved after {waited_s:.0f}s")
    if output is OutputFormat.JSON:
        print_json({**plan_document(change), "applied": is_applied, "drained_s": round(waited_s, 3)})
