"""`xenoovs fleet add-dpu`, `set-dpu`, `drain-dpu` and `forget`: which DPUs a fleet has."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import click

from xenoovs.display import duration, percent, printable
from xenoovs.errors import FleetRefused, did_you_mean, first_names
from xenoovs.fleet.commands.client import FleetStore, changes_fleet, dry_run_option, known_dpu, yes_option
from xenoovs.fleet.plan import DrainWatch, require_groups
from xenoovs.fleet.rollout import CANARY, LATER_WAVE
from xenoovs.store.rows import STATUSES, StoreDatabase
from xenoovs.store.servers import server_of, transact
from xenoovs.store.view import Changes, Dpu, FleetView, is_name
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.output import confirm, echo, print_table

_POLL_S = 0.2


_groups_option = click.option(
    "--groups", metavar="A,B", help="It serves the services of these groups, and those without groups."
)


@click.command("add-dpu")
@click.argument("name")
@_groups_option
@click.option("--rack", default="", metavar="NAME", help="Its rack.")
@click.option(
    "--wave",
    type=click.IntRange(CANARY, LATER_WAVE),
    metavar="N",
    default=LATER_WAVE,
    show_default=True,
    help="Wave in which it gets a new config: 1 (canary), 2, or 3 for later.",
)
@changes_fleet
def add_dpu_command(*, name: str, groups: str | None, rack: str, wave: int, store: FleetStore) -> None:
    """Add the DPU NAME to the fleet. NAME is the --dpu of its agent, by default the name of its host.

    With TLS, NAME must be the CN of its certificate: the store accepts its reports under no other name.

    Commands wait for the DPUs of the fleet, and `fleet status` shows which of them are behind or silent.
    """
    _check(name, "NAME")
    _check(rack or "none", "--rack")
    dpu = Dpu(name, _groups(groups or ""), rack, wave)

    def compute(view: FleetView) -> Changes:
        if name in view.dpus:
            raise FleetRefused(f"the fleet has a DPU {name} already; change it with `xenoovs fleet set-dpu {name}`")
        require_groups(view, dpu)
        return Changes(dpus={name: dpu})

    _show_unused(store.change(f"add-dpu {name}", compute), dpu)
    echo(f"{name} is a DPU of the fleet; start its agent with `xenoovs agent FILE --fleet ... --dpu {name}`")


@click.command("set-dpu")
@click.argument("name")
@_groups_option
@click.option("--rack", metavar="NAME", help="Its rack.")
@click.option("--wave", type=click.IntRange(CANARY, LATER_WAVE), metavar="N", help="1 (canary), 2, or 3 for later.")
@changes_fleet
def set_dpu_command(*, name: str, groups: str | None, rack: str | None, wave: int | None, store: FleetStore) -> None:
    """Change the groups, the rack or the wave of the DPU NAME; other settings stay.

    With other groups it serves other services at once; with `--groups ""` only those without groups.
    """
    if groups is None and rack is None and wave is None:
        raise click.UsageError("nothing to change: give --groups, --rack or --wave.")
    _check(rack or "none", "--rack")
    chosen = None if groups is None else _groups(groups)

    def compute(view: FleetView) -> Changes:
        dpu = known_dpu(view.dpus, name)
        made = replace(
            dpu,
            groups=dpu.groups if chosen is None else chosen,
            rack=dpu.rack if rack is None else rack,
            wave=wave or dpu.wave,
        )
        if chosen is not None:
            require_groups(view, made)
        return Changes(dpus={name: made})

    view = store.change(f"set-dpu {name}", compute)
    dpu = view.dpus[name]
    _show_unused(view, dpu)
    echo(f"{name}: groups {', '.join(sorted(dpu.groups)) or 'none'}, rack {dpu.rack or 'none'}, wave {dpu.wave}")


def _check(text: str, option: str) -> None:
    if not is_name(text):
        raise click.UsageError(
            f"{option} {text!r}: use letters, digits, `.`, `-` and `_`, at most 63 characters, such as rack7-dpu1."
        )


def _groups(text: str) -> frozenset[str]:
    names = text.split(",") if text else []
    for each in names:
        _check(each, "--groups")
    return frozenset(names)


def _show_unused(view: FleetView, dpu: Dpu) -> None:
    """Print a group of a DPU that no service names, as it may be a typing error."""
    served = frozenset[str]().union(*(each.groups for each in (*view.services.values(), *view.staged.values())))
    if view.services and (unused := sorted(dpu.groups - served)):
        guess = did_you_mean(unused[0], served, " (did you mean {}?)")
        echo(f"no service is for the group {unused[0]} yet{guess}", err=True)


@click.command("drain-dpu")
@click.argument("name")
@click.option("--end", is_flag=True, help="Return the DPU to service.")
@click.option("--now", is_flag=True, help="Do not wait for drains of services.")
@dry_run_option
@yes_option
@changes_fleet
def drain_dpu_command(*, name: str, end: bool, now: bool, dry_run: bool, yes: bool, store: FleetStore) -> int:
    """Take the DPU NAME out of service, such as for maintenance: routers should send no clients to it. --end ends it.

    `/ready` of its agent answers 503, so that the check of a BGP speaker withdraws its routes, and an agent with
    `announce` does it by itself. Its flows stay, and it is no witness of health checks any more.

    It first waits for drains of services with `drain: {mode: pin}`: routers move connections to other DPUs, and those
    that begin during a drain are reset there.

    Shows how many DPUs stay in service for each service, and asks for confirmation (unless --yes).
    """
    view = store.view() if dry_run else store.changeable()
    if not end:
        _show_left(view, name)
    if dry_run:
        return EXIT_DIFFERS if known_dpu(view.dpus, name).is_out is end else EXIT_OK
    if not end:
        confirm(f"Take {name} out of service?", yes=yes, instead=", or see which DPUs stay with --dry-run")
    if known_dpu(store.view().dpus, name).is_out is end and not now:
        _wait_for_drains(store)
    store.change(
        f"drain-dpu {name}{' --end' if end else ''}",
        lambda view: Changes(dpus={name: replace(known_dpu(view.dpus, name), is_out=not end)}),
    )
    hint = f"out of service: `/ready` there answers 503; `xenoovs fleet drain-dpu {name} --end` ends it"
    echo(f"{name} is {'in service' if end else hint}")
    return EXIT_OK


def _show_left(view: FleetView, name: str) -> None:
    """Print how many DPUs are in service now and without this one, for the services of the same groups together."""
    known_dpu(view.dpus, name)
    services, rows = Counter(each.groups for each in view.of_dpu(name).services.values()), list[list[str]]()
    for groups, count in sorted(services.items(), key=lambda each: sorted(each[0])):
        dpus = [dpu for dpu in view.dpus.values() if not groups or groups & dpu.groups]
        now = {dpu.name for dpu in dpus if not (dpu.is_out or dpu.is_unfit)}
        moved = percent(Fraction(1, len(now))) if name in now else "-"
        rows.append([", ".join(sorted(groups)) or "all", str(count), str(len(now)), str(len(now - {name})), moved])
    print_table(["GROUPS", "SERVICES", "DPUS NOW", "THEN", "CLIENTS THAT MOVE"], rows, right=(1, 2, 3, 4))
    if any(row[3] == "0" for row in rows):
        echo("routers then have no DPU in service for some services", err=True)


def _wait_for_drains(store: FleetStore) -> None:
    """Wait until no drain runs; print those that do."""
    shown, watch = frozenset[str](), DrainWatch()

    def left_of(view: FleetView) -> dict[str, float]:
        return watch.left(view, clocks_ms=store.clocks_ms(view), now_s=time.monotonic())

    while left := left_of(store.view()):
        if new := left.keys() - shown:
            shown |= new
            longest = duration(max(left.values()))
            echo(f"waiting up to {longest} for drains of {first_names(sorted(left))}; --now does not wait")
        time.sleep(_POLL_S)


@click.command("forget")
@click.argument("name")
@changes_fleet
def forget_command(*, name: str, store: FleetStore) -> None:
    """Remove the DPU NAME and its reports. Stop its agent first: it goes on until it is stopped."""
    has_state = name in (store.statuses() or {})

    def compute(view: FleetView) -> Changes:
        if not has_state:
            known_dpu(view.dpus, name)
        return Changes(dpus={name: None})

    store.change(f"forget {name}", compute)
    if has_state and store.directory is not None:
        report = {"op": "delete", "table": STATUSES.name, "where": [["name", "==", name]]}
        transact(server_of(store.directory, StoreDatabase.STATES), report)
    echo(f"{printable(name)} is no DPU of the fleet any more; what it has installed stays there")
