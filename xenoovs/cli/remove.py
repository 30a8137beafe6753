"""`xenoovs remove`: take our flows away, and only ours."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.cli.agent_client import Where, check_agent
from xenoovs.cli.options import OutputFormat, load, output_option, reach, switch_options
from xenoovs.cli.output import confirm, echo, print_json
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.errors import counted
from xenoovs.switch.api import Switch


@click.command("remove")
@click.argument("config", required=False, metavar="[FILE]", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--all", "everywhere", is_flag=True, help="Remove from every bridge instead of the one of FILE.")
@switch_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Remove beside a running agent, which will install the flows again.")
@output_option
def remove_command(
    config: Path | None,
    *,
    everywhere: bool,
    db: str | None,
    lab: str | None,
    yes: bool,
    force: bool,
    output: OutputFormat,
) -> None:
    """Remove the flows of xenoovs from the bridge of the config FILE, or from every bridge (--all).

    Foreign flows stay. Packets then meet what is left on the bridge: its default flow, or nothing.

    If an agent reconciles the bridge, nothing is removed: it would install the flows again. Stop the agent first.
    """
    if (config is None) == (not everywhere):
        raise click.UsageError("Give the config FILE, or --all for every bridge.")
    switch = reach(db, lab)
    bridges = [state.name for state in switch.bridges()] if config is None else [load(config).uplinks.bridge]
    for bridge in bridges:
        check_agent(Where(None, None, db, lab), bridge, force=force, instead="stop the agent first")
    removed = {bridge: _remove(bridge, switch, yes=yes) for bridge in bridges}
    if output is OutputFormat.JSON:
        print_json({"removed": removed})
        return
    for bridge, flows in removed.items():
        echo(f"{bridge}: {counted(flows, 'flow')} removed" if flows else f"{bridge}: no flows of xenoovs to remove")


def _remove(bridge: str, switch: Switch, *, yes: bool) -> int:
    """Return the number of flows removed. Raises click.UsageError, click.Abort, SwitchError."""
    flows = [observed.flow for observed in switch.dump_flows(bridge)]
    if flows:
        confirm(f"Remove {counted(len(flows), 'flow')} of xenoovs from {bridge}?", yes=yes)
    switch.apply(bridge, bundle_of(plan((), flows)))
    return len(flows)
