"""Journals of temporary changes: written before a change is made, so that the next run undoes it after a kill.

Each kind of change has one file in the run directory of its Open vSwitch, and so vanishes with it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.errors import SwitchError
from xenoovs.switch.tape import asked

VLOG, TRIAL, OFFLOAD = "vlog", "trial", "offload"
"""Kinds of changes: log levels; a trial rule for the driver; a setting that waits for a restart."""


@dataclass(frozen=True, slots=True)
class UndoJournal:
    """The file `xenoovs-KIND.json` in `directory`: how to undo the present temporary change."""

    directory: Path
    kind: str

    @property
    def path(self) -> Path:
        return self.directory / f"xenoovs-{self.kind}.json"

    @property
    def is_abandoned(self) -> bool:
        """Return whether there is a journal that no process holds."""
        return asked(("leftover", str(self.path)), lambda: "yes" if self._is_abandoned() else None) is not None

    def _is_abandoned(self) -> bool:
        if not self.path.exists():
            return False
        with suppress(OSError), self.path.with_suffix(".lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from this kind of change. Raises SwitchError at once if one is making it.

        The lock ends with its process (flock(2)); a journal without a lock is of a killed process.
        """
        lock = self.path.with_suffix(".lock")
        try:
            file = lock.open("a")
        except OSError as error:
            raise SwitchError(f"cannot write {lock}: {error.strerror}; run as root, e.g. with sudo") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SwitchError(
                    f"another xenoovs does this now (it holds {lock}); try again when it has ended"
                ) from None
            yield

    def finish(self, undo: Callable[[], bool]) -> bool:
        """Undo the change of a killed run. Return whether there was one. Raises SwitchError."""
        if not self.path.exists():
            return False
        with self.held():
            return undo()

    def write(self, facts: Mapping[str, object]) -> None:
        """Write the journal atomically."""
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(self.path)

    def read(self) -> dict[str, object] | None:
        """Return the journal; None if nothing is left to undo. Raises SwitchError for a file that is no journal."""
        try:
            facts = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise SwitchError(f"cannot read {self.path}: {error}; inspect the file, then remove it") from None
        if not isinstance(facts, dict):
            raise self.malformed()
        return facts

    def malformed(self) -> SwitchError:
        """Return the error for a file of another form."""
        return SwitchError(f"{self.path} is not an undo journal of xenoovs; inspect the file, then remove it")

    def erase(self) -> None:
        """Delete the journal: the change is undone."""
        self.path.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 atomically, even if the machine loses power. Raises OSError."""
    # Imported here: most commands write no file.
    from tempfile import NamedTemporaryFile

    try:
        # Of mode 0600 from the start (tempfile of the Python library).
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            finally:
                # Of a file that has its place, this name is gone.
                Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make new and removed names in a directory durable (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
