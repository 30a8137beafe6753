"""`xenoovs resume`: the agent changes the bridge again."""

from __future__ import annotations

import click

from xenoovs.cli.agent_client import Where, agent_options, change
from xenoovs.cli.options import Output, output_option


@click.command("resume")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, output: Output, **where: str | None) -> None:
    """End a pause: the agent makes the bridge right at once."""
    context.exit(change(Where(**where), output, "resume"))  # type: ignore[arg-type]
