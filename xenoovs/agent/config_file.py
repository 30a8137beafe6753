"""The config file as something that may change at any time, to something useless too: the last good one is kept.

A config is good when the bridge has taken it. Until then it is a candidate: it reads well, but its ports may be missing
or its weights impossible.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from xenoovs.config.load import parse_config
from xenoovs.config.text import MAX_SIZE_BYTES
from xenoovs.errors import ConfigUnreadable, XenoovsError
from xenoovs.model.balancer import Balancer

_DIGITS = 12
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that reads well, and that no round has tried with success."""

    balancer: Balancer
    digest: str


class ConfigFile:
    """`balancer`, `digest` (the start of the text's SHA-256): of the last good text.

    candidate: a newer text that may be good; problem: why the newest text is not in use, or None.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, ConfigUnreadable: without any good config there is nothing to keep."""
        self.path = path
        self._stamp = self._look()
        data = _read(path)
        self.balancer: Balancer = parse_config(data, file=str(path))
        self.digest = self._newest = _digest(data)
        self.candidate: Candidate | None = None
        self.problem: XenoovsError | None = None

    @property
    def is_touched(self) -> bool:
        """Whether the file looks otherwise than at the last `poll`. Costs one stat(2)."""
        return self._look() != self._stamp

    def poll(self, *, always: bool = False) -> bool:
        """Whether the file has another text than at the last look; it is a candidate then, or `problem` says why not.

        Reading may take seconds. `always` reads an untouched file too, and tries a text anew that was refused.
        """
        stamp = self._look()
        if stamp == self._stamp and not always:
            return False
        self._stamp = stamp
        try:
            data = _read(self.path)
        except ConfigUnreadable as problem:
            is_news = always or self._newest != "" or str(problem) != str(self.problem)
            self._newest, self.candidate, self.problem = "", None, problem
            return is_news
        if _digest(data) == self._newest and not (always and self.problem is not None):
            return False
        self._newest = _digest(data)
        try:
            balancer = parse_config(data, file=str(self.path))
        except XenoovsError as problem:
            self.candidate, self.problem = None, problem
            return True
        self.candidate, self.problem = Candidate(balancer, self._newest), None
        return True

    def accept(self) -> None:
        """The candidate is good."""
        if self.candidate is not None:
            self.balancer, self.digest = self.candidate.balancer, self.candidate.digest
            self.candidate = self.problem = None

    def refuse(self, problem: XenoovsError) -> bool:
        """The candidate cannot be had now; it may be tried again. Whether that is news."""
        is_news = str(problem) != str(self.problem or "")
        self.problem = problem
        return is_news

    def go_back(self, good: Candidate, problem: XenoovsError) -> None:
        """An earlier text is the good one after all; `problem`: why the one that was accepted is not."""
        self.balancer, self.digest = good.balancer, good.digest
        self.candidate, self.problem = None, problem

    @property
    def newer(self) -> str:
        """Digest of a newer text that is not in use, empty where there is none or it cannot be read."""
        return self._newest if self.problem is not None or self.candidate is not None else ""

    @property
    def balancers(self) -> tuple[Balancer, ...]:
        """The one in use, and the one that waits to be tried."""
        return (self.balancer,) if self.candidate is None else (self.balancer, self.candidate.balancer)

    @property
    def good(self) -> Candidate:
        """The last good text."""
        return Candidate(self.balancer, self.digest)

    def _look(self) -> _Stamp | None:
        try:
            seen = self.path.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _read(path: Path) -> bytes:
    """The bytes of a regular file. Raises ConfigUnreadable; never waits for the writer of a pipe."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            if not S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigUnreadable(file=str(path), reason="it is a pipe or a device, and the agent reads it anew")
            return stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigUnreadable(file=str(path), reason=reason) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGITS]
