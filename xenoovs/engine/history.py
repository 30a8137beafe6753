"""The history of a bridge: what commands have applied to it, in files of one directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xenoovs.dataclass import dataclass
from xenoovs.errors import ChangeUnderWay, FileUnusable, NotInHistory, XenoovsError
from xenoovs.regex import regex

if TYPE_CHECKING:
    from xenoovs.engine.change import Change
    from xenoovs.engine.saved import HistoryEntry

MAX_ENTRIES = 20
_NAME = regex(r"([1-9][0-9]{0,8})\.json")
_PATIENCE_S, _STEP_S = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class History:
    """The changes that commands have applied to one bridge: a directory with one file per entry, the newest 20."""

    bridge: str
    directory: Path

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the entries, the oldest first."""
        with suppress(OSError):
            found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
            return tuple(sorted(int(each[1]) for each in found if each))
        return ()

    def load(self, number: int) -> HistoryEntry:
        """Return an entry. Raises NotInHistory, SavedMalformed, FileUnusable."""
        from xenoovs.engine.saved import HistoryEntry, load

        try:
            return load(self._path(number), HistoryEntry)
        except FileNotFoundError:
            raise NotInHistory(bridge=self.bridge, number=number, present=self.numbers) from None
        except OSError as error:
            raise FileUnusable(file=str(self._path(number)), reason=error.strerror or str(error)) from None

    def names(self) -> Mapping[int, str]:
        """Return the names of services by id, as of the last change by a command."""
        with suppress(XenoovsError):
            return self.load(max(self.numbers, default=0)).names
        return {}

    def entry(self, change: Change, *, command: str, file: str, partial: bool, user: str) -> dict[str, Any]:
        """Return the next entry, for a change that will be applied. Raises FileUnusable."""
        from xenoovs.engine.document import entry_of

        number = max(self.numbers, default=0) + 1
        return entry_of(change, file=file, partial=partial, user=user, number=number, command=command)

    def record(self, entry: dict[str, Any]) -> None:
        """Add an entry, and remove the oldest ones. Raises OSError, FileUnusable."""
        from xenoovs.engine.document import save

        self._make_directory()
        save(self._path(entry["number"]), entry)
        for old in self.numbers[:-MAX_ENTRIES]:
            self._path(old).unlink(missing_ok=True)
        for unfinished in self.directory.glob(".*.json.*"):
            # Left by a command that was killed while it wrote.
            unfinished.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the bridge against changes by other commands. The kernel releases the lock however the process ends.
        If the directory cannot be made, as on a full disk, there is no lock. Raises ChangeUnderWay."""
        descriptor = None
        with suppress(OSError):
            self._make_directory()
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if descriptor is not None:
                self._lock(descriptor)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _make_directory(self) -> None:
        # One by one, as `mode` applies only to the last directory.
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ChangeUnderWay(bridge=self.bridge) from None
                time.sleep(_STEP_S)
            else:
                return

    def _path(self, number: int) -> Path:
        return self.directory / f"{number}.json"


def histories(state: Path) -> list[History]:
    """Return the history of each bridge that has one. `state`: the directory that has them."""
    every = (History(path.stem, path) for path in sorted(state.glob("*.history")))
    return [history for history in every if history.numbers]
