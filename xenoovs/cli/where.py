"""How a command that somebody copies has to name the Open vSwitch that the options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.cli.options import connect
from xenoovs.datapath.host import Unknown
from xenoovs.errors import LabError, SwitchError
from xenoovs.switch.endpoint import DEFAULT_RUNDIR
from xenoovs.switch.host_facts import netns_of
from xenoovs.verify.commands import CommandTarget

if TYPE_CHECKING:
    from xenoovs.errors import XenoovsError
    from xenoovs.switch.endpoint import Endpoint


def where_of(endpoint: Endpoint, *, config: Path | None, lab: str | None) -> CommandTarget:
    """`config`: the file that was given; standard input has no name that could be given again."""
    file = None if config is None or str(config) == "-" else str(config)
    rundir = endpoint.rundir
    if rundir is not None and rundir.resolve() == DEFAULT_RUNDIR.resolve() and not endpoint.is_split:
        return CommandTarget(config=file, enter=_enter(endpoint))
    return CommandTarget(
        db=endpoint.db,
        rundir=None if rundir is None else str(rundir),
        options=("--lab", lab) if lab else ("--db", endpoint.db),
        enter=_enter(endpoint),
        config=file,
    )


def lead(error: XenoovsError, *, config: Path | None, db: str | None, lab: str | None) -> None:
    """Let the commands that the error tells reach the Open vSwitch that the options name."""
    try:
        endpoint = connect(db, lab).endpoint
    except (SwitchError, LabError):
        # It was about just that.
        return
    error.args = (where_of(endpoint, config=config, lab=lab).message(str(error), error.commands),)


def _enter(endpoint: Endpoint) -> tuple[str, ...]:
    place = netns_of(endpoint)
    return () if isinstance(place, Unknown) else tuple(place.argv())
