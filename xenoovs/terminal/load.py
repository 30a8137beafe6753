"""The config that a command names: of one bridge, of all, or of a DPU of a fleet; with MACs resolved or not."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from xenoovs.errors import BridgeNotChosen, MacUnknown, did_you_mean
from xenoovs.model.balancer import Balancer, sought
from xenoovs.terminal.labs import labs
from xenoovs.terminal.options import chosen_bridge
from xenoovs.terminal.reach import name_bridge, name_fleet

_PLAN_START = re.compile(rb'\s*\{\s*"xenoovs_plan"')
_START_BYTES = 64


def is_plan(path: Path) -> bool:
    """Return whether a file is a saved plan (cli/saved.py), by its start; False for what is no regular file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _PLAN_START.match(file.read(_START_BYTES)) is not None


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The models of the bridges of a config, or of the one that --bridge names.

    Attributes:
        is_listed: Whether the file has `bridges` and none is chosen, so that a command answers for each of them.
    """

    file: str
    balancers: tuple[Balancer, ...]
    is_listed: bool


def load(config: Path, *, for_lab: bool = False, bridge: str | None = None, of_dpu: bool = False) -> Balancer:
    """Return the model of one bridge of a config: that of --bridge or --lab, else the only one.

    Args:
        config: The file; `-`: standard input.
        for_lab: Whether the config is for a lab that is not up yet.
        bridge: Its name, where the config has several and the user names none.
        of_dpu: Whether the file of a DPU of a fleet will do, with the services that its agent has saved.

    Raises:
        ConfigError, ConfigUnreadable, LabError.
        click.UsageError: The config has several bridges and none is chosen, or has no bridge of that name.
    """
    (balancer,) = _load(config, for_lab=for_lab, bridge=bridge, is_for_one=True, of_dpu=of_dpu).balancers
    return balancer


def load_bridges(config: Path, *, of_dpu: bool = False) -> LoadedConfig:
    """Return the models of all bridges of a config, or of the chosen one. `of_dpu`, and raises, as `load`."""
    return _load(config, for_lab=False, bridge=None, is_for_one=False, of_dpu=of_dpu)


def _load(config: Path, *, for_lab: bool, bridge: str | None, is_for_one: bool, of_dpu: bool) -> LoadedConfig:
    from xenoovs.config.bridges import choose_bridge
    from xenoovs.config.include import MAX_SIZE_BYTES, ConfigSources
    from xenoovs.config.load import check_bridges, read_config, split_config

    context = click.get_current_context(silent=True)
    lab = None if context is None else context.params.get("lab")
    if is_plan(config):
        raise click.UsageError(f"{config} is a saved plan, no config: `xenoovs apply {config}` makes its change.")
    if str(config) == "-":
        file, data, sources = "<stdin>", sys.stdin.buffer.read(MAX_SIZE_BYTES + 1), None
    else:
        file, data, sources = str(config), read_config(config), ConfigSources(config)
    trees = split_config(data, file=file, sources=sources)
    root = trees[0].joined.root
    is_of_dpu = isinstance(root, dict) and "switch" in root and "services" not in root
    if is_of_dpu and not of_dpu:
        # Imported here, as most commands have another config.
        from xenoovs.terminal.dpu_file import has_fleet_ports, refusal

        if has_fleet_ports(root):
            raise refusal(file)
    is_listed = trees[0].is_listed
    name = chosen_bridge() or (bridge if is_listed else None)
    if lab and is_listed and name is None:
        name = labs().target_of(lab).bridge
    if is_for_one or name is not None:
        try:
            trees = (choose_bridge(trees, name, file=file),)
        except BridgeNotChosen as error:
            raise click.UsageError(f"{error}.") from None
        name_bridge(trees[0].label if is_listed else None)
    if is_of_dpu and of_dpu:
        from xenoovs.terminal.dpu_file import dpu_config

        name_fleet()
        balancers: tuple[Balancer, ...] = (dpu_config(data, file=file, sources=sources),)
    else:
        balancers = check_bridges(trees, for_lab=for_lab or bool(lab))
    if lab:
        balancers = tuple(map(labs().target_of(lab).adapted, balancers))
    return LoadedConfig(file, balancers, is_listed=is_listed and not is_for_one and name is None)


def check_service(balancer: Balancer, name: str | None) -> None:
    """Raise click.UsageError where the config has no service of this name."""
    names = [service.name for service in balancer.services]
    if name is not None and name not in names:
        raise click.UsageError(f"--service {name}: the config has {', '.join(names)}.{did_you_mean(name, names)}")


def load_resolved(config: Path, *, of_dpu: bool = False) -> Balancer:
    """Load a config, and resolve the MACs of backends that have only an address. `of_dpu`: as of `load`.

    Raises ConfigError, MacUnknown.
    """
    return resolved(load(config, of_dpu=of_dpu))


def resolved(balancer: Balancer) -> Balancer:
    """Return the balancer with the MACs of backends that have only an address. Raises MacUnknown."""
    if not sought(balancer):
        return balancer
    from xenoovs.agent.neighbour import resolve_now

    return resolve_now(balancer)


def load_recorded(config: Path) -> Balancer:
    """Load a config for a recorded dump: no MACs are resolved. Raises ConfigError, MacUnknown."""
    return recorded(load(config))


def recorded(balancer: Balancer) -> Balancer:
    """Return the balancer for a recorded dump, for which no MACs are resolved. Raises MacUnknown."""
    if unknown := sought(balancer):
        raise MacUnknown(unknown={str(one.address): names for one, names in unknown.items()}, is_recorded=True)
    return balancer
