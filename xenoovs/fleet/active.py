"""The sign that a controller is active on this host: a lock of the directory of its store.

The kernel ends the lock with the process, and it leaves no file. It is a read lock, because a second controller on a
host does no harm. It belongs to the open file (fcntl(2), "Open file description locks"): the status page asks in the
process of the controller, and a lock of the process would end when the page closes the directory.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

_FLOCK = "hhqqi0q"
"""`struct flock` of fcntl(2), in the native layout: type, whence, start, length, process."""


class ActiveSign:
    """The sign of one controller."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def show(self, *, is_active: bool) -> None:
        """Show whether the controller is active. A restored store has another directory, so each time it is opened."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if is_active:
            with suppress(OSError):
                self._descriptor = _opened(self._directory)
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_RDLCK))


def no_controller(directory: Path, *, is_leader: bool) -> list[str]:
    """Return the problem that no controller of this host decides although its server leads; otherwise nothing."""
    if not is_leader or is_shown(directory):
        return []
    return ["no controller is active on this host, whose server leads: start `xenoovs fleet serve`"]


def is_shown(directory: Path) -> bool:
    """Return whether a controller with this directory is active. It asks without a lock of its own."""
    with suppress(OSError):
        descriptor = _opened(directory)
        try:
            # The kernel answers with the lock that prevents a write lock, or F_UNLCK.
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    return False


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
