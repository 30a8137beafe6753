"""The config that a command names: of one bridge, of each, or of a DPU of a fleet; with MACs resolved or not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.display import printable
from xenoovs.errors import BridgeNotChosen, ListenError, MacUnknown, XenoovsError, did_you_mean
from xenoovs.model.balancer import Balancer, sought
from xenoovs.terminal.agent_client import Where, find_places
from xenoovs.terminal.command import EXIT_FAILED, fail
from xenoovs.terminal.labs import labs
from xenoovs.terminal.options import OutputFormat, chosen_bridge
from xenoovs.terminal.output import collecting_json, echo, print_json
from xenoovs.terminal.reach import address_commands, name_bridge, name_fleet

if TYPE_CHECKING:
    from xenoovs.config.include import ConfigSources
    from xenoovs.model.balancer import Balancer


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
    if is_of_dpu and not of_dpu and has_fleet_ports(root):
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


def has_fleet_ports(root: object) -> bool:
    """Return whether only the file of a DPU of a fleet can be meant."""
    switch = root.get("switch") if isinstance(root, dict) else None
    return isinstance(switch, dict) and "fleet_ports" in switch


def refusal(file: str) -> click.UsageError:
    """Return the error of a command that decides about services by itself."""
    return click.UsageError(
        f"{file} is the file of a DPU of a fleet, whose store decides about services: `xenoovs status` shows what this "
        "DPU has; on the host of the store, use `xenoovs fleet plan` and `xenoovs fleet apply`."
    )


def dpu_config(local: bytes, *, file: str, sources: ConfigSources | None) -> Balancer:
    """Return the config of a DPU, and print which services it is with. Raises ConfigError, FleetCacheUnusable."""
    from xenoovs.agent.fleet_cache import FleetCache
    from xenoovs.config.fleet import join

    alone = join(local, {}, file=file, sources=sources)
    label = alone.uplinks.label
    given = click.get_current_context().params
    try:
        view = FleetCache(find_places(Where(None, None, given.get("db"), given.get("lab"))).fleet(label)).load()
    except ListenError:
        view = None
    if view is None:
        echo(f"no agent has saved services of a fleet for {label} yet, so there are none here", err=True)
        return alone
    echo(f"services as the agent saved them: generation {view.generation} of fleet {printable(view.name)}", err=True)
    return join(local, {name: each.config for name, each in view.services.items()}, file=file, sources=sources)


def for_each_bridge(
    loaded: LoadedConfig, output: OutputFormat, work: Callable[[Balancer], int], *, needs_one: str = ""
) -> int:
    """Do the work of a command for each bridge of a config.

    What fails for one bridge is printed, and the others follow. With JSON the documents of all bridges are one list.

    Args:
        loaded: The config.
        output: How the command prints.
        work: Prints the answer for a bridge, and returns the exit status.
        needs_one: The option in use that is about one bridge only.

    Returns:
        The worst exit status.

    Raises:
        XenoovsError: For a config of one bridge.
        click.UsageError: The config has several bridges, and `needs_one` is in use.
    """
    if not loaded.is_listed:
        (balancer,) = loaded.balancers
        return work(balancer)
    if needs_one:
        labels = ", ".join(balancer.uplinks.label for balancer in loaded.balancers)
        raise click.UsageError(f"{needs_one} is about one bridge, and {loaded.file} has {labels}: add --bridge NAME.")
    works = {balancer.uplinks.label: partial(_named, work, balancer) for balancer in loaded.balancers}
    return answer_each(works, output)


def _named(work: Callable[[Balancer], int], balancer: Balancer) -> int:
    name_bridge(balancer.uplinks.label)
    return work(balancer)


def answer_each(works: Mapping[str, Callable[[], int]], output: OutputFormat) -> int:
    """Do the work for each bridge, by their labels. As `for_each_bridge`."""
    documents, statuses = list[dict[str, Any]](), list[int]()
    for number, (label, work) in enumerate(works.items()):
        if output is OutputFormat.TEXT:
            show_heading(label, is_first=number == 0)
        document: dict[str, Any] = {"bridge": label}
        try:
            with collecting_json() as found:
                statuses.append(work())
        except XenoovsError as error:
            statuses.append(report(error))
            found = [error_document(error)]
        for part in found:
            document |= part | {"bridge": label}
        documents.append(document)
    if output is OutputFormat.JSON:
        print_json({"bridges": documents})
    return worst(statuses)


def show_heading(label: str, *, is_first: bool) -> None:
    """Print which bridge the text below is about."""
    echo(("" if is_first else "\n") + click.style(f"bridge {label}", bold=True) + "\n")


def report(error: XenoovsError) -> int:
    """Print an error, with commands that can be copied, and return its exit status."""
    given = click.get_current_context().params
    if error.commands:
        address_commands(error, config=given.get("config"), db=given.get("db"), lab=given.get("lab"))
    return fail(error)


def error_document(error: XenoovsError) -> dict[str, Any]:
    """Return an error as a part of a JSON document."""
    return {"error": {"code": error.code, "message": str(error), "hint": error.hint or None}}


def worst(statuses: list[int]) -> int:
    """Return the exit status of several bridges: a failure, else the highest."""
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses, default=0)
