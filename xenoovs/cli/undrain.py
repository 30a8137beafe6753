"""`xenoovs undrain`: a backend has its weight of the config again."""

from __future__ import annotations

import click

from xenoovs.cli.agent_client import Where, agent_options, change
from xenoovs.cli.options import Output, output_option


@click.command("undrain")
@click.argument("service")
@click.argument("backend")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, service: str, backend: str, output: Output, **where: str | None) -> None:
    """Give BACKEND of SERVICE the weight of the config again, after `xenoovs drain` or `xenoovs weight`."""
    context.exit(change(Where(**where), output, "undrain", {"service": service, "backend": backend}))  # type: ignore[arg-type]
