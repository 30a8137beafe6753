"""`xenoovs plan`: what would change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from xenoovs.cli.options import (
    Output,
    bridge_command,
    hinting_partial,
    load_resolved,
    partial_option,
    reach,
    rebalance_option,
)
from xenoovs.cli.output import print_json

FLOWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path
    db: str | None
    lab: str | None
    rebalance: bool
    partial: bool
    all_flows: bool
    output: Output


@bridge_command("plan")
@rebalance_option
@partial_option
@click.option("--all-flows", is_flag=True, help=f"Show every flow, not {FLOWS_SHOWN} of each kind.")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Compare the config FILE with its bridge, and change nothing.

    Shows the flows that would be added (+), changed (~) and removed (-); for each service the backends' shares of the
    address space before and after, the share of clients that would get another backend, and the entries that the NIC
    will hold; with `drain: {mode: pin}` what is done first, for which connections and for how long. Exit status 0:
    nothing to do, 2: something differs.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.cli.show_plan import plan_document, show_plan
    from xenoovs.engine.engine import Engine
    from xenoovs.engine.step import Options as How

    options = Options(**given)
    balancer, switch = load_resolved(options.config), reach(options.db, options.lab)
    with hinting_partial():
        change = Engine(switch).plan(balancer, How(rebalance=options.rebalance, partial=options.partial))
    if options.output is Output.JSON:
        print_json(plan_document(change))
    else:
        show_plan(change, flows_shown=None if options.all_flows else FLOWS_SHOWN)
    context.exit(EXIT_OK if change.difference.is_empty else EXIT_DIFFERS)
