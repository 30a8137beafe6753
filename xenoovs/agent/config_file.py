"""The config file as something that may change at any time, to something useless too: the last good one is kept."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from xenoovs.config.load import load_config, parse_config
from xenoovs.config.text import MAX_SIZE_BYTES
from xenoovs.errors import XenoovsError
from xenoovs.model.balancer import Balancer

_DIGITS = 12
_Stamp = tuple[int, int, int]


class ConfigFile:
    """`balancer`: of the last good text; `digest`: the start of its SHA-256; `problem`: of a newer text, or None."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, ConfigUnreadable: without any good config there is nothing to keep."""
        self.path = path
        self._stamp = self._look()
        self.balancer: Balancer = load_config(path)
        self.digest = self._newest = _digest(self._read())
        self.problem: XenoovsError | None = None

    def poll(self, *, always: bool = False) -> bool:
        """Whether the file has another text than at the last look; it has been read then, for better or worse.

        A look costs one stat(2); `always` reads even if that shows no change.
        """
        stamp = self._look()
        if stamp == self._stamp and not always:
            return False
        self._stamp = stamp
        data = self._read()
        if _digest(data) == self._newest:
            return False
        self._newest = _digest(data)
        try:
            balancer = load_config(self.path) if data is None else parse_config(data, file=str(self.path))
        except XenoovsError as problem:
            self.problem = problem
            return True
        self.balancer, self.digest, self.problem = balancer, self._newest, None
        return True

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
