"""How doctor's rows look to a person: the table, then what is wrong with why and the command."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from xenoovs.cli.output import print_table, say
from xenoovs.verify.doctor.check import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xenoovs.verify.commands import Where
    from xenoovs.verify.doctor.check import Check

_COLOUR = {State.OK: "green", State.WRONG: "red", State.UNKNOWN: "yellow"}


def show_checks(checks: Iterable[Check], where: Where) -> None:
    """The table, and below it a paragraph for each row that is wrong or has a command. `where`: as in `Fix.text`."""
    rows = tuple(checks)
    print_table(["STATE", "CHECK", "OF", "SEEN"], [_cells(check) for check in rows])
    for check in rows:
        if check.state is State.WRONG or (check.state is State.UNKNOWN and check.fix and not check.fix.is_elsewhere):
            _show_paragraph(check, where)


def summary(checks: Iterable[Check]) -> str:
    """How many of each."""
    counts = Counter(check.state for check in checks)
    return ", ".join(click.style(f"{counts[state]} {state.value}", fg=_COLOUR[state]) for state in State)


def _cells(check: Check) -> list[str]:
    return [click.style(check.state.value, fg=_COLOUR[check.state]), check.name, check.subject or "", check.seen]


def _show_paragraph(check: Check, where: Where) -> None:
    about = f"{check.name} {check.subject}" if check.subject else check.name
    click.echo()
    say(f"{about}: {check.seen}", indent="  ", fg=_COLOUR[check.state])
    say(f"  why: {check.why}", indent="       ")
    if check.fix is not None:
        # Never wrapped, so that it can be copied.
        click.echo(f"  do:  {click.style(check.fix.text(where), bold=True)}")
        if check.is_safely_mended and not check.needs_restart:
            click.echo("       (--fix does it)")
