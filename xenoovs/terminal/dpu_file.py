"""The file of a DPU of a fleet as a config: its services are those that the agent has saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from xenoovs.display import printable
from xenoovs.errors import ListenError
from xenoovs.terminal.agent_client import Where, find_places
from xenoovs.terminal.output import echo

if TYPE_CHECKING:
    from xenoovs.config.include import ConfigSources
    from xenoovs.model.balancer import Balancer


def has_fleet_ports(root: object) -> bool:
    """Return whether only the file of a DPU of a fleet can be meant."""
    switch = root.get("switch") if isinstance(root, dict) else None
    return isinstance(switch, dict) and "fleet_ports" in switch


def refusal(file: str) -> click.UsageError:
    """Return the error of a command that decides about services by itself."""
    return click.UsageError(
        f"{file} is the file of a DPU of a fleet, whose store decides about services: `xenoovs status` shows what this "
        "DPU has; on the host of the store, use `xenoovs fleet plan` and `xenoovs fleet apply`."
    )


def dpu_config(local: bytes, *, file: str, sources: ConfigSources | None) -> Balancer:
    """Return the config of a DPU, and print which services it is with. Raises ConfigError, FleetCacheUnusable."""
    from xenoovs.agent.fleet_cache import FleetCache
    from xenoovs.config.fleet import join

    alone = join(local, {}, file=file, sources=sources)
    label = alone.uplinks.label
    given = click.get_current_context().params
    try:
        view = FleetCache(find_places(Where(None, None, given.get("db"), given.get("lab"))).fleet(label)).load()
    except ListenError:
        view = None
    if view is None:
        echo(f"no agent has saved services of a fleet for {label} yet, so there are none here", err=True)
        return alone
    echo(f"services as the agent saved them: generation {view.generation} of fleet {printable(view.name)}", err=True)
    return join(local, {name: each.config for name, each in view.services.items()}, file=file, sources=sources)
