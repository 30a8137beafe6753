"""`doctor --fix`: show, ask, mend one thing after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from xenoovs.errors import SwitchError

if TYPE_CHECKING:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.verify.doctor.check import Fix


def confirm(prompt: str, *, yes: bool) -> None:
    """Ask a person. Raises click.UsageError where there is none and --yes is not given, click.Abort for no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: add --yes.")
    click.confirm(prompt, abort=True)


def run_fixes(question: Question, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
    """Run each; one that fails does not keep the others. Answers with `fix` and `error` for each."""
    from xenoovs.cli.why_witnesses import finish_leftovers
    from xenoovs.datapath.host import Unknown
    from xenoovs.switch.host import place_of
    from xenoovs.switch.mend import mend
    from xenoovs.switch.probe import Place
    from xenoovs.verify.doctor.check import PUT_BACK

    place = place_of(question.endpoint)
    done: list[dict[str, str | None]] = []
    for fix in fixes:
        error = None
        try:
            where = Place() if isinstance(place, Unknown) else place
            if fix.commands == (PUT_BACK,):
                finish_leftovers(question.endpoint)
            else:
                mend(fix.commands, endpoint=question.endpoint, place=where)
        except SwitchError as failed:
            error = str(failed)
        done.append({"fix": fix.command(question.where), "error": error})
    return done
