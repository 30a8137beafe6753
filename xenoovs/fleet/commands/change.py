"""`xenoovs fleet plan`, `apply`, `drain`, `weight` and `reset`: changes of a fleet."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import click

from xenoovs.agent.servers import backends_of, find_server
from xenoovs.dataclass import replace
from xenoovs.decision.decision import BackendName
from xenoovs.display import decimal, duration, percent
from xenoovs.errors import FleetRefused, FleetUndecided, counted, first_names
from xenoovs.fleet.commands.client import (
    Command,
    FleetStore,
    changes_fleet,
    dry_run_option,
    on_fleet,
    timeout_option,
    yes_option,
)
from xenoovs.fleet.history import MAX_COMMENT
from xenoovs.fleet.plan import (
    FleetChange,
    Memo,
    ServiceStep,
    concerned,
    config_in_use,
    known_intent,
    next_change,
    parse_intent,
    rolling_intent,
    with_intent,
    with_override,
)
from xenoovs.fleet.rollout import SOAK_S, FleetProgress, planned_waves, uncompared
from xenoovs.model.balancer import ProbeKind
from xenoovs.model.fleet import FleetServices
from xenoovs.model.include import MAX_SIZE_BYTES
from xenoovs.model.load import decode, read_config
from xenoovs.model.values import site_name, split_site
from xenoovs.store.view import Changes, FleetOverride, FleetView, Intent, IntentState, rows_after
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK, user_name
from xenoovs.terminal.options import (
    backend_and_weight,
    backend_argument,
    backend_words,
    output_option,
    rollback_option,
    time_option,
    up_to,
)
from xenoovs.terminal.output import answer, confirm, echo, print_table

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)
_file_argument = click.argument("file", type=_FILE)
_group_option = click.option(
    "--group", default="", metavar="NAME", help="Only on the DPUs of this group of the service. Default: on all."
)
_for_option = time_option("--for", help="The controller ends it after TIME, such as 30m.")
_ROWS_SHOWN = 40
_POLL_S = 1.0


@click.command("plan")
@_file_argument
@output_option
@on_fleet
def plan_command(*, file: Path, store: FleetStore) -> int:
    """Show what `fleet apply FILE` would change: blocks, and the clients that get another backend. Changes nothing.

    Exit status 0: nothing to do, 2: something differs.
    """
    text, services = _read(file)
    view = store.view()
    change = with_intent(view, text, memo=store.memo)
    answer(lambda: _document(view, change, services), lambda: _show(view, change, services))
    return EXIT_DIFFERS if change.steps else EXIT_OK


def _overrides(command: Command) -> Command:
    """Add the options of an override, and what `changes_fleet` adds."""
    return _group_option(_for_option(dry_run_option(yes_option(timeout_option(changes_fleet(command))))))


def _file_or_rollback(context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    if not context.resilient_parsing and (file is None) is (context.params.get("rollback") is None):
        raise click.UsageError("Give one of FILE and --rollback.")
    return file


@click.command("apply")
@click.argument("file", type=_FILE, required=False, callback=_file_or_rollback)
@rollback_option("Roll out config NUMBER of `xenoovs fleet history` again; without NUMBER, the one before.")
@click.option(
    "--canary",
    "canaries",
    type=click.IntRange(min=1),
    metavar="N",
    help="Least number of canaries: DPUs of `add-dpu --wave 1`, then others, of racks with the fewest; these stay "
    "canaries. Default: 1 of 100.",
)
@click.option(
    "--second",
    type=click.IntRange(min=0),
    metavar="N",
    help="Least number of DPUs in wave 2, chosen likewise. Default: 1 of 10; none of fewer than 10, or with --by.",
)
@click.option(
    "--by", type=click.Choice(["rack", "group"]), help="Each wave after the second has DPUs of one rack or group."
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most DPUs in each wave after the second. Default: a quarter; with --by all of the rack or group, "
    "if it is known.",
)
@time_option("--soak", f"{SOAK_S}s", type=up_to("24h"), help="How long each wave is watched; at most a day.")
@click.option("--now", is_flag=True, help="Change all DPUs at once.")
@yes_option
@timeout_option
@changes_fleet
def apply_command(
    *,
    file: Path | None,
    rollback: int | None,
    soak_s: float,
    now: bool,
    yes: bool,
    timeout_s: float,
    store: FleetStore,
    **waves: Any,
) -> int:
    """Roll out the config FILE to the DPUs, wave by wave; or an earlier config with --rollback.

    FILE is a config as for one DPU. Of its `switch` only the names of ports count: `egress` is the port `egress` of
    each DPU. Shows the plan, asks for confirmation (unless --yes), and writes FILE to the store. The controller
    decides about blocks, and DPUs install them: first the canaries, then wave 2, then all others, a quarter at once. A
    wave passes if after the soak time its DPUs have the blocks, without an error or drift, are fit, and have as large a
    part of their megaflows in hardware as before. No backend of the services that change may have gone down. When a
    problem has lasted 10 s, the controller takes FILE back. `fleet pause` holds the next wave.

    A rollback makes a new config, in waves too. As few clients as possible move from their present backends. Overrides
    stay.

    Waits for the end of the roll-out; Ctrl-C ends only the wait. Then waits until all DPUs have the newest
    generation, or prints which do not.

    Exit status 0: all DPUs have it, 1: refused, 2: some do not have it yet, or no controller is active; they
    follow when they can, and when a controller runs again.
    """
    if file is not None:
        action, name = "apply", str(file)
        text, services = _read(file)
    else:
        action, name, text = _earlier(store.view(), rollback)
        services = parse_intent(text, file=name)
    view = store.changeable()
    _require_no_roll_out(view)
    if not now and not view.intent:
        raise FleetRefused("the fleet has no config yet, so there is none to go back to: give the first one with --now")
    change = with_intent(view, text, memo=store.memo)
    _show(view, change, services)
    digest = sha256(text.encode()).hexdigest()
    current = view.intents.get(view.intent)
    if not change.steps and current is not None and current.digest == digest:
        return _wait(store, timeout_s)
    if change.steps and not now:
        members = concerned(view, change.changes)
        sizes = Counter(dpu.wave for dpu in {**members, **planned_waves(members, **waves)}.values())
        echo(f"{counted(len(sizes), 'wave')} of {', '.join(str(sizes[wave]) for wave in sorted(sizes))} DPUs")
    if change.steps:
        confirm("Change the fleet?", yes=yes, instead=", or see the change with `xenoovs fleet plan`")
    number = 0

    def compute(view: FleetView) -> Changes:
        nonlocal number
        _require_no_roll_out(view)
        changes, now_ms = with_intent(view, text, memo=store.memo), int(time.time() * 1000)
        if changes.steps != change.steps:
            raise FleetRefused("the fleet was changed meanwhile, so the plan is another one; nothing was written")
        number = max(view.intents, default=0) + 1
        intent = Intent(number, text, digest, user_name(), store.comment[:MAX_COMMENT], now_ms, IntentState.STAGED)
        if now or not change.steps:
            # A config that changes no service now is in use at once.
            return Changes(intents={number: intent})
        intent = replace(intent, state=IntentState.ROLLING, soak_s=ceil(soak_s))
        members = concerned(view, changes.changes)
        return Changes(intents={number: intent}, dpus=planned_waves(members, **waves))

    sites = Counter(each.name for each in change.steps)
    at = (min(each.groups or each.old_groups if sites[each.name] > 1 else (), default="") for each in change.steps)
    changed = [f"{site_name(each.name, where)} {each.kind}" for each, where in zip(change.steps, at, strict=True)]
    store.change(action, compute, changed=first_names(changed, most=3))
    echo(f"{name} is config {number} of the history")
    intent = _after_roll_out(store, store.settled(), number)
    if intent is not None and intent.state is IntentState.REFUSED:
        raise FleetRefused(f"{name} was {intent.comment}; the fleet has what it had")
    return _wait(store, timeout_s)


def _earlier(view: FleetView, number: int | None) -> tuple[str, str, str]:
    """Return the action, the name and the text of an earlier config; 0 for the one before. Raises FleetRefused."""
    past = [n for n, each in view.intents.items() if each.state is IntentState.PAST]
    if not number and not past:
        raise FleetRefused("the fleet had no other config before; `xenoovs fleet history` shows all of them")
    chosen = number or max(past)
    return f"rollback {chosen}", f"config {chosen}", known_intent(view, chosen).text


@click.command("drain")
@backend_argument
@_overrides
def drain_command(*, words: tuple[str, ...], timeout_s: float, store: FleetStore, **options: Any) -> int:
    """Drain BACKEND of SERVICE in the whole fleet: its clients go to the other backends, by weight.

    Without SERVICE, drain a server in all services, in one change: BACKEND is then a name, or the MAC or the address of
    the server. SERVICE/BACKEND is the same as SERVICE BACKEND.

    It stays drained until `fleet reset`, until --for is over, or until a new config gives it another weight. Shows
    which clients move, and asks for confirmation (unless --yes).
    """
    return _override(store, backend_words(words), Fraction(0), "is drained", timeout_s, **options)


@click.command("reset")
@backend_argument
@_group_option
@timeout_option
@changes_fleet
def reset_command(*, words: tuple[str, ...], group: str, timeout_s: float, store: FleetStore) -> int:
    """Return BACKEND of SERVICE, or a server in all services, to its weight in the config: end a drain, or a weight."""
    return _override(store, backend_words(words), None, "has the weight of the config", timeout_s, group=group)


@click.command("weight")
@click.argument("words", nargs=-1, required=True, metavar="SERVICE BACKEND WEIGHT")
@_overrides
def weight_command(*, words: tuple[str, ...], timeout_s: float, store: FleetStore, **options: Any) -> int:
    """Override the weight of BACKEND of SERVICE in the whole fleet, until `fleet reset` or another config weight.

    With --for it ends after that time. SERVICE/BACKEND is the same as SERVICE BACKEND. Shows which clients move, and
    asks for confirmation (unless --yes).
    """
    service, backend, weight = backend_and_weight(words)
    if weight is None:
        raise click.UsageError("WEIGHT is missing; `xenoovs fleet status` shows the weights that were overridden.")
    return _override(store, (service, backend), weight, f"has the weight {decimal(weight)}", timeout_s, **options)


def _read(file: Path) -> tuple[str, FleetServices]:
    """Return the text of a config, and its services. Raises ConfigError, ConfigUnreadable, FleetRefused."""
    name = "<stdin>" if str(file) == "-" else str(file)
    data = sys.stdin.buffer.read(MAX_SIZE_BYTES + 1) if str(file) == "-" else read_config(file)
    text = decode(data, file=name)
    return text, parse_intent(text, file=name)


def _require_no_roll_out(view: FleetView) -> None:
    if (intent := rolling_intent(view)) is not None:
        raise FleetRefused(
            f"config {intent.number} is rolled out at present; wait for its end (`xenoovs fleet status`), or take it "
            "back with `xenoovs fleet stop`"
        )


def _after_roll_out(store: FleetStore, view: FleetView, number: int) -> Intent | None:
    """Return an intent once it is rolled out or refused; print each wave. Raises FleetUndecided."""
    wave, is_paused, progress = 0, False, FleetProgress(store.memo)
    try:
        while (intent := view.intents.get(number)) is not None and intent.state is IntentState.ROLLING:
            if view.wave != wave:
                wave = view.wave
                names = sorted(name for name, dpu in view.concerned.items() if dpu.wave == wave)
                echo(f"wave {wave}: {first_names(names)}; watched for {duration(intent.soak_s)}")
                for line in uncompared(view):
                    echo(line)
            if intent.is_paused is not is_paused:
                is_paused = intent.is_paused
                echo(f"the roll-out {'is paused' if is_paused else 'goes on'}")
            if stall := progress.stall(view, store.states.statuses(), now_s=time.monotonic()):
                raise FleetUndecided(
                    f"{stall}; the roll-out of config {number} goes on when a controller runs again (`xenoovs fleet "
                    "serve`), and DPUs keep what they have until then"
                )
            store.fleet.wait_changed(view, timeout_s=_POLL_S)
            view = store.written()
    except KeyboardInterrupt:
        echo(
            f"the controller goes on with the roll-out of config {number}: `xenoovs fleet status` shows it, `xenoovs "
            "fleet stop` takes it back",
            err=True,
        )
        raise
    return intent


def _override(
    store: FleetStore,
    words: tuple[str, ...],
    value: Fraction | None,
    done: str,
    timeout_s: float,
    *,
    group: str,
    for_s: float | None = None,
    dry_run: bool = False,
    yes: bool = True,
) -> int:
    """Show which clients move, ask, and write the overrides of a backend, or of a server in all services. `value`:
    None to end them."""
    verb = "reset" if value is None else f"weight {decimal(value)}" if value else "drain"
    names = tuple[BackendName, ...]()

    def compute(view: FleetView) -> Changes:
        nonlocal names
        names = _named(view, words, group, overridden=value is None)
        made, now_ms = dict[BackendName, FleetOverride | None](), int(time.time() * 1000)
        for name in names:
            if not group and value is not None:
                # An override for all groups ends those for one group.
                made |= dict.fromkeys(_of_groups(view, name))
                view = replace(view, overrides=rows_after(view.overrides, made))
            one = with_override(view, name, value, author=user_name(), now_ms=now_ms, memo=store.memo)
            until_ms = now_ms + int(for_s * 1000) if for_s else 0
            made[name] = None if value is None else replace(one, until_ms=until_ms)
            view = replace(view, overrides=rows_after(view.overrides, made))
        return Changes(overrides=made)

    view = store.view() if dry_run else store.changeable()
    store.require_clock(view, for_s)
    moves = _show_moves(view, compute(view), store.memo)
    if dry_run:
        return EXIT_DIFFERS if moves else EXIT_OK
    if moves:
        confirm("Change the fleet?", yes=yes, instead=", or see what it changes with --dry-run")
    options = (f" --group {group}" if group else "") + (f" --for {duration(for_s)}" if for_s else "")
    store.change(f"{verb} {'/'.join(words)}{options}", compute)
    store.settled()
    for service, backend in names:
        name, of = split_site(service)
        echo(f"{name}/{backend} {done} in the {f'group {of}' if of else 'fleet'}")
    return _wait(store, timeout_s)


def _show_moves(view: FleetView, changes: Changes, memo: Memo) -> bool:
    """Print which clients overrides move, and which backends then have more than by the config; return whether any."""
    after = replace(view, overrides=rows_after(view.overrides, changes.overrides))
    steps = next_change(after, memo=memo).steps
    if not steps:
        echo("no client moves")
        return False
    _show_steps(view, steps)
    config = config_in_use(view)[1]
    configured, rows = {each.name: each for each in config.balancer.services}, list[list[str]]()
    # A service that is removed, or that only a roll-out has, has no weights here.
    for step in (each for each in steps if each.name in configured):
        weights = config.weights(configured[step.name], min(step.groups, default=""))
        backups = {each.name for each in configured[step.name].backends if each.is_backup}
        total = sum(weight for name, weight in weights.items() if name not in backups) or 1
        now, then = ({} if each is None else each.active.shares() for each in (step.was, step.now))
        for name in sorted(name for name in {*now, *then} if now.get(name) != then.get(name)):
            had, gets = now.get(name, Fraction(0)), then.get(name, Fraction(0))
            over = gets - weights.get(name, Fraction(0)) / total
            rows.append(
                [step.name, _where(step), name, percent(had), percent(gets), percent(over) if over > 0 else "-"]
            )
    if rows:
        echo()
        heads = ["SERVICE", "GROUPS", "BACKEND", "NOW", "THEN", "OVER CONFIG"]
        print_table(heads, rows[:_ROWS_SHOWN], right=(3, 4, 5))
    return True


def _of_groups(view: FleetView, name: BackendName) -> list[BackendName]:
    """Return the overrides of a backend in single groups."""
    return [key for key in view.overrides if key != name and (split_site(key[0])[0], key[1]) == name]


def _named(view: FleetView, words: tuple[str, ...], group: str, *, overridden: bool) -> tuple[BackendName, ...]:
    """Return the named backends; if `overridden` those with overrides, if any. Raises FleetRefused, RequestRefused."""
    if len(words) == 2:
        found: tuple[BackendName, ...] = ((site_name(words[0], group), words[1]),)
    else:
        services = config_in_use(view)[1]
        there = {each.name: services.weights(each, group) for each in services.balancer.services}
        everywhere = backends_of(services.balancer).items()
        found = find_server({name: each for name, each in everywhere if name[1] in there[name[0]]}, words[0])
        found = tuple((site_name(service, group), backend) for service, backend in found)
    if not overridden:
        return found
    more = () if group else tuple(key for name in found for key in _of_groups(view, name))
    return tuple(name for name in (*found, *more) if name in view.overrides) or found


def _wait(store: FleetStore, timeout_s: float) -> int:
    """Wait for the DPUs, and print which lack the newest generation."""
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


def _show(view: FleetView, change: FleetChange, services: FleetServices) -> None:
    """Print the steps of a change, and its side effects."""
    for problem in change.unusable:
        echo(f"{problem}; its clients may move", err=True)
    for one in change.ended:
        echo(f"{one.service}/{one.backend}: the override {decimal(one.weight)} ends, the config has another weight")
    # With these, each DPU would decide for itself.
    ignored = [
        each.name
        for each in services.balancer.services
        if each.agent_check or each.notify or (each.health and each.health.probe is ProbeKind.EXEC)
    ]
    if ignored:
        echo(f"`agent_check`, `notify` and `probe: exec` have no effect in a fleet: {first_names(ignored)}")
    for group, dpus, names in _groups(view, services):
        if view.dpus and not dpus:
            echo(
                f"no DPU is in the group {group}, so none has {first_names(names)}; `xenoovs fleet set-dpu NAME "
                "--groups ...` adds one",
                err=True,
            )
    if not change.steps:
        echo("nothing to do: services and blocks are as they should be")
        return
    _show_steps(view, change.steps)
    for each in change.steps[:_ROWS_SHOWN]:
        if each.kind == "changed" and each.old_groups != each.groups:
            old, new = (", ".join(sorted(groups)) or "all DPUs" for groups in (each.old_groups, each.groups))
            echo(f"{each.name}: groups {old} -> {new}")
    if any(services.groups.values()):
        echo()
        print_table(
            ["GROUP", "DPUS", "SERVICES"],
            [[name or "all", str(dpus), str(len(names))] for name, dpus, names in _groups(view, services)],
            right=(1, 2),
        )


def _where(step: ServiceStep) -> str:
    return ", ".join(sorted(step.groups or step.old_groups)) or "all"


def _show_steps(view: FleetView, steps: Sequence[ServiceStep]) -> None:
    """Print the changes, one line per site."""
    rows = [
        [
            *(each.name, _where(each), str(sum(not groups or bool(groups & dpu.groups) for dpu in view.dpus.values()))),
            *(each.kind, str(each.blocks), "-" if each.kind != "changed" else percent(each.clients)),
        ]
        for each in steps[:_ROWS_SHOWN]
        for groups in (each.groups | each.old_groups,)
    ]
    print_table(["SERVICE", "GROUPS", "DPUS", "CHANGE", "BLOCKS", "CLIENTS MOVED"], rows, right=(2, 4, 5))
    if len(steps) > _ROWS_SHOWN:
        echo(f"... and {len(steps) - _ROWS_SHOWN} more; `fleet plan -o json` has them all")


def _groups(view: FleetView, services: FleetServices) -> list[tuple[str, int, list[str]]]:
    """Return each group that a config names, its number of DPUs, and its services; an empty name is for all."""
    found = dict[str, list[str]]()
    for service, groups in services.groups.items():
        for group in groups or {""}:
            found.setdefault(group, []).append(service)
    return [
        (group, sum(not group or group in dpu.groups for dpu in view.dpus.values()), names)
        for group, names in sorted(found.items())
    ]


def _document(view: FleetView, change: FleetChange, services: FleetServices) -> dict[str, object]:
    return {
        "services": [
            {
                "name": each.name,
                "change": each.kind,
                "blocks": each.blocks,
                "clients_moved": float(each.clients),
                "groups": sorted(each.groups),
            }
            for each in change.steps
        ],
        "groups": [
            {"name": group or None, "dpus": dpus, "services": names} for group, dpus, names in _groups(view, services)
        ],
        "ended_overrides": [f"{each.service}/{each.backend}" for each in change.ended],
        "unusable": [str(each) for each in change.unusable],
    }
