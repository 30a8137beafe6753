"""Drains for people and for programs, and waiting for their end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from math import ceil

import click

from xenoovs.cli.planning import PlannedChange
from xenoovs.compile.draining import Draining
from xenoovs.errors.words import counted


def drain_line(drain: Draining) -> str:
    """One drain, told in one line."""
    blocks = counted(drain.blocks, "block")
    later = ""
    if drain.is_settling:
        later = f" in {ceil(drain.settles_s)} s" if drain.settles_s else " when `xenoovs apply` or an agent goes on"
    return (
        f"service {drain.service}: open connections of {blocks} stay with {', '.join(drain.old)} "
        f"for at most {drain.left_s:.0f} s; new ones go to {', '.join(drain.new)}{later}"
    )


def entries_line(drain: Draining) -> str:
    """What it takes of the NIC."""
    entries = counted(drain.entries, "more hardware entry", "more hardware entries")
    return f"  up to {entries} meanwhile, one for a connection (estimate by counters)"


def drain_document(drain: Draining) -> dict[str, object]:
    """One drain for programs."""
    return {
        "service": drain.service,
        "old": list(drain.old),
        "new": list(drain.new),
        "blocks": drain.blocks,
        "left_s": round(drain.left_s, 3),
        "is_settling": drain.is_settling,
        "settles_s": round(drain.settles_s, 3),
        "new_connections": drain.connections,
        "extra_hardware_entries_estimate": drain.entries,
    }


def wait_for_drains(
    change: PlannedChange, *, plan_again: Callable[[], PlannedChange], apply: Callable[[PlannedChange], None]
) -> float:
    """Plan and apply until no drain is left. Returns the seconds that it took."""
    begun_s = time.monotonic()
    try:
        while change.drains:
            _tell(change.drains)
            time.sleep(change.look_again_s or 1.0)
            change = plan_again()
            if not change.difference.is_empty:
                apply(change)
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
