"""`xenoovs fleet stop`, `pause` and `freeze`: end or hold changes of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import click

from xenoovs.dataclass import replace
from xenoovs.display import moment
from xenoovs.errors import FleetRefused
from xenoovs.fleet.commands.client import END_FREEZE, FleetStore, changes_fleet
from xenoovs.fleet.history import MAX_COMMENT, freeze_text
from xenoovs.fleet.plan import rolling_intent
from xenoovs.store.view import Changes, FleetView, Freeze, Intent, IntentState
from xenoovs.terminal.command import user_name
from xenoovs.terminal.options import time_option
from xenoovs.terminal.output import echo

_END_PAUSE = "pause --end"
"""The action in the history."""
_WHOLE, _LONGEST_MS = "fleet", 366 * 86_400_000
_TIMES = ["%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"]


@click.command("stop")
@changes_fleet
def stop_command(*, store: FleetStore) -> None:
    """End a roll-out: DPUs that have the new config go back to the one in use."""
    # No DPU uses what is staged from then on, and the controller removes it.
    reason = f"refused: stopped by {user_name()}"
    number = _change(store, "stop", lambda intent: intent.ended(IntentState.REFUSED, reason), wave=0)
    echo(f"the roll-out of config {number} is taken back")


@click.command("pause")
@click.option("--end", is_flag=True, help="Resume the roll-out.")
@changes_fleet
def pause_command(*, end: bool, store: FleetStore) -> None:
    """Pause a roll-out, so that its next wave waits; or resume it with --end.

    DPUs of the waves so far keep the new config, and are watched: a problem that lasts still ends the roll-out. After
    the end of a pause the next wave begins after the soak time of this one, which includes the pause.
    """

    def held(intent: Intent) -> Intent:
        if intent.is_paused is not end:
            state = "not paused" if end else "paused already"
            raise FleetRefused(f"the roll-out of config {intent.number} is {state}")
        return replace(intent, is_paused=not end)

    number = _change(store, _END_PAUSE if end else "pause", held)
    if end:
        echo(f"the roll-out of config {number} goes on")
    else:
        hint = "`xenoovs fleet pause --end` goes on, `xenoovs fleet stop` takes it back"
        echo(f"the roll-out of config {number} is paused; {hint}")


def _change(store: FleetStore, action: str, changed: Callable[[Intent], Intent], *, wave: int | None = None) -> int:
    """Change the config that is rolled out, and return its number. Raises FleetRefused if there is none."""
    numbers = list[int]()

    def compute(view: FleetView) -> Changes:
        if (intent := rolling_intent(view)) is None:
            raise FleetRefused("no config is rolled out; `xenoovs fleet history` shows all of them")
        numbers.append(intent.number)
        return Changes(intents={intent.number: changed(intent)}, wave=wave)

    store.change(action, compute, in_freeze=action != _END_PAUSE)
    return numbers[-1]


@click.command("freeze")
@click.option(
    "--until", type=click.DateTime(_TIMES), metavar="TIME", help="Until this local time, such as 2026-12-01T06:00."
)
@time_option("--for", help="For this time from now, such as 12h.")
@click.option("--end", is_flag=True, help="End the freeze.")
@changes_fleet
def freeze_command(*, until: datetime | None, for_s: float | None, end: bool, store: FleetStore) -> None:
    """Freeze the fleet: until a time, commands are refused with the author of the freeze and the --comment.

    `stop` and `pause` work, and the controller goes on with health checks, slow starts and the ends of drains. Pause
    a running roll-out first.

    \b
    Example:
      xenoovs fleet freeze --for 36h --comment "sales week-end, ask ann"
    """
    if (until is not None) + (for_s is not None) + end != 1:
        raise click.UsageError("Give one of --until TIME, --for TIME and --end.")

    def compute(view: FleetView) -> Changes:
        if end:
            if not view.freezes:
                raise FleetRefused("the fleet is not frozen")
            return Changes(freezes=dict.fromkeys(view.freezes))
        if (intent := rolling_intent(view)) is not None and not intent.is_paused:
            raise FleetRefused(
                f"config {intent.number} is rolled out at present; wait for its end, or `xenoovs fleet pause` it"
            )
        store.require_clock(view, for_s)
        now_ms = store.clocks_ms(view)[-1]
        until_ms = now_ms + int((for_s or 0) * 1000) if until is None else int(time.mktime(until.timetuple())) * 1000
        if not now_ms < until_ms <= now_ms + _LONGEST_MS:
            given = until or f"for {for_s:.0f}s"
            raise click.UsageError(f"It is {moment(now_ms)} now: freeze until a time in the next year, not {given}.")
        return Changes(freezes={_WHOLE: Freeze(_WHOLE, until_ms, user_name(), store.comment[:MAX_COMMENT])})

    view = store.change(END_FREEZE if end else "freeze", compute, in_freeze=True)
    echo(freeze_text(view, now_ms=store.clocks_ms(view)[-1]) or "the fleet is frozen no longer")
