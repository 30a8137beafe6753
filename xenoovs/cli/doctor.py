"""`xenoovs doctor`: is this host ready for hardware offload, and what would make it so?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from xenoovs.cli.doctor_case import Question
from xenoovs.datapath.fact import Unknown
from xenoovs.errors import FileUnusable, SwitchError
from xenoovs.evidence.target import CommandTarget
from xenoovs.judge.doctor.check import UNDO_LEFTOVERS, WRITE_KEYS, CheckResult, CheckState, Fix
from xenoovs.judge.doctor.examine import (
    BACKEND_CHECKS,
    HOST_CHECKS,
    examine,
    has_wrong,
    is_running,
    safe_fixes,
    to_json,
)
from xenoovs.switch.endpoint import require_answers
from xenoovs.switch.host_facts import check_reachable
from xenoovs.switch.netns import Netns, run_changes
from xenoovs.switch.vswitchd import netns_of
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.terminal.defaults import environment_config, find_config
from xenoovs.terminal.labs import labs
from xenoovs.terminal.load import load, resolved
from xenoovs.terminal.options import (
    OutputFormat,
    optional_config_argument,
    output_option,
    switch_options,
)
from xenoovs.terminal.output import confirm, echo, print_json, print_table, print_text
from xenoovs.terminal.reach import connect, where_of

_COLOUR = {CheckState.OK: "green", CheckState.WRONG: "red", CheckState.UNKNOWN: "yellow"}


@click.command("doctor")
@optional_config_argument
@switch_options
@click.option("--fix", is_flag=True, help="Apply safe fixes: settings of Open vSwitch, hw-tc-offload, a missing qdisc.")
@click.option(
    "--restart-ovs", is_flag=True, help="With --fix: restart Open vSwitch if a check needs it, and restore all flows."
)
@click.option("--backends", is_flag=True, help="Check the backends of FILE too; with --lab in their namespaces.")
@click.option(
    "--set",
    "setting",
    type=click.Choice(["offload=on", "offload=off"]),
    help="Turn offload on or off in the whole Open vSwitch, to compare both: set hw-offload, restart it as `xenoovs "
    "restart-ovs` does, and check the effect.",
)
@click.option("-y", "--yes", is_flag=True, help="With --fix or --set: do not ask for confirmation.")
@output_option
@click.pass_context
def doctor_command(
    context: click.Context,
    /,
    config: Path | None,
    *,
    db: str | None,
    lab: str | None,
    fix: bool,
    restart_ovs: bool,
    backends: bool,
    setting: str | None,
    yes: bool,
    output: OutputFormat,
) -> None:
    """Check everything that hardware offload needs, from ovs-vswitchd to the NIC; change nothing without an option.

    With FILE, its bridge, ports and flows are checked; without, every bridge of this host. Each row is ok, wrong or
    unknown (it could not be checked, with the reason), with the command that fixes it. --fix shows what it will do, and
    asks for confirmation. Foreign flows are only reported; a restart restores them too, as `xenoovs restart-ovs` does.

    --set asks too, and refuses where a restart could lose more than some packets. If it is interrupted or killed, the
    restart is completed.

    Exit status 0: nothing is wrong, 2: something is, 1: it could not check, or a fix failed. With --set, 0: offload is
    as it was set, 1: it is not, or the change was refused.
    """
    if restart_ovs and not fix:
        raise click.UsageError("--restart-ovs is a part of --fix: add --fix.")
    if setting and (fix or backends):
        raise click.UsageError("--set excludes --fix and --backends: run doctor again for those.")
    if yes and not (fix or setting):
        raise click.UsageError("--yes goes with --fix or --set.")
    config = config or (find_config(lab) if backends else environment_config())
    balancer, switch = None if config is None else load(config, of_dpu=True), connect(db, lab)
    check_reachable(switch.endpoint)
    place = labs().target_of(lab) if lab else None
    show: Callable[[str], None] = echo if output is OutputFormat.TEXT else lambda _text: None

    target = where_of(switch.endpoint, config=config, lab=lab)
    if setting:
        # It is about the whole Open vSwitch, whatever is in the config.
        question = Question(None, switch, place, target=target, backends=False)
        document = _set_offload(question, show, wanted=setting == "offload=on", yes=yes)
        output.show(lambda: document, lambda: None)
        return
    found = None if balancer is None else resolved(balancer)
    question = Question(found, switch, place, target=target, backends=backends)
    context.exit(_check(question, show, output, fix=fix, restart_ovs=restart_ovs, yes=yes))


def _check(
    question: Question,
    show: Callable[[str], None],
    output: OutputFormat,
    *,
    fix: bool,
    restart_ovs: bool,
    yes: bool,
) -> int:
    """Print the checks of one bridge or of the host, and apply the fixes. Return the exit status."""
    target = question.target
    checks, document = _examine(question), dict[str, Any]()
    if output is OutputFormat.TEXT:
        _show_checks(checks, target)
    if fix and not is_running(checks):
        show("\n--fix does nothing while Open vSwitch does not answer: fix that first")
    elif fix:
        document = _fix(question, checks, show, restart_ovs=restart_ovs, yes=yes)
        checks = document.pop("checks")
        if document and output is OutputFormat.TEXT:
            echo("\nafter the fixes:")
            _show_checks(checks, target)
    if output is OutputFormat.TEXT:
        counts = Counter(check.state for check in checks)
        echo("\n" + ", ".join(click.style(f"{counts[state]} {state.value}", fg=_COLOUR[state]) for state in CheckState))
    else:
        print_json({"checks": to_json(checks, target), **document})
    has_failed = any(row["error"] for row in document.get("fixed", ()))
    return EXIT_FAILED if has_failed else EXIT_DIFFERS if has_wrong(checks) else EXIT_OK


def _examine(question: Question) -> tuple[CheckResult, ...]:
    more = BACKEND_CHECKS if question.backends else ()
    return examine(question.read(), checks=(*HOST_CHECKS, *more))


def _fix(
    question: Question, checks: tuple[CheckResult, ...], show: Callable[[str], None], *, restart_ovs: bool, yes: bool
) -> dict[str, Any]:
    """Apply safe fixes, check again, restart if it is still needed; return the results and the last `checks`."""
    from xenoovs.cli.restart_ovs import restart, restart_document, restart_lines, restart_order
    from xenoovs.switch.planned_restart import RESTART_WARNING

    document: dict[str, Any] = {}
    # First of all, as nothing is begun if a restart is impossible.
    order = restart_order(question.endpoint, question.lab) if restart_ovs else None
    if fixes := safe_fixes(checks):
        show("\nsafe to do now:\n" + "\n".join(f"  {each.command(question.target)}" for each in fixes))
        confirm("Do this?", yes=yes)
        document["fixed"] = _run_fixes(question, fixes)
        for row in document["fixed"]:
            state = click.style("failed", fg="red") if row["error"] else click.style("done", fg="green")
            show(f"{state}: {row['fix']}" + (f": {row['error']}" if row["error"] else ""))
        checks = _examine(question)
    if order is not None and any(check.needs_restart for check in checks):
        show(f"\n{RESTART_WARNING}")
        confirm("Restart Open vSwitch now?", yes=yes)
        done = restart(question.switch, question.lab, order)
        document["restarted"] = restart_document(done)
        show("\n".join(restart_lines(done)))
        checks = _examine(question)
    elif order is not None:
        show("\nno check needs a restart of Open vSwitch, so it was not restarted")
    return {**document, "checks": checks}


def _set_offload(question: Question, show: Callable[[str], None], *, wanted: bool, yes: bool) -> dict[str, Any]:
    """Turn offload on or off and check that it is in effect. Raises SwitchError."""
    from xenoovs.cli.restart_ovs import restart_document, restart_lines, restart_order, set_offload
    from xenoovs.evidence.collector import finish_leftovers
    from xenoovs.switch.offload_setting import OffloadSwitch
    from xenoovs.switch.planned_restart import RESTART_WARNING

    word, setting = "on" if wanted else "off", OffloadSwitch(question.endpoint)
    require_answers(question.endpoint)
    for message in finish_leftovers(question.endpoint):
        show(message)
    if setting.is_as(wanted=wanted):
        show(f"offload is {word} already: set, and in effect")
        return {"offload": word, "restarted": None}
    # First of all, as nothing is begun if a restart is impossible.
    order = restart_order(question.endpoint, question.lab)
    setting.require_safe(wanted=wanted)
    value = "true" if wanted else "false"
    show(f"This sets other_config:hw-offload={value} and restarts Open vSwitch.\n{RESTART_WARNING}")
    confirm(f"Turn offload {word} now?", yes=yes)
    done = set_offload(question.switch, question.lab, order, wanted=wanted)
    show("\n".join(restart_lines(done)))
    show(click.style(f"offload is {word}: set, and in effect since the restart", fg="green"))
    return {"offload": word, "restarted": restart_document(done)}


def _run_fixes(question: Question, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
    """Run each fix, also after one that fails. Returns `fix` and `error` of each."""
    from xenoovs.cli.ipsec import write_keys
    from xenoovs.evidence.collector import finish_leftovers

    place = netns_of(question.endpoint)
    done: list[dict[str, str | None]] = []
    for fix in fixes:
        error = None
        try:
            if fix.commands == (UNDO_LEFTOVERS,):
                finish_leftovers(question.endpoint)
            elif fix.commands == (WRITE_KEYS,) and question.balancer is not None:
                write_keys(question.balancer, question.endpoint)
            else:
                where = Netns() if isinstance(place, Unknown) else place
                run_changes(fix.commands, endpoint=question.endpoint, place=where)
        except (SwitchError, FileUnusable) as failed:
            error = str(failed)
        done.append({"fix": fix.command(question.target), "error": error})
    return done


def _show_checks(checks: tuple[CheckResult, ...], target: CommandTarget) -> None:
    """Print the table, and below it a paragraph for each check that is wrong or has a command."""
    rows = [
        [click.style(each.state.value, fg=_COLOUR[each.state]), each.name, each.subject or "", each.seen]
        for each in checks
    ]
    print_table(["STATE", "CHECK", "SUBJECT", "SEEN"], rows)
    for check in checks:
        fix = check.fix
        if check.state is not CheckState.WRONG and (check.state is CheckState.OK or fix is None or fix.is_remote):
            continue
        about = f"{check.name} {check.subject}" if check.subject else check.name
        echo()
        print_text(f"{about}: {check.seen}", indent="  ", fg=_COLOUR[check.state])
        print_text(f"  why: {check.why}", indent="       ")
        if fix is not None:
            # Never wrapped, so that it can be copied.
            echo(f"  fix: {click.style(fix.text(target), bold=True)}")
            if check.has_safe_fix and not check.needs_restart:
                echo("       (--fix does it)")
