"""`xenoovs pause`: the agent looks on."""

from __future__ import annotations

import click

from xenoovs.cli.agent_client import Where, agent_options, change
from xenoovs.cli.options import Output, output_option


@click.command("pause")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, output: Output, **where: str | None) -> None:
    """Let the agent look on and tell, but change nothing on the bridge, until `xenoovs resume`.

    Health checks go on, and the config is still read. Also after a restart of the agent.
    """
    context.exit(change(Where(**where), output, "pause"))  # type: ignore[arg-type]
