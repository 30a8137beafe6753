"""The config that a command names, also that of a DPU of a fleet; and a command on several bridges of a host."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.display import printable
from xenoovs.errors import ListenError, MacUnknown, XenoovsError, did_you_mean
from xenoovs.regex import regex
from xenoovs.terminal.command import EXIT_FAILED, fail
from xenoovs.terminal.defaults import labs, option
from xenoovs.terminal.output import collecting_json, echo, is_text, print_json
from xenoovs.terminal.reach import address_commands, name_fleet

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.model.include import ConfigSources

_PLAN_START = regex(rb'\s*\{\s*"xenoovs_plan"')
_START_BYTES = 64


def is_plan(path: Path) -> bool:
    """Return whether a file is a saved plan (engine/saved.py), by its first bytes; False if it is no regular file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _PLAN_START.match(file.read(_START_BYTES)) is not None


def load(config: Path, *, for_lab: bool = False, of_dpu: bool = False) -> Balancer:
    """Return the model of a config, for the lab of --lab if that is given.

    `config`: the file, or `-` for standard input. `for_lab`: whether the config is for a lab that is not up yet.
    `of_dpu`: whether to accept the file of a DPU of a fleet, with the services that its agent has saved. Raises
    ConfigError, ConfigUnreadable, LabError; click.UsageError if --bridge names another bridge than the config.
    """
    from xenoovs.model.include import MAX_SIZE_BYTES, ConfigSources
    from xenoovs.model.load import check_config, join_config, read_config

    lab, bridge = option("lab"), option("bridge")
    if is_plan(config):
        raise click.UsageError(f"{config} is a saved plan, no config: `xenoovs apply {config}` makes its change.")
    if str(config) == "-":
        file, data, sources = "<stdin>", sys.stdin.buffer.read(MAX_SIZE_BYTES + 1), None
    else:
        file, data, sources = str(config), read_config(config), ConfigSources(config)
    joined = join_config(data, file=file, sources=sources)
    root = joined.root if isinstance(joined.root, dict) else {}
    is_of_dpu, switch = "switch" in root and "services" not in root, root.get("switch")
    if is_of_dpu and not of_dpu and isinstance(switch, dict) and "fleet_ports" in switch:
        # Only the file of a DPU of a fleet can be meant.
        raise click.UsageError(
            f"{file} is the file of a DPU of a fleet, whose store decides about services: `xenoovs status` shows what "
            "this DPU has; on the host of the store, use `xenoovs fleet plan` and `xenoovs fleet apply`."
        )
    if is_of_dpu and of_dpu:
        name_fleet()
        balancer = dpu_config(data, file=file, sources=sources)
    else:
        balancer = check_config(joined, for_lab=for_lab or bool(lab))
    if bridge not in (None, balancer.uplinks.bridge, balancer.uplinks.label):
        raise click.UsageError(f"--bridge {bridge}: {file} is about bridge {balancer.uplinks.label}.")
    if lab:
        balancer = labs().open_lab(lab).adapted(balancer)
    # It lives to the end of the command: no search for cycles goes through it.
    gc.freeze()
    return balancer


def check_service(balancer: Balancer, name: str | None) -> None:
    """Raise click.UsageError if the config has no service of this name."""
    names = [service.name for service in balancer.services]
    if name is not None and name not in names:
        raise click.UsageError(f"--service {name}: the config has {', '.join(names)}.{did_you_mean(name, names)}")


def load_resolved(config: Path, *, of_dpu: bool = False) -> Balancer:
    """Load a config, and resolve the MACs of backends that have only an address. `of_dpu`: as of `load`. Raises
    ConfigError, MacUnknown."""
    return resolved(load(config, of_dpu=of_dpu))


def resolved(balancer: Balancer) -> Balancer:
    """Return the balancer with the MACs of backends that have only an address. Raises MacUnknown."""
    from xenoovs.model.balancer import sought

    if not sought(balancer):
        return balancer
    from xenoovs.agent.neighbour import resolve_now

    return resolve_now(balancer)


def recorded(balancer: Balancer) -> Balancer:
    """Return the balancer for a recorded dump, for which no MACs are resolved. Raises MacUnknown."""
    from xenoovs.model.balancer import sought

    if unknown := sought(balancer):
        raise MacUnknown(unknown={str(one.address): names for one, names in unknown.items()}, is_recorded=True)
    return balancer


def dpu_config(local: bytes, *, file: str, sources: ConfigSources | None) -> Balancer:
    """Return the config of a DPU, and print which services it has. Raises ConfigError, FleetCacheUnusable."""
    from xenoovs.agent.fleet_config import FleetCache
    from xenoovs.model.fleet import join
    from xenoovs.terminal.reach import find_places

    alone = join(local, {}, file=file, sources=sources)
    label = alone.uplinks.label
    try:
        view = FleetCache(find_places().fleet(label)).load()
    except ListenError:
        view = None
    if view is None:
        echo(f"there are no saved services of a fleet for {label}, so there are none here", err=True)
        return alone
    echo(f"services as the agent saved them: generation {view.generation} of fleet {printable(view.name)}", err=True)
    return join(local, {name: each.config for name, each in view.services.items()}, file=file, sources=sources)


def answer_each(works: Mapping[str, Callable[[], int]]) -> int:
    """Do the work of a command for each bridge, by label. An error of one bridge is printed, and the others follow.
    With JSON the documents of all bridges are one list. `works`: functions that print the answer for a bridge and
    return the exit status. Return the status of a failure, else the highest one."""
    documents, statuses = list[dict[str, Any]](), list[int]()
    for number, (label, work) in enumerate(works.items()):
        if is_text():
            echo(("\n" if number else "") + click.style(f"bridge {label}", bold=True) + "\n")
        document: dict[str, Any] = {"bridge": label}
        try:
            with collecting_json() as found:
                statuses.append(work())
        except XenoovsError as error:
            address_commands(error, option("config"))
            statuses.append(fail(error))
            found = [{"error": {"code": error.code, "message": str(error), "hint": error.hint or None}}]
        for part in found:
            document |= part | {"bridge": label}
        documents.append(document)
    if not is_text():
        print_json({"bridges": documents})
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses, default=0)
