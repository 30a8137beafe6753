"""The sign that a controller is active on this host: a lock of the directory of its store.

The kernel ends the lock with the process (flock(2)), and it leaves no file. It is shared, because a second controller
on a host does no harm.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


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
                # Waits for `is_shown` alone, which holds its lock for a moment.
                self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)


def no_controller(directory: Path, *, is_leader: bool) -> list[str]:
    """Return the problem that no controller of this host decides although its server leads; otherwise nothing."""
    if not is_leader or is_shown(directory):
        return []
    return ["no controller is active on this host, whose server leads: start `xenoovs fleet serve`"]


def is_shown(directory: Path) -> bool:
    """Return whether a controller with this directory is active."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
