"""Names of a lab: which are allowed, and what its namespaces and devices are called."""

from __future__ import annotations

import re

from xenoovs.errors import LabError

MAX_NAME_LENGTH = 16
"""Keeps the sockets below the run directory within the 107 characters of a Unix socket's path (unix(7))."""

MAX_INTERFACE_LENGTH = 15
"""IFNAMSIZ is 16 with the closing zero (netdevice(7))."""

RESERVED_PREFIX = "xo-"
"""Devices and bridges that the lab adds beside those of the config."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_ROLE = r"(sw|clients|b[0-9]+)"


def check_name(name: str) -> None:
    """Raises LabError unless `name` is 1 to 16 characters of a-z, 0-9 and inner `-`."""
    if len(name) > MAX_NAME_LENGTH:
        raise LabError(
            f"lab name {name!r} has {len(name)} characters, at most {MAX_NAME_LENGTH} are possible: it becomes part of "
            "socket paths; choose a shorter one"
        )
    if not _NAME.fullmatch(name):
        raise LabError(f"lab name {name!r} is not usable: take a-z, 0-9 and, in between, `-`; for example `demo-2`")


def switch_namespace(name: str) -> str:
    return f"xo-{name}-sw"


def clients_namespace(name: str) -> str:
    return f"xo-{name}-clients"


def backend_namespace(name: str, number: int) -> str:
    """Namespace of the backend machine `number`, counted from 1."""
    return f"xo-{name}-b{number}"


def is_namespace_of(namespace: str, name: str) -> bool:
    """Whether the namespace belongs to lab `name`; roles hold no `-`, so lab `a` and lab `a-b` are told apart."""
    return re.fullmatch(rf"xo-{re.escape(name)}-{_ROLE}", namespace) is not None
