"""The configs that one process serves: each of another bridge, and under which name each is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.errors import SameBridge, SwitchError

if TYPE_CHECKING:
    from xenoovs.agent.config_file import ConfigFile
    from xenoovs.model.balancer import Uplinks
    from xenoovs.switch.live import LiveSwitch


@dataclass(frozen=True, slots=True)
class Kept:
    """One bridge. `name`: of its socket, its lock and its state, for `--bridge`."""

    config: ConfigFile
    uplinks: Uplinks
    name: str


def kept_of(
    files: tuple[Path, ...], switch: LiveSwitch, *, datapath_id: int | None = None, is_told: bool
) -> tuple[Kept, ...]:
    """In the order of the files. `datapath_id`: as an option says it. `is_told`: bridges connect to us, from anywhere.

    Raises click.UsageError, ConfigError, ConfigUnreadable, SameBridge.
    """
    from xenoovs.agent.config_file import ConfigFile

    if datapath_id is not None and len(files) > 1:
        raise click.UsageError("--datapath-id is for one FILE: with several, write switch.datapath_id in each.")
    kept = []
    for file in files:
        config = ConfigFile(file)
        uplinks = _uplinks(config.balancer.uplinks, datapath_id)
        kept.append(Kept(config, uplinks, _name(uplinks, switch) if is_told else uplinks.bridge))
    for one, other in combinations(kept, 2):
        if _may_be_one(one.uplinks, other.uplinks):
            raise SameBridge(files=(str(one.config.path), str(other.config.path)), bridge=other.uplinks.label)
    return tuple(kept)


def _uplinks(uplinks: Uplinks, datapath_id: int | None) -> Uplinks:
    if datapath_id is None:
        return uplinks
    if uplinks.datapath_id not in (None, datapath_id):
        raise click.UsageError(f"--datapath-id {datapath_id:016x}: the config says {uplinks.datapath_id:016x}.")
    return replace(uplinks, datapath_id=datapath_id)


def _may_be_one(one: Uplinks, other: Uplinks) -> bool:
    ids = {one.datapath_id, other.datapath_id}
    return len(ids - {None}) < 2 and (one.bridge == other.bridge or None not in ids)


def _name(uplinks: Uplinks, switch: LiveSwitch) -> str:
    """A bridge of this host has its own name, whoever keeps it: so nobody else does, and commands find who does."""
    if uplinks.datapath_id is None:
        return uplinks.bridge
    try:
        states = switch.bridges() if switch.endpoint.rundir is not None else ()
    except SwitchError:
        states = ()
    mine = uplinks.bridge, f"{uplinks.datapath_id:016x}"
    return uplinks.bridge if mine in {(state.name, state.datapath_id) for state in states} else uplinks.label
