"""The overrides and the pause that operators set, in a file, so that they survive a restart of the agent."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from tempfile import NamedTemporaryFile

from xenoovs.agent.snapshot import Override, Runtime
from xenoovs.display import decimal
from xenoovs.errors import StateUnusable

MAX_WEIGHT = 10**9
MAX_SIZE_BYTES = 1 << 20
_WEIGHT = r"[0-9]{1,30}(\.[0-9]{1,9}|/0*[1-9][0-9]{0,30})?"
_KEYS = frozenset(("service", "backend", "weight", "configured", "since_s"))


class RuntimeFile:
    """The file: JSON, mode 0600, replaced as a whole. There is no file while nothing is set."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Runtime:
        """Return what was saved. Raises StateUnusable, after an unusable file was renamed."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Runtime()
        except OSError as error:
            raise StateUnusable(path=str(self.path), reason=error.strerror or str(error), renamed=None) from None
        try:
            return parse_runtime(data)
        except ValueError as error:
            aside = self.path.with_name(f"{self.path.name}.broken")
            self.path.replace(aside)
            raise StateUnusable(path=str(self.path), reason=str(error), renamed=str(aside)) from None

    def save(self, runtime: Runtime) -> None:
        """Save all of it or nothing, also when the machine loses power. Blocks; raises OSError."""
        if runtime == Runtime():
            self.path.unlink(missing_ok=True)
        else:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._replace(render_runtime(runtime).encode())
        with suppress(FileNotFoundError):
            self._sync_directory()

    def _replace(self, data: bytes) -> None:
        # Of mode 0600 from the start (tempfile of the Python library).
        with NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(self.path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def _sync_directory(self) -> None:
        """Make the new name, or its removal, durable (fsync(2))."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def load_runtime(file: RuntimeFile | None) -> tuple[Runtime, StateUnusable | None]:
    """Return what was saved, and why it could not be read."""
    try:
        return (Runtime() if file is None else file.load()), None
    except StateUnusable as problem:
        return Runtime(), problem


def render_runtime(runtime: Runtime) -> str:
    """Return the text that `parse_runtime` reads."""
    rows = [
        {
            "service": override.service,
            "backend": override.backend,
            "weight": decimal(override.weight),
            "configured": decimal(override.configured),
            "since_s": override.since_s,
        }
        for override in runtime.overrides
    ]
    return json.dumps({"version": 1, "paused": runtime.is_paused, "overrides": rows}, indent=2) + "\n"


def parse_runtime(data: bytes) -> Runtime:
    """Return what `render_runtime` wrote. Raises ValueError."""
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"it is larger than {MAX_SIZE_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or set(document) != {"version", "paused", "overrides"}:
        raise ValueError("its keys are not exactly version, paused and overrides")
    if (
        document["version"] != 1
        or not isinstance(document["paused"], bool)
        or not isinstance(document["overrides"], list)
    ):
        raise ValueError("version is not 1, paused not true or false, or overrides not a list")
    overrides = tuple(map(_override, document["overrides"]))
    if len({(override.service, override.backend) for override in overrides}) < len(overrides):
        raise ValueError("two overrides are for one backend")
    return Runtime(overrides, document["paused"])


def _override(row: object) -> Override:
    if not isinstance(row, Mapping) or set(row) != _KEYS:
        raise ValueError(f"the keys of an override are not exactly {', '.join(sorted(_KEYS))}")
    since_s = row["since_s"]
    if isinstance(since_s, bool) or not isinstance(since_s, int | float) or not 0 <= since_s < 1 << 40:
        raise ValueError("since_s is not a time")
    names = (row["service"], row["backend"])
    if not all(isinstance(name, str) and 0 < len(name) < 64 for name in names):
        raise ValueError("service or backend is not a name")
    return Override(*names, _weight(row["weight"]), float(since_s), _weight(row["configured"]))


def _weight(text: object) -> Fraction:
    # Digits are counted before a Fraction is made: that of 1e999999999 takes all memory.
    if not isinstance(text, str) or not re.fullmatch(_WEIGHT, text, re.ASCII):
        raise ValueError(f"{str(text)[:40]!r} is not a weight in quotes")
    weight = Fraction(text)
    if not 0 <= weight <= MAX_WEIGHT:
        raise ValueError(f"the weight {text} is not from 0 to {MAX_WEIGHT}")
    return weight
