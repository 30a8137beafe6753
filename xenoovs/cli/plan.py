"""`xenoovs plan`: what would change."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.cli.options import Output, bridge_command, load_resolved, reach, rebalance_option
from xenoovs.cli.output import print_json

FLOWS_SHOWN = 20


@bridge_command("plan")
@rebalance_option
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
@click.pass_context
def command(
    context: click.Context,
    config: Path,
    db: str | None,
    lab: str | None,
    *,
    rebalance: bool,
    all_flows: bool,
    output: Output,
) -> None:
    """Compare the config FILE with its bridge, and change nothing.

    Shows the flows that would be added (+), changed (~) and removed (-); for each service the backends' shares of the
    address space before and after, the share of clients that would get another backend, and the entries that the NIC
    will hold; with `drain: {mode: pin}` what is done first, for which connections and for how long. Exit status 0:
    nothing to do, 2: something differs.
    """
    from xenoovs.agent.drains import Drains
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.cli.planning import plan_change
    from xenoovs.cli.show_plan import plan_document, show_plan

    balancer, switch = load_resolved(config), reach(db, lab)
    change = plan_change(balancer, switch, rebalance=rebalance, drains=Drains(switch))
    if output is Output.JSON:
        print_json(plan_document(change))
    else:
        show_plan(change, flows_shown=None if all_flows else FLOWS_SHOWN)
    context.exit(EXIT_OK if change.difference.is_empty else EXIT_DIFFERS)
