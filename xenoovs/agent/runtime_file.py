"""What an operator set at run time, in a file of its own, so that it outlives a restart of the agent."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from tempfile import NamedTemporaryFile

from xenoovs.agent.log import warn
from xenoovs.agent.snapshot import Override, Runtime
from xenoovs.display import decimal
from xenoovs.errors import StateUnusable

MAX_WEIGHT = 10**9
MAX_SIZE_BYTES = 1 << 20
_WEIGHT = r"[0-9]{1,30}(\.[0-9]{1,9}|/0*[1-9][0-9]{0,30})?"
_KEYS = frozenset(("service", "backend", "weight", "configured", "since_s"))


class RuntimeFile:
    """The file: JSON, mode 0600, replaced as a whole; absent while nothing is set."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Runtime:
        """What was saved; nothing where there is no file. Raises StateUnusable, after the file was set aside."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Runtime()
        except OSError as error:
            raise StateUnusable(path=str(self.path), reason=error.strerror or str(error), kept=None) from None
        try:
            return parse_runtime(data)
        except ValueError as error:
            aside = self.path.with_name(f"{self.path.name}.broken")
            self.path.replace(aside)
            raise StateUnusable(path=str(self.path), reason=str(error), kept=str(aside)) from None

    def save(self, runtime: Runtime) -> None:
        """All of it or nothing, also when the machine loses power. Raises OSError."""
        if runtime == Runtime():
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Of mode 0600 from the start (tempfile of the Python library).
        with NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
            try:
                file.write(render_runtime(runtime).encode())
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(self.path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise


def load_runtime(file: RuntimeFile | None) -> tuple[Runtime, StateUnusable | None]:
    """Return what was saved, and why it could not be read."""
    try:
        return (Runtime() if file is None else file.load()), None
    except StateUnusable as problem:
        return Runtime(), problem


def save_runtime(file: RuntimeFile | None, runtime: Runtime) -> None:
    """Save it for the next agent. A file that cannot be written is logged; the runtime holds all the same."""
    try:
        if file is not None:
            file.save(runtime)
    except OSError as error:
        warn("overrides cannot be saved; a restart of the agent will lose them", reason=error.strerror or error)


def render_runtime(runtime: Runtime) -> str:
    """As text that `parse_runtime` reads."""
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
    """Raises ValueError for anything but what `render_runtime` writes."""
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"it is larger than {MAX_SIZE_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or set(document) != {"version", "paused", "overrides"}:
        raise ValueError("it does not have the keys version, paused and overrides alone")
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
        raise ValueError(f"an override does not have the keys {', '.join(sorted(_KEYS))} alone")
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
