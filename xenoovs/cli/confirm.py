"""`xenoovs confirm`: a change stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.agent_client import Where, agent_options, change, find_places
from xenoovs.cli.options import Output, output_option

if TYPE_CHECKING:
    from xenoovs.agent.control.places import Places


@click.command("confirm")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, output: Output, **given: str | None) -> None:
    """Keep a change that would be taken back: of `xenoovs apply --confirm`, or of an agent with --confirm."""
    where = Where(**given)  # type: ignore[arg-type]
    if where.control is None and (waiting := _waiting(find_places(where), where.bridge)) is not None:
        where = replace(where, control=waiting)
    context.exit(change(where, output, "confirm"))


def _waiting(places: Places, bridge: str | None) -> Path | None:
    """The socket of an `apply` that waits."""
    from xenoovs.agent.control.unix import answers

    pattern = "*" if bridge is None else bridge
    found = [path for path in sorted(places.run.glob(places.waiting(pattern).name)) if answers(path)]
    if len(found) > 1:
        raise click.UsageError(
            f"Several changes wait ({', '.join(path.stem for path in found)}): choose one with --bridge NAME."
        )
    return found[0] if found else None
