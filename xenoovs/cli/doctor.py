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
from xenoovs.verify.doctor.check import CheckState

if TYPE_CHECKING:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.switch.planned_restart import PlannedRestart
    from xenoovs.verify.commands import CommandTarget
    from xenoovs.verify.doctor.check import CheckResult, Fix


_COLOUR = {CheckState.OK: "green", CheckState.WRONG: "red", CheckState.UNKNOWN: "yellow"}


def show_checks(checks: Iterable[CheckResult], target: CommandTarget) -> None:
    """Print the table, and a paragraph for each row that is wrong or has a command for this host."""
    rows = tuple(checks)
    print_table(["STATE", "CHECK", "SUBJECT", "SEEN"], [_cells(check) for check in rows])
    for check in rows:
        if check.state is CheckState.WRONG or (
            check.state is CheckState.UNKNOWN and check.fix and not check.fix.is_remote
        ):
            _show_paragraph(check, target)


def summary(checks: Iterable[CheckResult]) -> str:
    """Return the number of rows by state."""
    counts = Counter(check.state for check in checks)
    return ", ".join(click.style(f"{counts[state]} {state.value}", fg=_COLOUR[state]) for state in CheckState)


def _cells(check: CheckResult) -> list[str]:
    return [click.style(check.state.value, fg=_COLOUR[check.state]), check.name, check.subject or "", check.seen]


def _show_paragraph(check: CheckResult, target: CommandTarget) -> None:
    about = f"{check.name} {check.subject}" if check.subject else check.name
    echo()
    print_text(f"{about}: {check.seen}", indent="  ", fg=_COLOUR[check.state])
    print_text(f"  why: {check.why}", indent="       ")
    if check.fix is not None:
        # Never wrapped, so that it can be copied.
        echo(f"  do:  {click.style(check.fix.text(target), bold=True)}")
        if check.has_safe_fix and not check.needs_restart:
            echo("       (--fix does it)")


def run_fixes(question: Question, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
    """Run all fixes, also after one that failed. Return `fix` and `error` for each."""
    from xenoovs.cli.why_evidence import finish_leftovers
    from xenoovs.datapath.host import Unknown
    from xenoovs.switch.host import place_of
    from xenoovs.switch.probe import Place, mend
    from xenoovs.verify.doctor.check import UNDO_LEFTOVERS

    place = place_of(question.endpoint)
    done: list[dict[str, str | None]] = []
    for fix in fixes:
        error = None
        try:
            where = Place() if isinstance(place, Unknown) else place
            if fix.commands == (UNDO_LEFTOVERS,):
                finish_leftovers(question.endpoint)
            else:
                mend(fix.commands, endpoint=question.endpoint, place=where)
        except SwitchError as failed:
            error = str(failed)
        done.append({"fix": fix.command(question.target), "error": error})
    return done


@click.command("doctor")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@switch_options
@click.option("--fix", is_flag=True, help="Fix what is safe: settings of Open vSwitch, hw-tc-offload, a missing qdisc.")
@click.option(
    "--restart-ovs", is_flag=True, help="With --fix: restart Open vSwitch if a row needs it, and restore all flows."
)
@click.option("--backends", is_flag=True, help="Check the backends of FILE too; with --lab in their namespaces.")
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

    With FILE its bridge, ports and flows are checked, without it every bridge of this host. Each row is ok, wrong or
    unknown (a fact could not be read), with the command that fixes it. --fix prints the commands and asks. It never
    changes foreign flows; a restart restores them too, as `xenoovs restart-ovs` does.

    Exit status 0: nothing is wrong, 2: something is, 1: it could not check, or a fix failed.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
    from xenoovs.verify.doctor.examine import has_wrong, is_running

    _check_usage(config, **options)
    question = _question(config, db=db, lab=lab, backends=options["backends"])
    checks, report = _examine(question), _Report(output, question.target)
    report.checks(checks)
    if options["fix"] and not is_running(checks):
        report.nothing_to_ask()
    elif options["fix"]:
        checks = _fix(question, checks, report=report, **options)
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
    target = where_of(switch.endpoint, config=config, lab=lab)
    return Question(balancer, switch, open_lab(lab) if lab else None, target=target, backends=backends)


def _examine(question: Question) -> tuple[CheckResult, ...]:
    from xenoovs.verify.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine

    more = BACKEND_CHECKS if question.backends else ()
    return examine(question.look(), checks=(*HOST_CHECKS, *more))


def _fix(
    question: Question, checks: tuple[CheckResult, ...], *, report: _Report, restart_ovs: bool, yes: bool, **_: bool
) -> tuple[CheckResult, ...]:
    """Run the safe fixes, check again, restart if a row still needs it, and check again."""
    from xenoovs.cli.restart_ovs import restart, restart_order
    from xenoovs.verify.doctor.examine import safe_fixes

    # If a restart is impossible, nothing is begun.
    order = restart_order(question) if restart_ovs else None
    fixes = safe_fixes(checks)
    if fixes:
        report.proposal([fix.command(question.target) for fix in fixes])
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
    """Prints text at once, and JSON at the end."""

    def __init__(self, output: Output, target: CommandTarget) -> None:
        self.text, self.target = output is Output.TEXT, target
        self.document: dict[str, Any] = {}
        self.failed = False

    def checks(self, checks: tuple[CheckResult, ...]) -> None:

        if self.text:
            show_checks(checks, self.target)

    def nothing_to_ask(self) -> None:
        if self.text:
            echo("\n--fix does nothing while Open vSwitch does not answer: fix that first")

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
                "\nA restart removes and restores all flows, foreign ones too; packets are lost meanwhile,\n"
                "mostly for less than a second (see `xenoovs restart-ovs --help`). Meters are not kept."
            )

    def no_restart(self) -> None:
        if self.text:
            echo("\nno row needs a restart of Open vSwitch, so it was not restarted")

    def restarted(self, done: PlannedRestart) -> None:
        from xenoovs.cli.restart_ovs import restart_facts, restart_lines

        self.document["restarted"] = restart_facts(done)
        if self.text:
            echo("\n".join(restart_lines(done)))

    def after(self, checks: tuple[CheckResult, ...]) -> None:
        if self.text and ("fixed" in self.document or "restarted" in self.document):
            echo("\nafter the fixes:")
            self.checks(checks)

    def end(self, checks: tuple[CheckResult, ...]) -> None:
        from xenoovs.verify.doctor.examine import to_json

        if self.text:
            echo(f"\n{summary(checks)}")
        else:
            print_json({"checks": to_json(checks, self.target), **self.document})
