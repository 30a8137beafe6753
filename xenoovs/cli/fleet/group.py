"""`xenoovs fleet`: many DPUs with the same services and the same blocks, from one store."""

from __future__ import annotations

import click

from xenoovs.cli.main import LazyGroup

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "init": ("fleet.servers", "Create the databases of a fleet on this host."),
    "server": ("fleet.servers", "Start or stop the servers of the store on this host."),
    "relay": ("fleet.servers", "Start or stop a relay, which serves many agents."),
    "plan": ("fleet.change", "Show what apply would change, and how many clients move."),
    "apply": ("fleet.change", "Give a config to the DPUs, in waves."),
    "status": ("fleet.status", "Show the generation, and which DPUs have it."),
    "top": ("fleet.top", "Show the DPUs live."),
    "history": ("fleet.status", "Show the configs that were given to the fleet."),
    "show": ("fleet.status", "Print a config that was given to the fleet."),
    "diff": ("fleet.status", "Show where flows differ from the store."),
    "stop": ("fleet.change", "End a roll-out: take it back."),
    "rollback": ("fleet.change", "Give an earlier config to the fleet again."),
    "drain": ("fleet.change", "Drain a backend in the whole fleet."),
    "undrain": ("fleet.change", "End a drain, or another weight."),
    "weight": ("fleet.change", "Override the weight of a backend in the whole fleet."),
    "add-dpu": ("fleet.dpus", "Add a DPU to the fleet."),
    "set-dpu": ("fleet.dpus", "Change the groups, the rack or the wave of a DPU."),
    "drain-dpu": ("fleet.dpus", "Take a DPU out of service: routers send it no clients."),
    "undrain-dpu": ("fleet.dpus", "Return a DPU to service."),
    "forget": ("fleet.dpus", "Remove a DPU from the fleet."),
    "export": ("fleet.export", "Write all that the store has to a file."),
    "restore": ("fleet.export", "Restore an exported fleet into a new store."),
    "serve": ("fleet.serve", "Run as controller: decide, and write what DPUs install."),
}


@click.group(
    "fleet",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: module for name, (module, _) in _COMMANDS.items()},
)
def fleet_command() -> None:
    """Run many DPUs with the same services and the same blocks, from one store.

    The controller (`fleet serve`) decides which backend has which blocks, and writes them to the store. Agents with
    --fleet install exactly these. The commands run on the host of the store.

    \b
    Example:
      xenoovs fleet init
      xenoovs fleet server
      xenoovs fleet add-dpu dpu1
      xenoovs fleet apply services.yaml --now
      xenoovs fleet status
    """
