"""Taking a lab down, whole, half built or in ruins."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import LabError
from xenoovs.lab.lab import DEFAULT_DIRECTORY, MARK, directory_of, sole_owner
from xenoovs.lab.netns import delete_namespace, namespaces_of, processes_in
from xenoovs.lab.preflight import check_root, probe_host
from xenoovs.lab.processes import kill_and_wait, marked_processes

_ROUNDS = 20
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Removed:
    """What `down` has found and removed; all zero: there was no lab."""

    namespaces: int
    processes: int
    directories: int

    @property
    def anything(self) -> bool:
        return bool(self.namespaces or self.processes or self.directories)


def down(name: str, *, directory: Path | None = None) -> Removed:
    """Remove all of lab `name`: processes, namespaces with their devices, files. Nothing to do is fine.

    Raises LabError without root, while another process builds the lab, or when a process cannot be killed.
    """
    place = directory_of(name, directory)
    check_root(probe_host())
    with sole_owner(place) if place.is_dir() else nullcontext():
        return remove(name, place)


def remove(name: str, place: Path) -> Removed:
    """As `down`, for the owner of the directory."""
    processes = namespaces = 0
    for _ in range(_ROUNDS):
        # A helper of a killed `up` may still make things until it is dead itself: look until a round finds nothing.
        found = namespaces_of(name)
        pids = {*marked_processes(MARK, str(place)), *(pid for there in found for pid in processes_in(there))}
        if not found and not pids:
            break
        if not kill_and_wait(pids):
            raise LabError(f"processes of lab {name} do not die: {', '.join(map(str, sorted(pids)))}; try again later")
        for namespace in found:
            delete_namespace(namespace)
        processes, namespaces = processes + len(pids), namespaces + len(found)
        time.sleep(_PAUSE_S)
    else:
        raise LabError(f"lab {name} cannot be removed: {', '.join(namespaces_of(name))} are still there")
    existed = place.exists()
    shutil.rmtree(place, ignore_errors=True)
    _remove_empty(place.parent)
    return Removed(namespaces, processes, int(existed))


def _remove_empty(base: Path) -> None:
    # Only directories of our own making; a directory that the user has named stays.
    if base == DEFAULT_DIRECTORY:
        for ours in (base, base.parent):
            with suppress(OSError):
                ours.rmdir()
