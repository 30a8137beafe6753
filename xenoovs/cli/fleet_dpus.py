"""`xenoovs fleet add-dpu` and `forget`: which DPUs a fleet has."""

from __future__ import annotations

import re
from pathlib import Path

import click

from xenoovs.cli.fleet_client import FleetStore, on_fleet
from xenoovs.cli.output import echo
from xenoovs.errors import FleetRefused, did_you_mean
from xenoovs.fleet.waves import CANARY, LAST_WAVE
from xenoovs.store.rows import STATUSES, StoreDatabase
from xenoovs.store.servers import files_of, transact
from xenoovs.store.view import Changes, Dpu, FleetView

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


@click.command("add-dpu")
@click.argument("name")
@click.option("--rack", default="", metavar="NAME", help="Where it stands.")
@click.option(
    "--wave",
    type=click.IntRange(CANARY, LAST_WAVE),
    metavar="N",
    default=LAST_WAVE,
    show_default=True,
    help="When it gets a new config in a roll-out: 1 (canary), 2 or 3.",
)
@on_fleet
def add_dpu_command(*, name: str, rack: str, wave: int, store: FleetStore) -> None:
    """Add the DPU NAME to the fleet. Its agent has that name by --dpu, or as the name of its host.

    With TLS, NAME must be the CN of its certificate: the store lets a DPU report in no other name.

    Commands wait for the DPUs of the fleet, and `fleet status` shows which of them are behind or silent.
    """
    for text, option in ((name, "NAME"), (rack or "none", "--rack")):
        if not _NAME.fullmatch(text):
            raise click.UsageError(
                f"{option} {text!r}: use letters, digits, `.`, `-` and `_`, at most 63 characters, such as rack7-dpu1."
            )

    def compute(view: FleetView) -> Changes:
        if name in view.dpus:
            raise FleetRefused(f"the fleet has a DPU {name} already")
        return Changes(dpus={name: Dpu(name, frozenset(), rack, wave)})

    store.change(compute)
    echo(f"{name} is a DPU of the fleet; start its agent with `xenoovs agent FILE --fleet ... --dpu {name}`")


@click.command("forget")
@click.argument("name")
@on_fleet
def forget_command(*, name: str, store: FleetStore) -> None:
    """Remove the DPU NAME, and what it has reported. Its agent goes on until it is stopped; so stop it first."""
    directory: Path = click.get_current_context().params["directory"]
    has_state = name in (store.statuses() or {})

    def compute(view: FleetView) -> Changes:
        if name not in view.dpus and not has_state:
            guess = did_you_mean(name, view.dpus, " (did you mean {}?)")
            raise FleetRefused(f"the fleet has no DPU {name}{guess}; `xenoovs fleet status` shows them all")
        return Changes(dpus={name: None})

    store.change(compute)
    if has_state:
        report = {"op": "delete", "table": STATUSES.name, "where": [["name", "==", name]]}
        transact(files_of(directory, StoreDatabase.STATES), StoreDatabase.STATES, report)
    echo(f"{name} is no DPU of the fleet any more; what it has installed stays there")
