"""The config file while an agent runs: it may change at any time, also to a useless text, and the last good one stays.

A config is good once the bridge has it. Until then it is a candidate: it is valid, but its ports may be missing or its
weights impossible.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from xenoovs.config.load import MAX_SIZE_BYTES, parse_config
from xenoovs.errors import ConfigUnreadable, XenoovsError
from xenoovs.model.balancer import Balancer

_DIGEST_DIGITS = 12
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A valid config, and the start of the SHA-256 of its text."""

    balancer: Balancer
    digest: str


class ConfigFile:
    """A config file and the last good config in it.

    Attributes:
        balancer: The last good config.
        digest: The start of the SHA-256 of its text.
        candidate: A newer config that no round has applied yet.
        problem: Why the newest text is not in use.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError, ConfigUnreadable: there is no good config yet."""
        self.path = path
        self._stamp = self._read_stamp()
        data = _read(path)
        self.balancer: Balancer = parse_config(data, file=str(path))
        self.digest = self._newest = _digest(data)
        self.candidate: ConfigVersion | None = None
        self.problem: XenoovsError | None = None

    @property
    def is_touched(self) -> bool:
        """Whether the file has changed since the last `poll`. Costs one stat(2)."""
        return self._read_stamp() != self._stamp

    def poll(self, *, always: bool = False) -> bool:
        """Read the file if it was touched. Return whether its text is new: a `candidate`, or `problem` says why not.

        Reading may take seconds.

        Args:
            always: Read an untouched file too, and try a refused text again.
        """
        stamp = self._read_stamp()
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
        self.candidate, self.problem = ConfigVersion(balancer, self._newest), None
        return True

    def accept(self) -> None:
        """Make the candidate the good config."""
        if self.candidate is not None:
            self.balancer, self.digest = self.candidate.balancer, self.candidate.digest
            self.candidate = self.problem = None

    def refuse(self, problem: XenoovsError) -> bool:
        """Leave the candidate for a later attempt. Return whether the problem is a new one."""
        is_news = str(problem) != str(self.problem or "")
        self.problem = problem
        return is_news

    def roll_back(self, good: ConfigVersion, problem: XenoovsError) -> None:
        """Make an earlier config the good one again. `problem`: why the accepted one is not."""
        self.balancer, self.digest = good.balancer, good.digest
        self.candidate, self.problem = None, problem

    @property
    def newer(self) -> str:
        """Digest of a newer text that is not in use; empty: there is none, or it cannot be read."""
        return self._newest if self.problem is not None or self.candidate is not None else ""

    @property
    def balancers(self) -> tuple[Balancer, ...]:
        """The config in use, and the candidate."""
        return (self.balancer,) if self.candidate is None else (self.balancer, self.candidate.balancer)

    @property
    def good(self) -> ConfigVersion:
        """The last good config."""
        return ConfigVersion(self.balancer, self.digest)

    def _read_stamp(self) -> _Stamp | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises ConfigUnreadable; never waits for the writer of a pipe."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as stream:
            if not S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigUnreadable(file=str(path), reason="it is a pipe or a device, not a file to read again")
            return stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigUnreadable(file=str(path), reason=reason) from None


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGEST_DIGITS]
