"""Defaults of commands without a config or a lab: the environment, the only lab, the config of the service."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import click

from xenoovs.terminal.output import echo

if TYPE_CHECKING:
    from xenoovs.agent.config_file import ConfigParser
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.endpoint import Endpoint


class ContextOption(click.Option):
    """An option whose value the command does not get as a parameter: `option` returns it."""

    def __init__(self, *names: Any, callback: Callable[..., Any] | None = None, **given: Any) -> None:
        def keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
            context.meta[str(parameter.name)] = callback(context, parameter, value) if callback else value

        super().__init__(*names, expose_value=False, callback=keep, **given)


def option(name: str) -> Any:
    """Return the value of a parameter of the command that runs; None if it has no such one, or no command runs."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name, context.params.get(name))


CONFIG_VARIABLE = "XENOOVS_CONFIG"
LAB_VARIABLE = "XENOOVS_LAB"
SERVICE_CONFIG = Path("/etc/xenoovs/config.yaml")
"""The config of templates/xenoovs-agent.service."""
DEFAULT_LAB = "default"
ANY_LAB = "the only one"
"""Value of --lab without a name; no lab can have it."""

CHANGING = (
    *("agent", "apply", "confirm", "controller", "doctor", "down", "drain", "fail", "pause"),
    *("remove", "reset", "weight"),
    *("measure", "load", "compare", "completion", "echo", "paths"),
)
"""Commands that print which config or lab they use."""


def announce(what: str, origin: str) -> None:
    """Print on stderr what a command that changes something uses, if the user did not name it."""
    context = click.get_current_context(silent=True)
    if origin and context is not None and context.command.name in CHANGING and not context.resilient_parsing:
        echo(f"{what} ({origin})", err=True)


def environment_config() -> Path | None:
    """Return the config that the environment names, if any. Raises click.UsageError."""
    found = _environment_configs()
    if len(found) > 1:
        raise click.UsageError(f"{CONFIG_VARIABLE} names {len(found)} configs: name the FILE.")
    return found[0] if found else None


def _environment_configs() -> tuple[Path, ...]:
    found = tuple(Path(text) for text in os.environ.get(CONFIG_VARIABLE, "").split(os.pathsep) if text)
    for path in found:
        if not os.path.lexists(path):
            raise click.UsageError(f"{CONFIG_VARIABLE} names {path}, which does not exist.")
    if found:
        announce(f"config {', '.join(map(str, found))}", CONFIG_VARIABLE)
    return found


def find_config(instead: str = "") -> Path:
    """Return the config of a command that needs one and got none.

    It is that of the environment, else the one that the lab of --lab was built for, else the config of the service.

    `instead`: an option that makes the config unnecessary, for the message. Raises click.UsageError if there is no
    config, LabError if the name of the lab is not usable.
    """
    return environment_config() or usual_config(option("lab"), instead)


def find_configs() -> tuple[Path, ...]:
    """Return the configs of a command that takes several. Raises what `find_config` raises."""
    return _environment_configs() or (usual_config(option("lab")),)


def usual_config(lab: str | None, instead: str = "") -> Path:
    """Return the config of a lab, or of the service. Raises what `find_config` raises."""
    path, origin = SERVICE_CONFIG, "the default"
    if lab is not None:
        path, origin = labs().config_of_lab(lab), f"of lab {lab}"
    if not _may_exist(path):
        if lab is not None and lab not in (names := labs().lab_names()):
            raise click.UsageError(f"There is no lab {lab}; labs here: {', '.join(names) or 'none'}.")
        raise click.UsageError(
            f"No config: name the FILE{instead and f' (or give {instead})'}, or set {CONFIG_VARIABLE}, or make "
            f"{SERVICE_CONFIG}; `xenoovs new` prints templates."
        )
    announce(f"config {path}", origin)
    return path


def _may_exist(path: Path) -> bool:
    """Return whether a file exists, or may not be read, so that the error names it."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def find_lab(given: str | None, default: str | None = None) -> tuple[str | None, str]:
    """Return the lab of a command, and what named it if the user did not. `given`: value of --lab: a name, ANY_LAB, or
    None. `default`: the lab if neither the user nor the environment names one. Raises click.UsageError if the only lab
    is meant and there are none or several, LabError if the labs may not be listed."""
    if given == ANY_LAB:
        return _only_lab(), "the only one"
    if given is not None:
        if os.path.isfile(given):  # noqa: PTH113 (it raises nothing)
            raise click.UsageError(f"--lab {given}: that is a file. Write FILE before a --lab without a name.")
        return given, ""
    if not (named := os.environ.get(LAB_VARIABLE)):
        return default, ""
    if default is None and named not in (names := labs().lab_names()):
        raise click.UsageError(
            f"{LAB_VARIABLE} names lab {named}, which is not up; labs: {', '.join(names) or 'none'}."
        )
    return named, LAB_VARIABLE


def _only_lab() -> str:
    names = labs().lab_names()
    if len(names) != 1:
        found = f"{len(names)} labs are up: {', '.join(names)}" if names else "no lab is up; `xenoovs lab up` makes one"
        raise click.UsageError(f"--lab needs a name: {found}.")
    return names[0]


def usual_lab() -> str:
    """Return the lab of a command about one lab: `default`, or the only other one. Raises what `find_lab` raises."""
    names = labs().lab_names()
    return DEFAULT_LAB if DEFAULT_LAB in names or not names else _only_lab()


# What commands use of the labs of this host. The room of labs is above this one, and loaded when a lab is named.


FORWARDED: Mapping[str, str] = {"XENOOVS_FORWARDED": "1"}
"""Set for a command that was typed on the host, where its user will also type the commands that it suggests."""


def is_forwarded() -> bool:
    """Whether this is a command of the host that runs in the virtual machine of its lab."""
    return FORWARDED.items() <= os.environ.items()


class LabTarget(Protocol):
    """A lab: an Open vSwitch and the machines of a config, in namespaces."""

    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path: ...

    @property
    def endpoint(self) -> Endpoint: ...

    def adapted(self, balancer: Balancer) -> Balancer:
        """Return a config with the ports and addresses of the lab."""
        ...

    def namespace_of(self, mac: str, egress: str) -> str | None:
        """Return the network namespace of the machine with this MAC behind a port, if the lab has one."""
        ...

    def restart_vswitchd(self) -> None:
        """Stop its ovs-vswitchd if it runs, and start it. Raises LabError."""
        ...


class Labs(Protocol):
    """The labs of this host, as the functions of xenoovs/lab/target.py."""

    def lab_names(self) -> tuple[str, ...]: ...

    def config_of_lab(self, lab: str) -> Path: ...

    def open_lab(self, name: str) -> LabTarget: ...

    def config_parser_of(self, lab: str) -> ConfigParser:
        """Return the function by which an agent in the lab reads its config."""
        ...

    def forward_to_vm(self, context: click.Context, parameter: click.Parameter, name: str | None) -> str | None: ...


def labs() -> Labs:
    """Return the labs of this host. Imported late: their modules take a third of the start of other commands."""
    return cast(Labs, import_module("xenoovs.lab.target"))
