"""`xenoovs completion`: the script that teaches a shell to complete xenoovs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from xenoovs.cli.output import echo

_SHELLS = ("bash", "fish", "zsh")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      xenoovs completion bash > /etc/bash_completion.d/xenoovs
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    root = context.find_root()
    echo(kind(root.command, {}, "xenoovs", "_XENOOVS_COMPLETE").source())
