"""How `xenoovs why` prints its answer for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from xenoovs.cli.output import say
from xenoovs.errors.words import counted
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.why.reason import Likelihood
from xenoovs.verify.why.report import Group, describe, group

if TYPE_CHECKING:
    from xenoovs.cli.why_witnesses import WhyFindings
    from xenoovs.verify.why.reason import Reason

_WHERE = {
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control",
    Verdict.SW: "in the software datapath",
}
_WORD = {
    Likelihood.TOLD: ("told", "red"),
    Likelihood.CERTAIN: ("certain", "red"),
    Likelihood.LIKELY: ("likely", "yellow"),
    Likelihood.POSSIBLE: ("possible", "bright_black"),
}
_LISTED = 3


def show(findings: WhyFindings, *, nothing: str) -> None:
    """Groups of megaflows with their reasons; then the notes and the sum, or `nothing` where none was asked about."""
    for found in group(findings.diagnoses):
        _show_group(found)
    for note in findings.notes:
        say(f"note: {note}", indent="      ")
    lineup = findings.lineup
    if lineup.unjudged:
        click.echo("the dump does not say where its megaflows run (it was made without -m)")
    elif lineup.suspects:
        if lineup.left_out:
            say(f"note: {lineup.left_out} more only counted: ask for some by --service or --src", indent="      ")
        suspects = len(lineup.suspects) + lineup.left_out
        text = f"{suspects} not in hardware, {lineup.in_hardware} in hardware"
        click.echo(click.style(text, fg="yellow", bold=True))
    elif lineup.in_hardware:
        click.echo(click.style(f"{counted(lineup.in_hardware, 'megaflow')}, all in hardware", fg="green", bold=True))
    else:
        say(nothing)


def _show_group(found: Group) -> None:
    count = len(found.diagnoses)
    of = f" of {', '.join(found.services)} ({_short(found.backends)})" if found.services else " of no service"
    head = f"{found.verdict.value}: {counted(count, 'megaflow')}{of}, {counted(found.packets, 'packet')}"
    say(f"{head}, {_WHERE[found.verdict]}", indent="    ", bold=True)
    for diagnosis in found.diagnoses[:_LISTED]:
        click.echo(f"    {diagnosis.megaflow.ufid or '(no ufid)'}  {describe(diagnosis)}")
    if count > _LISTED:
        click.echo(f"    and {count - _LISTED} more (all with -o json)")
    for number, reason in enumerate(found.reasons, start=1):
        _show_reason(number, reason)
    click.echo()


def _show_reason(number: int, reason: Reason) -> None:
    word, colour = _WORD[reason.likelihood]
    say(f"  {number}. {reason.text} [{click.style(word, fg=colour)}]", indent="     ")
    for seen in reason.evidence:
        say(f"       seen: {seen}", indent="             ")
    if reason.source is not None:
        say(f"       from: {reason.source}", indent="             ")
    for mending in reason.mend:
        click.echo(f"       mend: {click.style(mending, fg='cyan')}")


def _short(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest
