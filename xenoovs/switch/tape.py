"""All reads of the host of an Open vSwitch pass this module, which executes them, records them, or replays a record.

A question is what a person would type: the words of a program, or `read PATH`. So a record has all that was read, and
every verdict on it is the same as on the host (docs/adr/0039).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from xenoovs.dataclass import dataclass

MISSING, TIMEOUT = "missing", "timeout"
"""Failures of programs: not installed; not finished within the time limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `text`: stdout of a program, contents of a file. `failure`: MISSING, TIMEOUT, a reason, or empty."""

    text: str = ""
    exit_code: int = 0
    stderr: str = ""
    failure: str = ""


NO_ANSWER = "the record has no answer to it"
ABSENT = Answer(exit_code=1, stderr=NO_ANSWER, failure=NO_ANSWER)
"""The answer of a record to a question that was not recorded."""


class Tape(Protocol):
    """Records answers, or replays them. `is_replaying`: nothing of this host is read."""

    is_replaying: bool

    def answer(self, question: tuple[str, ...], ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a question. `ask`: reads it from the host."""


_TAPE: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def passing_through(tape: Tape) -> Iterator[None]:
    """Pass all questions through a tape within the context."""
    token = _TAPE.set(tape)
    try:
        yield
    finally:
        _TAPE.reset(token)


def is_taped() -> bool:
    return _TAPE.get() is not None


def is_replaying() -> bool:
    """Return whether a record answers for this host, so that nothing may be changed or waited for."""
    tape = _TAPE.get()
    return tape is not None and tape.is_replaying


def answered(question: Sequence[str], ask: Callable[[], Answer]) -> Answer:
    """Return the answer to a question, from the tape if there is one. Raises what `ask` raises."""
    tape = _TAPE.get()
    return ask() if tape is None else tape.answer(tuple(question), ask)


def asked(question: Sequence[str], ask: Callable[[], str | None]) -> str | None:
    """Return the text of an answer; None if there is none."""

    def put() -> Answer:
        text = ask()
        return Answer(failure="none") if text is None else Answer(text)

    answer = answered(question, put)
    return None if answer.failure else answer.text


# Files of the host; None where they are missing or cannot be read.


def of_file(word: str, path: Path, read: Callable[[], str]) -> str | None:
    """Return what `read` returns for a file; None if it raises OSError."""

    def ask() -> str | None:
        with suppress(OSError):
            return read()
        return None

    return asked((word, str(path)), ask)


def read_file(path: Path) -> str | None:
    """Return the contents of a small text file; None if it cannot be read."""
    return of_file("read", path, lambda: path.read_text(errors="replace"))


def number_of(text: str | None) -> int | None:
    """Return the number that is all of an answer; None for another text, as in a damaged record."""
    digits = (text or "").removesuffix("\n")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def read_link(path: Path) -> str | None:
    return of_file("readlink", path, lambda: str(path.readlink()))


def list_files(directory: Path, pattern: str = "*") -> list[str]:
    """Return the sorted names in a directory; none if it cannot be read."""
    listed = of_file(
        "ls", directory / pattern, lambda: "\n".join(sorted(each.name for each in directory.glob(pattern)))
    )
    return (listed or "").splitlines()


def real_path(path: Path) -> Path:
    return Path(asked(("realpath", str(path)), lambda: str(path.resolve())) or path)


def kernel_release() -> str:
    """Return the release of the running kernel, as uname(2) has it."""
    return asked(("uname", "-r"), lambda: os.uname().release) or ""
