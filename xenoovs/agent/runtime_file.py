"""The overrides and the pause that operators set, in a file, so that they survive a restart of the agent.

The end of an override is a time of CLOCK_MONOTONIC, so that a change of the date neither ends nor prolongs it. That
clock restarts with each boot (clock_gettime(2)). So the file also has the readings of both clocks and the id of the
boot. After another boot, or on another machine, the elapsed time is that by the date.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from xenoovs.agent.state import Runtime
from xenoovs.display import decimal
from xenoovs.errors import StateUnusable
from xenoovs.show.snapshot import Override
from xenoovs.switch.undo_journal import replace_file, sync_directory

MAX_WEIGHT = 10**9
MAX_SIZE_BYTES = 64 << 20
_WEIGHT = r"[0-9]{1,30}(\.[0-9]{1,9}|/0*[1-9][0-9]{0,30})?"
_KEYS = frozenset(("service", "backend", "weight", "configured", "since_s"))
_MORE_KEYS = frozenset(("until_s", "maintenance"))
_MAX_NAME = 128
_MORE_PARTS = frozenset(("withdrawn", "clocks", "pins", "moves_paused"))
_MAX_TIME_S = 1 << 40
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class RuntimeFile:
    """The file: JSON, mode 0600, replaced atomically. If nothing is set, the file does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Runtime:
        """Return the saved runtime. Renames an unusable file if possible, and raises StateUnusable."""
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
            renamed: str | None = str(aside)
            try:
                self.path.replace(aside)
            except OSError:
                # The disk is read-only: the file stays.
                renamed = None
            raise StateUnusable(path=str(self.path), reason=str(error), renamed=renamed) from None

    def save(self, runtime: Runtime) -> None:
        """Save the runtime atomically, also if the machine loses power. Blocks; raises OSError."""
        if runtime != Runtime():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, render_runtime(runtime).encode())
            return
        self.path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            sync_directory(self.path.parent)


def load_runtime(file: RuntimeFile | None) -> tuple[Runtime, StateUnusable | None]:
    """Return the saved runtime, and the problem if it could not be read."""
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
            # Left out if there is none, so that earlier versions can read the file.
            **({} if override.until_s is None else {"until_s": override.until_s}),
            **({"maintenance": True} if override.is_maintenance else {}),
        }
        for override in runtime.overrides
    ]
    clocks = {"clocks": _clocks()} if any(override.until_s is not None for override in runtime.overrides) else {}
    withdrawn = {"withdrawn": True} if runtime.is_withdrawn else {}
    pinned = [{"remote": remote, "path": path} for remote, path in runtime.pins.items()]
    pins = {"pins": pinned} if pinned else {}
    moves = {"moves_paused": True} if runtime.are_moves_paused else {}
    document = {"version": 1, "paused": runtime.is_paused, **withdrawn, **clocks, **pins, **moves, "overrides": rows}
    return json.dumps(document, indent=2) + "\n"


def _clocks() -> dict[str, object]:
    boot = ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    return {"boot": boot, "monotonic_s": time.monotonic(), "utc_s": time.time()}


def parse_runtime(data: bytes) -> Runtime:
    """Parse the text of `render_runtime`. Overrides end at times of this machine's clock. Raises ValueError."""
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"it is larger than {MAX_SIZE_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or set(document) - _MORE_PARTS != {"version", "paused", "overrides"}:
        raise ValueError("its keys are not exactly version, paused and overrides")
    if (
        document["version"] != 1
        or not isinstance(document["paused"], bool)
        or not isinstance(document.get("withdrawn", False), bool)
        or not isinstance(document.get("moves_paused", False), bool)
        or not isinstance(document.get("pins", []), list)
        or not isinstance(document["overrides"], list)
    ):
        raise ValueError("version is not 1, a state not true or false, or overrides or pins not a list")
    overrides = tuple(map(_override, document["overrides"]))
    if len({override.name for override in overrides}) < len(overrides):
        raise ValueError("two overrides are for one backend")
    if any(override.until_s is not None for override in overrides):
        overrides = _on_this_clock(overrides, document.get("clocks"))
    pins = dict(map(_pin, document.get("pins", [])))
    if len(pins) < len(document.get("pins", [])):
        raise ValueError("two pins are for one remote")
    are_paused = document.get("moves_paused", False)
    return Runtime(overrides, document["paused"], document.get("withdrawn", False), pins, are_paused)


def _pin(row: object) -> tuple[str, str]:
    if not isinstance(row, Mapping) or set(row) != {"remote", "path"}:
        raise ValueError("the keys of a pin are not exactly remote and path")
    if not all(isinstance(name, str) and 0 < len(name) < _MAX_NAME for name in row.values()):
        raise ValueError("remote or path is not a name")
    return row["remote"], row["path"]


def _on_this_clock(overrides: tuple[Override, ...], saved: object) -> tuple[Override, ...]:
    """Return the overrides with `until_s` on this machine's monotonic clock, with no more time left than when saved."""
    if not isinstance(saved, dict) or set(saved) != {"boot", "monotonic_s", "utc_s"}:
        raise ValueError("the keys of clocks are not exactly boot, monotonic_s and utc_s")
    then, utc_s, now = _time(saved["monotonic_s"]), _time(saved["utc_s"]), _clocks()
    now_s = time.monotonic()
    elapsed_s = now_s - then if saved["boot"] and saved["boot"] == now["boot"] else time.time() - utc_s
    # A date that was set back must not prolong an override.
    shift_s = now_s - then - max(0.0, elapsed_s)
    return tuple(o if o.until_s is None else replace(o, until_s=max(0.0, o.until_s + shift_s)) for o in overrides)


def _override(row: object) -> Override:
    if not isinstance(row, Mapping) or set(row) - _MORE_KEYS != _KEYS:
        raise ValueError(f"the keys of an override are not exactly {', '.join(sorted(_KEYS))}")
    names = (row["service"], row["backend"])
    if not all(isinstance(name, str) and 0 < len(name) < 64 for name in names):
        raise ValueError("service or backend is not a name")
    until_s = _time(row["until_s"]) if "until_s" in row else None
    if row.get("maintenance", True) is not True:
        raise ValueError("maintenance is not true")
    weights = _weight(row["weight"]), _weight(row["configured"])
    return Override(*names, weights[0], _time(row["since_s"]), weights[1], until_s, "maintenance" in row)


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_TIME_S:
        raise ValueError(f"{str(value)[:40]} is not a time")
    return float(value)


def _weight(text: object) -> Fraction:
    # Digits are limited before a Fraction is made: that of 1e999999999 would take all memory.
    if not isinstance(text, str) or not re.fullmatch(_WEIGHT, text, re.ASCII):
        raise ValueError(f"{str(text)[:40]!r} is not a weight in quotes")
    weight = Fraction(text)
    if not 0 <= weight <= MAX_WEIGHT:
        raise ValueError(f"the weight {text} is not from 0 to {MAX_WEIGHT}")
    return weight
