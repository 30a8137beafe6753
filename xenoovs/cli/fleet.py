"""`xenoovs fleet`: many DPUs with the same services and the same blocks, from one store."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from xenoovs.cli.main import GuessingGroup

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "init": ("fleet_servers", "Create the databases of a fleet on this host."),
    "server": ("fleet_servers", "Start or stop the servers of the store on this host."),
    "relay": ("fleet_servers", "Start or stop a relay, which serves many agents."),
    "plan": ("fleet_change", "Show what apply would change, and how many clients move."),
    "apply": ("fleet_change", "Give a config to all DPUs."),
    "status": ("fleet_status", "Show the generation, and which DPUs have it."),
    "history": ("fleet_status", "Show the configs that were given to the fleet."),
    "rollback": ("fleet_change", "Give an earlier config to the fleet again."),
    "drain": ("fleet_change", "Drain a backend in the whole fleet."),
    "undrain": ("fleet_change", "End a drain, or another weight."),
    "weight": ("fleet_change", "Override the weight of a backend in the whole fleet."),
    "add-dpu": ("fleet_dpus", "Add a DPU to the fleet."),
    "forget": ("fleet_dpus", "Remove a DPU from the fleet."),
    "serve": ("fleet_serve", "Run as controller: decide, and write what DPUs install."),
}


class LazyFleetGroup(GuessingGroup):
    """Imports the module of a command when the command is used: the library `ovs` is not everywhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"xenoovs.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands without the import of any."""
        found = [
            CompletionItem(name, help=text) for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group("fleet", cls=LazyFleetGroup)
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
