"""Changes that must not outlive us: written down before they are made, so that the next run undoes what a kill left.

One file for each kind of change, in the run directory of the Open vSwitch that it concerns: it goes away with it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import SwitchError

VLOG, TRIAL = "vlog", "trial"
"""Kinds of changes: levels of the log; a rule that asks the driver."""


@dataclass(frozen=True, slots=True)
class UndoJournal:
    """The note `xenoovs-KIND.json` in `directory`: what is changed at this moment, in terms of how to undo it."""

    directory: Path
    kind: str

    @property
    def path(self) -> Path:
        return self.directory / f"xenoovs-{self.kind}.json"

    @property
    def is_abandoned(self) -> bool:
        """Whether there is a note, and nobody who is at it."""
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
        """Keep every other process from this kind of change. Raises SwitchError at once where one is busy with it.

        The lock dies with its process (flock(2)); a note without a lock is what a killed process left behind.
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
                raise SwitchError(f"another xenoovs is at it ({lock} is locked); try again when it has ended") from None
            yield

    def write(self, facts: Mapping[str, object]) -> None:
        """Note the change; whole or not at all, also when killed."""
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(self.path)

    def read(self) -> dict[str, object] | None:
        """What was noted; None: nothing is left to undo. Raises SwitchError for a file that is no note of ours."""
        try:
            facts = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise SwitchError(f"cannot read {self.path}: {error}; look at it, then remove it") from None
        if not isinstance(facts, dict):
            raise SwitchError(f"{self.path} is not a note of xenoovs; look at it, then remove it")
        return facts

    def erase(self) -> None:
        """The change is undone."""
        self.path.unlink(missing_ok=True)
