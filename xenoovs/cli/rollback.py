"""`xenoovs apply --rollback`: go back to what was applied earlier, with the same clients at the same backends."""

from __future__ import annotations

from contextlib import suppress

import click

from xenoovs.cli.apply import ApplyOptions, Words, Work
from xenoovs.cli.history import History, find_history, is_installed
from xenoovs.errors import XenoovsError
from xenoovs.switch.api import Switch
from xenoovs.terminal.agent_client import Where, find_places
from xenoovs.terminal.options import OutputFormat
from xenoovs.terminal.output import echo
from xenoovs.terminal.reach import reach


def roll_back(
    number: int | None,
    *,
    bridge: str | None,
    db: str | None,
    lab: str | None,
    partial: bool,
    no_drain: bool,
    how: ApplyOptions,
    output: OutputFormat,
) -> None:
    """Go back to what an earlier `apply` installed on a bridge: every client gets the backend that it had then.

    `number`: that of the entry; None: the newest one that differs from what the bridge has. `bridge`: None: the only
    one that has a history.
    """
    history = find_history(bridge=bridge, db=db, lab=lab)
    number = _previous(history, reach(db, lab)) if number is None else number
    entry = history.load(number)
    options = entry.options(drain=not no_drain, partial=partial)
    work = Work.planned(entry.balancer(), options, db=db, lab=lab)

    def introduce() -> None:
        echo(f"rollback to {number}: {entry.command}, {entry.local_time}, {entry.user}")
        _show_overrides(work.where, history.bridge)

    instead = f"write the config of `xenoovs history {number}` to the file of the agent, or stop the agent first"
    words = Words(f"rollback {number}", entry.config.file, f"xenoovs apply --rollback {number}", instead)
    work.carry_out(how, output, words, introduce=introduce, facts={"rollback_to": number})


def _previous(history: History, switch: Switch) -> int:
    """Return the number of the newest entry that the bridge does not have.

    Raises click.UsageError: there is none; XenoovsError, OSError: the newest cannot be read, the hint names the next.
    """
    damaged: XenoovsError | OSError | None = None
    for number in reversed(history.numbers):
        try:
            entry = history.load(number)
        except (XenoovsError, OSError) as problem:
            damaged = damaged or problem
            continue
        if is_installed(switch, entry):
            continue
        if damaged is None:
            return number
        raise _naming(damaged, f"`xenoovs apply --rollback {number}` goes back to {number}, the newest other entry")
    if damaged is not None:
        raise _naming(damaged, "no other entry can be gone back to; `xenoovs history` lists them")
    if not history.numbers:
        raise click.UsageError(f"Bridge {history.bridge} has no history to go back to; `xenoovs apply` begins it.")
    raise click.UsageError(
        f"The history of bridge {history.bridge} has nothing else to go back to (`xenoovs history`); `xenoovs remove` "
        "removes all flows."
    )


def _naming(problem: XenoovsError | OSError, hint: str) -> XenoovsError | OSError:
    """Return the problem with a hint, where it can have one."""
    if isinstance(problem, XenoovsError):
        problem.hint = hint
    return problem


def _show_overrides(where: Where, bridge: str) -> None:
    """Print which drains, weights and maintenance of operators an agent will set again."""
    from xenoovs.agent.runtime_file import parse_runtime

    with suppress(OSError, ValueError):
        overrides = parse_runtime(find_places(where).runtime(bridge).read_bytes()).overrides
        names = ", ".join(f"{each.service}/{each.backend} {each.state}" for each in overrides)
        if names:
            echo(f"note: an agent that starts sets again what operators have set: {names}", err=True)
