"""`xenoovs fleet`: many DPUs with the same services and the same blocks, from one store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.terminal.command import LazyGroup
from xenoovs.terminal.options import tls_options

if TYPE_CHECKING:
    from xenoovs.switch.certificates import Certificates

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "init": ("servers", "Create the databases of a fleet on this host."),
    "server": ("servers", "Start or stop the servers of the store on this host."),
    "relay": ("servers", "Start or stop a relay, which serves many agents."),
    "plan": ("change", "Show what apply would change, and how many clients move."),
    "apply": ("change", "Roll out a config to the DPUs, in waves; or an earlier one."),
    "status": ("status", "Show the generation, and which DPUs have it."),
    "top": ("top", "Show the DPUs live."),
    "history": ("status", "Show who changed what, when and why; or one config."),
    "diff": ("status", "Show where flows differ from the store."),
    "stop": ("hold", "End a roll-out: take it back."),
    "pause": ("hold", "Pause a roll-out: hold its next wave; or resume it."),
    "freeze": ("hold", "Refuse changes until a time."),
    "drain": ("change", "Drain a backend in the whole fleet."),
    "weight": ("change", "Override the weight of a backend in the whole fleet."),
    "reset": ("change", "Return a backend to its weight in the config; end a drain."),
    "add-dpu": ("dpus", "Add a DPU to the fleet."),
    "set-dpu": ("dpus", "Change the groups, the rack or the wave of a DPU."),
    "drain-dpu": ("dpus", "Take a DPU out of service, without clients; or return it."),
    "forget": ("dpus", "Remove a DPU from the fleet."),
    "export": ("servers", "Export the store to a file."),
    "restore": ("servers", "Restore an exported fleet into a new store."),
    "serve": ("serve", "Run as controller: decide, and write what DPUs install."),
}


@click.group(
    "fleet",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: f"{__name__}.{module}" for name, (module, _) in _COMMANDS.items()},
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory of the files of this host's servers.  [default: /var/lib/xenoovs/fleet; of a relay "
    "/var/lib/xenoovs/relay]",
)
@click.option(
    "--remote",
    metavar="REMOTES",
    help="Use a store on other hosts: its port for operators, such as ssl:192.0.2.1:6664,ssl:192.0.2.2:6664, or to "
    "read only, that for agents.",
)
@click.option("--remote-states", metavar="REMOTES", help="The same for reports of DPUs.  [default: --remote]")
@tls_options
def fleet_command(
    *, directory: Path | None, remote: str | None, remote_states: str | None, tls: Certificates | None
) -> None:
    """Run many DPUs with the same services and the same blocks, from one store.

    The controller (`fleet serve`) decides which backend has which blocks, and writes them to the store. Agents with
    --fleet install exactly these. The commands run on a host of the store, or elsewhere with --remote.

    \b
    Example:
      xenoovs fleet init
      xenoovs fleet server
      xenoovs fleet add-dpu dpu1
      xenoovs fleet apply services.yaml --now
      xenoovs fleet status
    """
    from xenoovs.fleet.commands.client import FleetPlace

    context = click.get_current_context()
    context.obj = FleetPlace(directory)
    if remote is None:
        if remote_states is not None or tls is not None:
            raise click.UsageError("--remote-states, --tls-key, --tls-cert and --tls-ca go with --remote here.")
        return
    if context.invoked_subcommand in ("init", "server", "relay", "serve"):
        raise click.UsageError(f"--remote has no use for {context.invoked_subcommand}: it is for this host.")
    if directory is not None:
        raise click.UsageError("--directory and --remote exclude each other.")
    context.obj = FleetPlace(None, remote, remote_states or remote, tls)
