"""`xenoovs remove`: removes the flows of xenoovs, and no others."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.compile.plan import bundle_of, plan
from xenoovs.errors import counted
from xenoovs.openflow.flow import Flow
from xenoovs.switch.api import require_not_of_ovn
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.vip_routes import VipRoutes, device_of
from xenoovs.terminal.agent_client import check_agent
from xenoovs.terminal.defaults import find_config
from xenoovs.terminal.load import load
from xenoovs.terminal.options import optional_config_argument, output_option, switch_options, yes_option
from xenoovs.terminal.output import confirm, echo, is_text, print_json
from xenoovs.terminal.reach import reach


@click.command("remove")
@optional_config_argument
@click.option("--all", "everywhere", is_flag=True, help="Remove from every bridge instead of that of FILE.")
@switch_options
@yes_option
@click.option("--force", is_flag=True, help="Remove beside a running agent, which will install the flows again.")
@output_option
def remove_command(
    config: Path | None,
    *,
    everywhere: bool,
    yes: bool,
    force: bool,
) -> None:
    """Remove the flows of xenoovs from the bridge of the config FILE, or from every bridge (--all).

    Foreign flows stay. Packets then meet what is left on the bridge: its default flow, or nothing. Announced VIPs are
    withdrawn before.

    If an agent reconciles the bridge, nothing is removed: it would install the flows again. Stop the agent first.
    Bridges of OVN are left alone.
    """
    if config is not None and everywhere:
        raise click.UsageError("Give the config FILE, or --all for every bridge.")
    if not everywhere:
        config = config or find_config("--all")
    switch = reach()
    states = {state.name: state for state in switch.bridges()}
    if config is None:
        bridges = [name for name, state in states.items() if state.ovn is None or not state.ovn.is_owner]
    else:
        bridges = [load(config, of_dpu=True).uplinks.bridge]
    for state in (states[bridge] for bridge in bridges if bridge in states):
        require_not_of_ovn(state)
    for bridge in bridges:
        check_agent(bridge, force=force, instead="stop the agent first")
    found = {bridge: [observed.flow for observed in switch.dump_flows(bridge)] for bridge in bridges}
    removed = dict[str, int]()
    try:
        for bridge, flows in found.items():
            removed[bridge] = _remove(bridge, flows, switch, yes=yes)
            if is_text():
                count = counted(len(flows), "flow")
                echo(f"{bridge}: {count} removed" if flows else f"{bridge}: no flows of xenoovs to remove")
    finally:
        if not is_text() and (removed or not found):
            print_json({"removed": removed})


def _remove(bridge: str, flows: list[Flow], switch: ManagementSwitch, *, yes: bool) -> int:
    """Remove the flows and return their number. Raises click.UsageError, Declined, SwitchError."""
    if flows:
        confirm(f"Remove {counted(len(flows), 'flow')} of xenoovs from {bridge}?", yes=yes)
    VipRoutes(device_of(bridge, switch.endpoint)).close()
    switch.apply(bridge, bundle_of(plan((), flows)))
    return len(flows)
