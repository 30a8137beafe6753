"""Sockets of another network namespace: a socket stays in the namespace in which it was opened (network_namespaces(7)).

setns(2) changes the calling thread alone, so a thread of its own goes there, opens the socket and ends; the event loop
stays where it is. Python 3.11 has no os.setns.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_NAMED = "/run/netns"
_CLONE_NEWNET = 0x40000000  # linux/sched.h


def namespace_path(netns: str) -> str:
    """The file of a namespace given by name (ip-netns(8)) or by path."""
    return netns if "/" in netns else f"{_NAMED}/{netns}"


def namespace_identity(netns: str | None) -> int | None:
    """Tells a namespace from a later one of the same name: the inode of namespaces(7). Raises OSError."""
    return None if netns is None else _existing(netns).stat().st_ino


def inside(netns: str | None, make: Callable[[], T]) -> T:
    """What `make` returns or raises, run inside a namespace. Raises OSError when there is no such namespace."""
    if netns is None:
        return make()
    descriptor = os.open(_existing(netns), os.O_RDONLY | os.O_CLOEXEC)
    made: list[T] = []
    raised: list[Exception] = []

    def visit() -> None:
        try:
            _enter(descriptor)
            made.append(make())
        except (OSError, ValueError) as error:
            raised.append(error)

    try:
        visitor = threading.Thread(target=visit, name=f"netns {netns}", daemon=True)
        visitor.start()
        visitor.join()
    finally:
        os.close(descriptor)
    if raised:
        raise raised[0]
    return made[0]


def _existing(netns: str) -> Path:
    path = Path(namespace_path(netns))
    if not path.exists():
        raise OSError(f"network namespace {netns} does not exist")
    return path


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            raise OSError("this is not a network namespace")
        raise OSError(number, os.strerror(number))
