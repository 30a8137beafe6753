"""`xenoovs remove`: take our flows away, and only ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, load, output_option, reach, switch_options
from xenoovs.cli.output import confirm, echo, print_json
from xenoovs.errors import counted

if TYPE_CHECKING:
    from xenoovs.switch.api import Switch


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path | None
    db: str | None
    lab: str | None
    everywhere: bool
    yes: bool
    output: Output


@click.command("remove")
@click.argument("config", required=False, metavar="[FILE]", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--all", "everywhere", is_flag=True, help="On every bridge, instead of that of FILE.")
@switch_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def remove_command(**given: Any) -> None:
    """Remove the flows of xenoovs from the bridge of the config FILE, or from every bridge (--all).

    Flows of others stay. Packets then meet what is left on the bridge: its default flow, or nothing.
    """
    options = Options(**given)
    if (options.config is None) == (not options.everywhere):
        raise click.UsageError("Name a FILE, or --all for every bridge.")
    from xenoovs.cli.agent_client import Where, tell_of_agent

    switch = reach(options.db, options.lab)
    named = None if options.config is None else load(options.config).uplinks.bridge
    bridges = tuple(state.name for state in switch.bridges()) if named is None else (named,)
    for bridge in bridges:
        tell_of_agent(Where(None, None, options.db, options.lab), bridge)
    removed = {bridge: _remove(bridge, switch, yes=options.yes) for bridge in bridges}
    if options.output is Output.JSON:
        print_json({"removed": removed})
        return
    for bridge, flows in removed.items():
        echo(f"{bridge}: {counted(flows, 'flow')} removed" if flows else f"{bridge}: no flow of xenoovs is there")


def _remove(bridge: str, switch: Switch, *, yes: bool) -> int:
    """How many flows were removed. Raises click.UsageError, click.Abort, SwitchError."""
    from xenoovs.compile.plan import bundle_of, plan

    ours = [seen.flow for seen in switch.dump_flows(bridge)]
    if ours:
        confirm(f"Remove {counted(len(ours), 'flow')} of xenoovs from {bridge}?", yes=yes)
    switch.apply(bridge, bundle_of(plan((), ours)))
    return len(ours)
