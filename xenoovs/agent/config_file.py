"""The config file as something that may change at any time, to something useless too: the last good one is kept.

A config is good when the bridge has taken it. Until then it is a candidate: it reads well, but its ports may be missing
or its weights impossible.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from xenoovs.config.load import load_config, parse_config
from xenoovs.config.text import MAX_SIZE_BYTES
from xenoovs.errors import XenoovsError
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
        self.balancer: Balancer = load_config(path)
        self.digest = self._newest = _digest(self._read())
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
        data = self._read()
        if _digest(data) == self._newest and not (always and self.problem is not None):
            return False
        self._newest = _digest(data)
        try:
            balancer = load_config(self.path) if data is None else parse_config(data, file=str(self.path))
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
    def good(self) -> Candidate:
        """The last good text."""
        return Candidate(self.balancer, self.digest)

    def _look(self) -> _Stamp | None:
        try:
            seen = self.path.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def _read(self) -> bytes | None:
        try:
            with self.path.open("rb") as stream:
                return stream.read(MAX_SIZE_BYTES + 1)
        except OSError:
            return None


def _digest(data: bytes | None) -> str:
    return "" if data is None else sha256(data).hexdigest()[:_DIGITS]
