"""`xenoovs fleet export` and `restore`: a fleet in a file, for when all its servers are lost."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from xenoovs.agent.runtime_file import replace_file
from xenoovs.display import printable
from xenoovs.errors import FileUnusable, StoreUnreachable, counted, first_names
from xenoovs.fleet.commands.client import FleetStore, on_fleet
from xenoovs.fleet.restore import restoring, services_to_move
from xenoovs.store.export import MAX_SIZE_BYTES, export_text, parse_export
from xenoovs.store.view import Changes, FleetView
from xenoovs.terminal.command import file_behind
from xenoovs.terminal.output import confirm, echo

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command("export")
@click.argument("file", type=_FILE)
@on_fleet
def export_command(*, file: Path, store: FleetStore) -> None:
    """Write all that the store has to FILE: services with their blocks, DPUs, overrides, configs (-: to the output).

    `fleet restore` reads it. FILE gets mode 0600, and replaces an earlier one as a whole. It has no roll-out in waves
    and no reports of DPUs: they report again by themselves.

    \b
    Example:
      xenoovs fleet export /var/backups/fleet.json
    """
    target = None if str(file) == "-" else file_behind(file, option="FILE")
    view = store.view()
    text = export_text(view)
    if target is None:
        echo(text, nl=False)
        return
    try:
        replace_file(target, text.encode())
    except OSError as error:
        raise FileUnusable(file=str(file), reason=f"it cannot be written: {error.strerror or error}") from None
    echo(f"{file} has generation {view.generation} of fleet {printable(view.name)}: {_contents(view)}")


@click.command("restore")
@click.argument("file", type=_FILE)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@on_fleet
def restore_command(*, file: Path, yes: bool, store: FleetStore) -> None:
    """Restore the fleet in FILE (-: the input), which `fleet export` has written, into the store of new servers.

    The store must have no config yet. DPUs keep what they have until they reach the new store, and refuse older
    generations than theirs. So the fleet gets the time in milliseconds as its generation, or a million above that of
    FILE and of all that DPUs have reported by then, if that is more. No restore gets a generation twice.

    \b
    Example:
      xenoovs fleet init
      xenoovs fleet server
      xenoovs fleet restore /var/backups/fleet.json
    """
    exported = parse_export(_read(file), file="<stdin>" if str(file) == "-" else str(file))
    echo(f"{file}: generation {exported.generation} of fleet {printable(exported.name)}, {_contents(exported)}")
    restoring(store.view(), exported, {}, now_ms=_now_ms())
    confirm("Restore the fleet?", yes=yes, instead="")

    def compute(view: FleetView) -> Changes:
        statuses = store.statuses()
        if statuses is None:
            reason = "the database of states does not answer, so which generation DPUs have is not known"
            raise StoreUnreachable(remotes=store.remote, reason=reason)
        return restoring(view, exported, statuses, now_ms=_now_ms())

    view = store.change(compute)
    echo(f"restored as generation {view.generation}; `xenoovs fleet status` shows which DPUs have it")
    if moving := services_to_move(view):
        echo(f"clients of {first_names(moving, most=3)} may move: the controller decides about them again", err=True)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _contents(view: FleetView) -> str:
    overrides = counted(len(view.overrides), "override")
    configs = counted(len(view.intents), "config")
    return f"{counted(len(view.services), 'service')}, {counted(len(view.dpus), 'DPU')}, {overrides}, {configs}"


def _read(file: Path) -> bytes:
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
        with file.open("rb") as stream:
            return stream.read(MAX_SIZE_BYTES + 1)
    except OSError as error:
        raise FileUnusable(file=str(file), reason=f"it cannot be read: {error.strerror or error}") from None
