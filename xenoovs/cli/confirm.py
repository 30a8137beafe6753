"""`xenoovs confirm`: a change stays."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.agent_client import Where, agent_options, change, find_places
from xenoovs.cli.options import Output, output_option
from xenoovs.errors import RequestRefused

if TYPE_CHECKING:
    from xenoovs.agent.control.places import Places


@click.command("confirm")
@agent_options
@output_option
@click.pass_context
def command(context: click.Context, /, output: Output, **given: str | None) -> None:
    """Keep a change that would be taken back: of `xenoovs apply --confirm`, or of an agent with --confirm."""
    where = Where(**given)  # type: ignore[arg-type]
    if where.control is None:
        places = find_places(where)
        if (waiting := _waiting(places, where.bridge)) is not None:
            where = replace(where, control=waiting)
        elif not any(map(_may_answer, _agents(places, where.bridge))):
            raise RequestRefused(
                "nothing waits to be confirmed: neither an `xenoovs apply` nor an agent answers at a socket in "
                f"{places.run}; a change that was not confirmed in time has been taken back",
                status=409,
                code="nothing_waits",
            )
    context.exit(change(where, output, "confirm"))


def _agents(places: Places, bridge: str | None) -> Iterable[Path]:
    return places.sockets() if bridge is None else (places.socket(bridge),)


def _may_answer(path: Path) -> bool:
    """Whether somebody listens there, or whether that is not for us to know."""
    from xenoovs.agent.control.unix import answers

    return path.exists() and (answers(path) or not os.access(path, os.W_OK))


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
