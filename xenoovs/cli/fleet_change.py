"""`xenoovs fleet plan`, `apply`, `rollback`, `drain`, `undrain` and `weight`: what operators want of a fleet."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import click

from xenoovs.cli.control import parse_weight
from xenoovs.cli.fleet_client import FleetStore, on_fleet, timeout_option
from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
from xenoovs.cli.options import OutputFormat, output_option
from xenoovs.cli.output import confirm, echo, print_table
from xenoovs.cli.saved import user_name
from xenoovs.config.load import decode, read_config
from xenoovs.display import decimal, percent
from xenoovs.errors import FleetRefused, counted, first_names
from xenoovs.fleet.change import FleetChange, known_intent, parse_intent, with_intent, with_override
from xenoovs.model.balancer import Balancer
from xenoovs.store.view import Changes, FleetView, Intent, IntentState

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)
_file_argument = click.argument("file", type=_FILE)
_yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
_comment_option = click.option("--comment", default="", metavar="TEXT", help="Why; `xenoovs fleet history` shows it.")
_MAX_COMMENT = 200
_ROWS_SHOWN = 40


@click.command("plan")
@_file_argument
@output_option
@on_fleet
def plan_command(*, file: Path, output: OutputFormat, store: FleetStore) -> int:
    """Show what `fleet apply FILE` would change: blocks, and the clients that get another backend. Changes nothing.

    Exit status 0: nothing to do, 2: something differs.
    """
    text, balancer = _read(file)
    change = with_intent(store.view(), text, balancer)
    output.show(lambda: _document(change), lambda: _show(change, balancer))
    return EXIT_DIFFERS if change.steps else EXIT_OK


@click.command("apply")
@_file_argument
@click.option("--now", is_flag=True, help="Change all DPUs at once. Required: roll-outs in waves do not exist yet.")
@_yes_option
@_comment_option
@timeout_option
@on_fleet
def apply_command(*, file: Path, now: bool, yes: bool, comment: str, timeout_s: float, store: FleetStore) -> int:
    """Give the config FILE to all DPUs.

    FILE is a config as for one DPU. Of its `switch` only the names of ports count: `egress` is the port `egress` of
    each DPU. Shows the plan, asks for confirmation (unless --yes), and writes FILE to the store. The controller
    decides about blocks, and every DPU installs them. Waits until all DPUs have, or says which have not.

    Exit status 0: all DPUs have it, 2: some have not yet; they follow by themselves.
    """
    if not now:
        raise click.UsageError("Roll-outs in waves do not exist yet: add --now to change all DPUs at once.")
    text, balancer = _read(file)
    return _give(store, text, balancer, name=str(file), yes=yes, comment=comment, timeout_s=timeout_s)


@click.command("rollback")
@click.argument("number", type=click.IntRange(min=1), required=False)
@_yes_option
@timeout_option
@on_fleet
def rollback_command(*, number: int | None, yes: bool, timeout_s: float, store: FleetStore) -> int:
    """Give an earlier config to the fleet again: that of entry NUMBER of `fleet history`, or the one before.

    It becomes a new entry, and as few clients move as can be, from where they are now. Overrides stay.
    """
    view = store.view()
    past = [n for n, each in view.intents.items() if each.state is IntentState.PAST]
    if number is None and not past:
        raise FleetRefused("the fleet had no other config before; `xenoovs fleet history` shows all of them")
    chosen = max(past) if number is None else number
    intent = known_intent(view, chosen)
    name = f"entry {chosen}"
    balancer = parse_intent(intent.text, file=name)
    comment = f"rollback to {chosen}"
    return _give(store, intent.text, balancer, name=name, yes=yes, comment=comment, timeout_s=timeout_s)


@click.command("drain")
@click.argument("service")
@click.argument("backend")
@timeout_option
@on_fleet
def drain_command(*, service: str, backend: str, timeout_s: float, store: FleetStore) -> int:
    """Drain BACKEND of SERVICE in the whole fleet: its clients go to the other backends, by weight.

    It stays drained until `fleet undrain`, or until a new config gives it another weight.
    """
    return _override(store, (service, backend), Fraction(0), "is drained", timeout_s)


@click.command("undrain")
@click.argument("service")
@click.argument("backend")
@timeout_option
@on_fleet
def undrain_command(*, service: str, backend: str, timeout_s: float, store: FleetStore) -> int:
    """End the drain, or another override, of BACKEND of SERVICE: it has its weight in the config again."""
    return _override(store, (service, backend), None, "has the weight of the config", timeout_s)


@click.command("weight")
@click.argument("service")
@click.argument("backend")
@click.argument("value", metavar="WEIGHT")
@timeout_option
@on_fleet
def weight_command(*, service: str, backend: str, value: str, timeout_s: float, store: FleetStore) -> int:
    """Override the weight of BACKEND of SERVICE in the whole fleet, until `fleet undrain` or another config weight."""
    parsed = parse_weight(value)
    return _override(store, (service, backend), parsed, f"has the weight {decimal(parsed)}", timeout_s)


def _read(file: Path) -> tuple[str, Balancer]:
    """Return the text of a config, and what it says. Raises ConfigError, ConfigUnreadable, FleetRefused."""
    name = "<stdin>" if str(file) == "-" else str(file)
    data = sys.stdin.buffer.read() if str(file) == "-" else read_config(file)
    text = decode(data, file=name)
    return text, parse_intent(text, file=name)


def _give(
    store: FleetStore, text: str, balancer: Balancer, *, name: str, yes: bool, comment: str, timeout_s: float
) -> int:
    """Plan, ask, write, and wait."""
    view = store.view()
    change = with_intent(view, text, balancer)
    _show(change, balancer)
    digest = sha256(text.encode()).hexdigest()
    current = view.intents.get(view.intent)
    if not change.steps and current is not None and current.digest == digest:
        return _wait(store, timeout_s)
    if change.steps:
        confirm("Change the fleet?", yes=yes, instead=", or see the change with `xenoovs fleet plan`")
    number = 0

    def compute(view: FleetView) -> Changes:
        nonlocal number
        if with_intent(view, text, balancer).steps != change.steps:
            raise FleetRefused("the fleet was changed meanwhile, so the plan is another one; nothing was written")
        number = max(view.intents, default=0) + 1
        author, now_ms = user_name(), int(time.time() * 1000)
        intent = Intent(number, text, digest, author, comment[:_MAX_COMMENT], now_ms, IntentState.STAGED)
        return Changes(intents={number: intent})

    store.change(compute)
    view = store.settled()
    intent = view.intents.get(number)
    if intent is not None and intent.state is IntentState.REFUSED:
        raise FleetRefused(f"the controller refused {name}: {intent.comment}; the fleet has what it had")
    echo(f"{name} is entry {number} of the history")
    return _wait(store, timeout_s)


def _override(store: FleetStore, name: tuple[str, str], value: Fraction | None, done: str, timeout_s: float) -> int:
    def compute(view: FleetView) -> Changes:
        made = with_override(view, name, value, author=user_name(), now_ms=int(time.time() * 1000))
        return Changes(overrides={name: None if value is None else made})

    store.change(compute)
    store.settled()
    echo(f"{'/'.join(name)} {done} in the fleet")
    return _wait(store, timeout_s)


def _wait(store: FleetStore, timeout_s: float) -> int:
    """Wait for the DPUs, and say which lack the newest generation."""
    view = store.settled()
    if not view.dpus:
        echo("the fleet has no DPUs yet: add each with `xenoovs fleet add-dpu NAME`")
        return EXIT_OK
    lacking = store.lacking(view, timeout_s=timeout_s)
    count = len(view.dpus)
    echo(f"generation {view.generation}: applied by {count - len(lacking)} of {counted(count, 'DPU')}")
    for name, reason in list(lacking.items())[:_ROWS_SHOWN]:
        echo(f"  {name}: {reason}", err=True)
    if len(lacking) > _ROWS_SHOWN:
        echo(f"  and {len(lacking) - _ROWS_SHOWN} more; `xenoovs fleet status` has them all", err=True)
    return EXIT_DIFFERS if lacking else EXIT_OK


def _show(change: FleetChange, balancer: Balancer) -> None:
    """Print what a change means."""
    for problem in change.unusable:
        echo(f"{problem}; its clients may move", err=True)
    for one in change.ended:
        echo(f"{one.service}/{one.backend}: the override {decimal(one.weight)} ends, the config has another weight")
    checked = [s.name for s in balancer.services if s.health is not None or s.agent_check is not None]
    if checked:
        echo(f"no health checks are run in a fleet yet: those of {first_names(checked)} have no effect")
    if not change.steps:
        echo("nothing to do: services and blocks are as they should be")
        return
    rows = [
        [each.name, each.kind, str(each.blocks), "-" if each.kind != "changed" else percent(each.clients)]
        for each in change.steps[:_ROWS_SHOWN]
    ]
    print_table(["SERVICE", "CHANGE", "BLOCKS", "CLIENTS MOVED"], rows, right=(2, 3))
    if len(change.steps) > _ROWS_SHOWN:
        echo(f"... and {counted(len(change.steps) - _ROWS_SHOWN, 'more service')}; `fleet plan -o json` has them all")


def _document(change: FleetChange) -> dict[str, object]:
    return {
        "services": [
            {"name": each.name, "change": each.kind, "blocks": each.blocks, "clients_moved": float(each.clients)}
            for each in change.steps
        ],
        "ended_overrides": [f"{each.service}/{each.backend}" for each in change.ended],
        "unusable": [str(each) for each in change.unusable],
    }
