"""What commands use of the labs of this host. The room of labs is above this one, and loaded when a lab is named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click

if TYPE_CHECKING:
    from xenoovs.agent.config_file import ConfigParser
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.endpoint import Endpoint

FORWARDED: Mapping[str, str] = {"XENOOVS_FORWARDED": "1"}
"""Set for a command that was typed on the host: the commands that it prints will be typed there too."""


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
        """Return the network namespace of the machine with this MAC behind a port; None: the lab has none."""
        ...

    def restart_vswitchd(self) -> None:
        """Stop its ovs-vswitchd if it runs, and start it. Raises LabError."""
        ...

    def config_parser(self) -> ConfigParser:
        """Return how an agent in the lab reads its config."""
        ...


class Labs(Protocol):
    """The labs of this host."""

    def lab_names(self) -> tuple[str, ...]:
        """Return the names of the labs, sorted. Raises LabError when they may not be listed."""
        ...

    def config_of_lab(self, lab: str) -> Path:
        """Return the file that a lab was built for, or the copy in its directory where that is gone."""
        ...

    def target_of(self, lab: str) -> LabTarget:
        """Return a lab. Raises LabError: there is none."""
        ...

    def forward_to_vm(self, context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
        """Run the whole command in the virtual machine of a lab, if it has one: the callback of an option."""
        ...


def labs() -> Labs:
    """Return the labs of this host. What labs need takes a third of the start of a command that uses none."""
    return cast(Labs, import_module("xenoovs.lab.target"))
