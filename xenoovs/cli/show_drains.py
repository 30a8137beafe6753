"""Drains for people and for programs, and waiting for their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from math import ceil

import click

from xenoovs.compile.drains import Draining
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors.words import counted


def drain_line(drain: Draining) -> str:
    """One drain, told in one line."""
    blocks = counted(drain.blocks, "block")
    ways = [(old, new) for old, new in drain.ways if old != new]
    if not ways:
        return (
            f"service {drain.service}: {blocks} back with {', '.join(drain.new)}; connections opened elsewhere "
            f"meanwhile stay there for at most {drain.left_s:.0f} s"
        )
    later = ""
    if drain.is_settling:
        later = f" in {ceil(drain.settles_s)} s" if drain.settles_s else " when `xenoovs apply` or an agent goes on"
    old, new = (", ".join(sorted(set(names))) for names in zip(*ways, strict=True))
    if {name for name, _ in ways} & {name for _, name in ways}:
        # Some lose clients and get others: names alone would say that they keep what they get.
        old, new = "their backends", f"others{later} ({', '.join(f'{one} -> {other}' for one, other in ways)})"
        later = ""
    return (
        f"service {drain.service}: open connections of {blocks} stay with {old} for at most {drain.left_s:.0f} s; "
        f"new ones go to {new}{later}"
    )


def entries_line(drain: Draining) -> str:
    """What it takes of the NIC."""
    entries = counted(drain.entries, "more hardware entry", "more hardware entries")
    return f"  up to {entries} meanwhile, one for a connection (estimate by counters)"


def drain_document(drain: Draining) -> dict[str, object]:
    """One drain for programs."""
    return {
        "service": drain.service,
        "ways": [list(way) for way in drain.ways],
        "old": list(drain.old),
        "new": list(drain.new),
        "blocks": drain.blocks,
        "left_s": round(drain.left_s, 3),
        "is_settling": drain.is_settling,
        "settles_s": round(drain.settles_s, 3),
        "new_connections": drain.connections,
        "extra_hardware_entries_estimate": drain.entries,
    }


class Steps:
    """A change and all that its drains need after it: planned again, and sent, until none is left."""

    def __init__(self, engine: Engine, change: Change, *, plan_again: Callable[[], Change]) -> None:
        self._engine, self._change, self._plan_again = engine, change, plan_again

    @property
    def drains(self) -> tuple[Draining, ...]:
        return self._change.drains

    @property
    def look_s(self) -> float | None:
        """After how long to go on; None: there is nothing left to do."""
        return (self._change.next_s or 1.0) if self.drains else None

    def go_on(self) -> None:
        """Raises what planning and applying do."""
        self._engine.look(now_s=time.monotonic())
        # Others may work on other services meanwhile: what the bridge has is believed, not what was left on it.
        self._engine.forget()
        self._change = self._plan_again()
        if not self._change.difference.is_empty:
            self._engine.apply(self._change)


def wait_for_drains(steps: Steps) -> float:
    """Go on until no drain is left. Returns the seconds that it took."""
    begun_s = time.monotonic()
    try:
        while (look_s := steps.look_s) is not None:
            _tell(steps.drains)
            time.sleep(look_s)
            steps.go_on()
    except KeyboardInterrupt:
        click.echo("\ninterrupted: open connections are still kept; `xenoovs apply` goes on with it", err=True)
        raise
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return time.monotonic() - begun_s


def _tell(drains: Iterable[Draining]) -> None:
    """On a terminal, in one line that is written again and again."""
    if sys.stderr.isatty():
        parts = (f"{d.service}: {d.left_s:.0f} s left, {d.connections} new connections" for d in drains)
        click.echo(f"\r\x1b[Kwaiting for {'; '.join(parts)}", nl=False, err=True)
