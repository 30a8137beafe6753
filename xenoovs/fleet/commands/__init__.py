"""`xenoovs fleet`: many DPUs with the same services and the same blocks, from one store."""

from __future__ import annotations

import click

from xenoovs.terminal.command import LazyGroup

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "init": ("servers", "Create the databases of a fleet on this host."),
    "server": ("servers", "Start or stop the servers of the store on this host."),
    "relay": ("servers", "Start or stop a relay, which serves many agents."),
    "plan": ("change", "Show what apply would change, and how many clients move."),
    "apply": ("change", "Give a config to the DPUs, in waves."),
    "status": ("status", "Show the generation, and which DPUs have it."),
    "top": ("top", "Show the DPUs live."),
    "history": ("status", "Show who changed what, when and why; or one config."),
    "diff": ("status", "Show where flows differ from the store."),
    "stop": ("hold", "End a roll-out: take it back."),
    "pause": ("hold", "Pause a roll-out: hold its next wave."),
    "resume": ("hold", "Resume a paused roll-out."),
    "freeze": ("hold", "Refuse changes until a time."),
    "rollback": ("change", "Give an earlier config to the fleet again."),
    "drain": ("change", "Drain a backend in the whole fleet."),
    "weight": ("change", "Override the weight of a backend in the whole fleet."),
    "reset": ("change", "Return a backend to what the config says; end a drain."),
    "add-dpu": ("dpus", "Add a DPU to the fleet."),
    "set-dpu": ("dpus", "Change the groups, the rack or the wave of a DPU."),
    "drain-dpu": ("dpus", "Take a DPU out of service: routers send it no clients."),
    "undrain-dpu": ("dpus", "Return a DPU to service."),
    "forget": ("dpus", "Remove a DPU from the fleet."),
    "export": ("servers", "Write all that the store has to a file."),
    "restore": ("servers", "Restore an exported fleet into a new store."),
    "serve": ("servers", "Run as controller: decide, and write what DPUs install."),
}


@click.group(
    "fleet",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: f"{__name__}.{module}" for name, (module, _) in _COMMANDS.items()},
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
