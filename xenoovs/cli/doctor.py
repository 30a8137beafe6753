"""`xenoovs doctor`: is this host ready, and what would make it so?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, connect, load_resolved, output_option, switch_options
from xenoovs.cli.output import confirm, echo, print_json, print_table, print_text
from xenoovs.errors import SwitchError
from xenoovs.verify.doctor.check import State

if TYPE_CHECKING:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.switch.planned_restart import PlannedRestart
    from xenoovs.verify.commands import CommandTarget
    from xenoovs.verify.doctor.check import Check, Fix


# How doctor's rows look to a person: the table, then what is wrong with why and the command.


_COLOUR = {State.OK: "green", State.WRONG: "red", State.UNKNOWN: "yellow"}


def show_checks(checks: Iterable[Check], where: CommandTarget) -> None:
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


def _show_paragraph(check: Check, where: CommandTarget) -> None:
    about = f"{check.name} {check.subject}" if check.subject else check.name
    echo()
    print_text(f"{about}: {check.seen}", indent="  ", fg=_COLOUR[check.state])
    print_text(f"  why: {check.why}", indent="       ")
    if check.fix is not None:
        # Never wrapped, so that it can be copied.
        echo(f"  do:  {click.style(check.fix.text(where), bold=True)}")
        if check.is_safely_mended and not check.needs_restart:
            echo("       (--fix does it)")


# `doctor --fix`: show, ask, mend one thing after the other.


def run_fixes(question: Question, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
    """Run each; one that fails does not keep the others. Answers with `fix` and `error` for each."""
    from xenoovs.cli.why_evidence import finish_leftovers
    from xenoovs.datapath.host import Unknown
    from xenoovs.switch.host import place_of
    from xenoovs.switch.probe import Place, mend
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


@click.command("doctor")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@switch_options
@click.option("--fix", is_flag=True, help="Do what is safe: settings of Open vSwitch, hw-tc-offload, a lost qdisc.")
@click.option(
    "--restart-ovs", is_flag=True, help="With --fix: restart Open vSwitch where that is needed, and put all flows back."
)
@click.option("--backends", is_flag=True, help="Look at the backends of FILE too; with --lab into their namespaces.")
@click.option("-y", "--yes", is_flag=True, help="With --fix: do not ask.")
@output_option
@click.pass_context
def doctor_command(
    context: click.Context,
    /,
    config: Path | None,
    *,
    db: str | None,
    lab: str | None,
    output: Output,
    **options: bool,
) -> None:
    """Check everything that hardware offload needs, from ovs-vswitchd to the NIC; changes nothing without --fix.

    With FILE its bridge, ports and flows are checked, without one every bridge of this host. Each row is ok, wrong or
    unknown (it could not be seen, and why), with the command that mends it. --fix shows what it will do and asks. Of
    flows of others it only speaks; a restart puts them back too, as `xenoovs restart-ovs` does.

    Exit status 0: nothing is wrong, 2: something is, 1: it could not look, or a fix failed.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
    from xenoovs.verify.doctor.examine import has_wrong, is_running

    _check_usage(config, **options)
    question = _question(config, db=db, lab=lab, backends=options["backends"])
    checks, report = _examine(question), _Report(output, question.where)
    report.checks(checks)
    if options["fix"] and not is_running(checks):
        report.nothing_to_ask()
    elif options["fix"]:
        checks = _mend(question, checks, report=report, **options)
    report.end(checks)
    status = EXIT_DIFFERS if has_wrong(checks) else EXIT_OK
    context.exit(EXIT_FAILED if report.failed else status)


def _check_usage(config: Path | None, *, fix: bool, restart_ovs: bool, backends: bool, yes: bool) -> None:
    if restart_ovs and not fix:
        raise click.UsageError("--restart-ovs is a part of --fix: give both.")
    if yes and not fix:
        raise click.UsageError("--yes goes with --fix.")
    if backends and config is None:
        raise click.UsageError("--backends needs FILE, which names them.")


