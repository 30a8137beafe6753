"""`xenoovs doctor`: checks whether this host is ready for hardware offload, and fixes what is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.dataclass import replace
from xenoovs.diagnosis.host import Question
from xenoovs.display import span
from xenoovs.errors import counted, worded
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.judge.doctor.check import CheckResult, CheckState
from xenoovs.judge.doctor.examine import has_wrong, is_running, safe_fixes, to_json
from xenoovs.switch.endpoint import require_answers
from xenoovs.switch.host_facts import check_reachable
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.terminal.defaults import environment_config, find_config, labs, option
from xenoovs.terminal.load import load, resolved
from xenoovs.terminal.options import optional_config_argument, output_option, record_option, switch_options
from xenoovs.terminal.output import answer, confirm, echo, is_text, print_json, print_table, print_text
from xenoovs.terminal.reach import connect, where_of

if TYPE_CHECKING:
    from xenoovs.switch.planned_restart import PlannedRestart

_COLOUR = {CheckState.OK: "green", CheckState.WRONG: "red", CheckState.UNKNOWN: "yellow"}


@click.command("doctor")
@optional_config_argument
@switch_options
@record_option("fix", "restart_ovs", "backends", "setting")
@click.option("--fix", is_flag=True, help="Apply safe fixes: settings of Open vSwitch, hw-tc-offload, a missing qdisc.")
@click.option(
    "--restart-ovs",
    is_flag=True,
    help="Restart Open vSwitch and restore all flows and groups, foreign too; with --fix only if a check needs it.",
)
@click.option("--backends", is_flag=True, help="Check the backends of FILE too; with --lab in their namespaces.")
@click.option(
    "--set",
    "setting",
    type=click.Choice(["offload=on", "offload=off"]),
    help="Turn offload on or off in the whole Open vSwitch, to compare both: set hw-offload, restart it as "
    "--restart-ovs does, and check the effect.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a change.")
@output_option
def doctor_command(
    config: Path | None,
    *,
    fix: bool,
    restart_ovs: bool,
    backends: bool,
    setting: str | None,
    yes: bool,
) -> int:
    """Check everything that hardware offload needs, from ovs-vswitchd to the NIC; change nothing without an option.

    With FILE, its bridge, ports and flows are checked; without, every bridge of this host. Each row is ok, wrong or
    unknown (it could not be checked, with the reason), with the command that fixes it. --fix shows what it will do, and
    asks for confirmation. Foreign flows are only reported; a restart restores them too.

    --restart-ovs alone checks nothing. It uses Open vSwitch's own flow-restore-wait: until its flows are back, the new
    ovs-vswitchd leaves those of the kernel's datapath alone, so that they go on forwarding. Rules in traffic control
    (hardware offload) forward until the new ovs-vswitchd starts, which deletes them: packets are lost until flows and
    rules are back. A datapath in user space forwards nothing from the end of the old ovs-vswitchd until then. Meters
    are not restored. Bridges of OVN are left to ovn-controller. It is completed also if this command is killed.

    --set asks too, and refuses if a restart could lose more than some packets. If it is interrupted or killed, the
    restart is completed.

    Exit status 0: nothing is wrong, 2: something is, 1: it could not check, or a fix failed. With --set, 0: offload is
    as it was set, 1: it is not, or the change was refused.
    """
    if setting and (fix or backends or restart_ovs):
        raise click.UsageError("--set excludes --fix, --backends and --restart-ovs: run doctor again for those.")
    is_restart = restart_ovs and not fix
    if is_restart and (config or backends):
        raise click.UsageError("--restart-ovs without --fix checks nothing: leave FILE and --backends out.")
    if yes and not (fix or setting or restart_ovs):
        raise click.UsageError("--yes goes with --fix, --set or --restart-ovs.")
    if not is_restart:
        config = config or (find_config() if backends else environment_config())
    balancer, switch = None if config is None else load(config, of_dpu=True), connect()
    check_reachable(switch.endpoint)
    place = labs().open_lab(lab) if (lab := option("lab")) else None
    target = where_of(switch.endpoint, config)
    question = Question(balancer, switch, place, target=target, backends=backends)
    if is_restart:
        order = question.restart_order()
        confirm("Restart Open vSwitch now?", yes=yes)
        document = _restart(lambda: question.restart(order))
    elif setting:
        document = _set_offload(question, wanted=setting == "offload=on", yes=yes)
    if is_restart or setting:
        answer(lambda: document, lambda: None)
        return EXIT_OK
    if balancer is not None:
        question = replace(question, balancer=resolved(balancer))
    return _check(question, fix=fix, restart_ovs=restart_ovs, yes=yes)


def _say(text: str) -> None:
    if is_text():
        echo(text)


def _check(question: Question, *, fix: bool, restart_ovs: bool, yes: bool) -> int:
    """Print the checks of one bridge or of the host, and apply the fixes. Return the exit status."""
    target = question.target
    checks, document = question.examine(), dict[str, Any]()
    if is_text():
        _show_checks(checks, target)
    if fix and not is_running(checks):
        _say("\n--fix does nothing while Open vSwitch does not answer: fix that first")
    elif fix:
        document = _fix(question, checks, restart_ovs=restart_ovs, yes=yes)
        checks = document.pop("checks")
        if document and is_text():
            echo("\nafter the fixes:")
            _show_checks(checks, target)
    if is_text():
        counts = Counter(check.state for check in checks)
        echo("\n" + ", ".join(click.style(f"{counts[state]} {state.value}", fg=_COLOUR[state]) for state in CheckState))
    else:
        print_json({"checks": to_json(checks, target), **document})
    has_failed = any(row["error"] for row in document.get("fixed", ()))
    return EXIT_FAILED if has_failed else EXIT_DIFFERS if has_wrong(checks) else EXIT_OK


def _fix(question: Question, checks: tuple[CheckResult, ...], *, restart_ovs: bool, yes: bool) -> dict[str, Any]:
    """Apply safe fixes, check again, restart if it is still needed; return the results and the last `checks`."""
    from xenoovs.switch.planned_restart import RESTART_WARNING

    document: dict[str, Any] = {}
    # First of all, so that nothing is changed if a restart is impossible.
    order = question.restart_order() if restart_ovs else None
    if fixes := safe_fixes(checks):
        _say("\nsafe to do now:\n" + "\n".join(f"  {each.command(question.target)}" for each in fixes))
        confirm("Do this?", yes=yes)
        document["fixed"] = question.run_fixes(fixes)
        for row in document["fixed"]:
            state = click.style("failed", fg="red") if row["error"] else click.style("done", fg="green")
            _say(f"{state}: {row['fix']}" + (f": {row['error']}" if row["error"] else ""))
        checks = question.examine()
    if order is not None and any(check.needs_restart for check in checks):
        _say(f"\n{RESTART_WARNING}")
        confirm("Restart Open vSwitch now?", yes=yes)
        document["restarted"] = _restart(lambda: question.restart(order))
        checks = question.examine()
    elif order is not None:
        _say("\nno check needs a restart of Open vSwitch, so it was not restarted")
    return {**document, "checks": checks}


def _set_offload(question: Question, *, wanted: bool, yes: bool) -> dict[str, Any]:
    """Turn offload on or off and check that it is in effect. Raises SwitchError."""
    from xenoovs.evidence.collector import finish_leftovers
    from xenoovs.switch.offload_setting import OffloadSwitch
    from xenoovs.switch.planned_restart import RESTART_WARNING

    word, setting = "on" if wanted else "off", OffloadSwitch(question.endpoint)
    require_answers(question.endpoint)
    for message in finish_leftovers(question.endpoint):
        _say(message)
    if setting.is_as(wanted=wanted):
        _say(f"offload is {word} already: set, and in effect")
        return {"offload": word, "restarted": None}
    # First of all, so that nothing is changed if a restart is impossible.
    order = question.restart_order()
    setting.require_safe(wanted=wanted)
    value = "true" if wanted else "false"
    _say(f"This sets other_config:hw-offload={value} and restarts Open vSwitch.\n{RESTART_WARNING}")
    confirm(f"Turn offload {word} now?", yes=yes)

    def restart(set_it: Callable[[], None]) -> PlannedRestart:
        def set_and_restart() -> None:
            set_it()
            order()

        return question.restart(set_and_restart)

    done = _restart(lambda: setting.change(wanted=wanted, restart=restart))
    _say(click.style(f"offload is {word}: set, and in effect since the restart", fg="green"))
    return {"offload": word, "restarted": done}


def _restart(work: Callable[[], PlannedRestart]) -> dict[str, Any]:
    """Restart in a process that completes it even if this one is killed: otherwise ovs-vswitchd or its flows would be
    missing. Print and return the result."""
    from xenoovs.switch.watchdog import run_detached

    try:
        done = run_detached(work)
    except KeyboardInterrupt:
        echo("the restart is completed in the background", err=True)
        raise
    _say("\n".join(restart_lines(done)))
    return restart_document(done)


def restart_document(done: PlannedRestart) -> dict[str, object]:
    counts = {"flows": dict(done.flows), "groups": dict(done.groups)}
    return {"gap_s": round(done.gap_s, 3), **counts, "left_to_ovn": list(done.of_ovn)}


def restart_lines(done: PlannedRestart) -> Iterator[str]:
    for bridge, flows in done.flows.items():
        back = worded(flows + done.groups[bridge], "is", "are")
        groups = f" and {counted(done.groups[bridge], 'group')}" if done.groups[bridge] else ""
        yield f"{bridge}: {counted(flows, 'flow')}{groups} {back} back"
    for bridge in done.of_ovn:
        yield f"{bridge}: left to ovn-controller, which installs its flows again"
    yield f"done: {span(done.gap_s)} from the order to restart until all was back"


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
