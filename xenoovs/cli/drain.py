"""`xenoovs drain`: no clients for a backend, for now."""

from __future__ import annotations

import click

from xenoovs.cli.agent_client import Where, agent_options, change
from xenoovs.cli.options import Output, output_option


@click.command("drain")
@click.argument("service")
@click.argument("backend")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, service: str, backend: str, output: Output, **where: str | None) -> None:
    """Give BACKEND of SERVICE no clients: its blocks go to the others, by weight.

    The running agent does it, and keeps it over reloads and restarts until `xenoovs undrain`, or until the config
    gives this backend another weight. Health checks go on.
    """
    context.exit(change(Where(**where), output, "drain", {"service": service, "backend": backend}))  # type: ignore[arg-type]