def _question(config: Path | None, *, db: str | None, lab: str | None, backends: bool) -> Question:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.cli.where import where_of
    from xenoovs.lab.lab import open_lab
    from xenoovs.switch.host import check_reachable

    balancer = None if config is None else load_resolved(config)
    switch = connect(db, lab)
    check_reachable(switch.endpoint)
    where = where_of(switch.endpoint, config=config, lab=lab)
    return Question(balancer, switch, open_lab(lab) if lab else None, where=where, backends=backends)


def _examine(question: Question) -> tuple[Check, ...]:
    from xenoovs.verify.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine

    more = BACKEND_CHECKS if question.backends else ()
    return examine(question.look(), checks=(*HOST_CHECKS, *more))


def _mend(
    question: Question, checks: tuple[Check, ...], *, report: _Report, restart_ovs: bool, yes: bool, **_: bool
) -> tuple[Check, ...]:
    """Safe fixes, a second look, the restart where it is still needed, a third look."""
    from xenoovs.cli.restart_ovs import restart, restart_order
    from xenoovs.verify.doctor.examine import safe_fixes

    # Asked first: where a restart is impossible, nothing is begun.
    order = restart_order(question) if restart_ovs else None
    fixes = safe_fixes(checks)
    if fixes:
        report.proposal([fix.command(question.where) for fix in fixes])
        confirm("Do this?", yes=yes)
        report.fixed(run_fixes(question, fixes))
        checks = _examine(question)
    needed = any(check.needs_restart for check in checks)
    if order is not None and needed:
        report.restart_warning()
        confirm("Restart Open vSwitch now?", yes=yes)
        report.restarted(restart(question, order))
        checks = _examine(question)
    elif order is not None:
        report.no_restart()
    report.after(checks)
    return checks


class _Report:
    """Prints as it goes, for people; at the end, for programs."""

    def __init__(self, output: Output, where: CommandTarget) -> None:
        self.text, self.where = output is Output.TEXT, where
        self.document: dict[str, Any] = {}
        self.failed = False

    def checks(self, checks: tuple[Check, ...]) -> None:

        if self.text:
            show_checks(checks, self.where)

    def nothing_to_ask(self) -> None:
        if self.text:
            echo("\n--fix does nothing while Open vSwitch does not answer: mend that first")

    def proposal(self, commands: list[str]) -> None:
        if self.text:
            echo("\nsafe to do now:\n" + "".join(f"  {command}\n" for command in commands), nl=False)

    def fixed(self, done: list[dict[str, str | None]]) -> None:
        self.document["fixed"] = done
        self.failed = any(row["error"] for row in done)
        for row in done:
            state = click.style("failed", fg="red") if row["error"] else click.style("done", fg="green")
            if self.text:
                echo(f"{state}: {row['fix']}" + (f": {row['error']}" if row["error"] else ""))

    def restart_warning(self) -> None:
        if self.text:
            echo(
                "\nA restart takes all flows away and puts them back, also those of others; packets are lost\n"
                "meanwhile, mostly for less than a second (see `xenoovs restart-ovs --help`). Meters are not kept."
            )

    def no_restart(self) -> None:
        if self.text:
            echo("\nno row needs a restart of Open vSwitch, so it was not restarted")

    def restarted(self, done: PlannedRestart) -> None:
        from xenoovs.cli.restart_ovs import restart_facts, restart_lines

        self.document["restarted"] = restart_facts(done)
        if self.text:
            echo("\n".join(restart_lines(done)))

    def after(self, checks: tuple[Check, ...]) -> None:
        if self.text and ("fixed" in self.document or "restarted" in self.document):
            echo("\nlooked again:")
            self.checks(checks)

    def end(self, checks: tuple[Check, ...]) -> None:
        from xenoovs.verify.doctor.examine import to_json

        if self.text:
            echo(f"\n{summary(checks)}")
        else:
            print_json({"checks": to_json(checks, self.where), **self.document})
