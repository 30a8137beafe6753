"""`xenoovs restart-ovs`: a planned restart of Open vSwitch after which all flows are there again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, connect, output_option, switch_options
from xenoovs.cli.output import confirm, echo, print_json
from xenoovs.errors import counted, worded

if TYPE_CHECKING:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.lab.lab import Lab
    from xenoovs.switch.endpoint import Endpoint
    from xenoovs.switch.planned_restart import PlannedRestart


# The planned restart behind `restart-ovs` and `doctor --fix --restart-ovs`: how it is ordered, done and told.


_STATE_DIRECTORY = Path("/run/xenoovs")


def restart_order(question: Question) -> Callable[[], None]:
    """How this Open vSwitch is restarted. Raises SwitchError for one that can only be restarted by its owner."""
    lab = question.lab
    if lab is not None:
        return lambda: _restart_lab(lab, question.endpoint)
    from xenoovs.switch.planned_restart import check_is_service, restart_service

    check_is_service(question.endpoint)
    return restart_service


def restart(question: Question, order: Callable[[], None]) -> PlannedRestart:
    """Restart Open vSwitch by `order`, with all flows and groups before and after. Raises SwitchError.

    When this process is killed, the restart goes on to its end: without it no ovs-vswitchd would run, or no flow.
    """
    from xenoovs.switch.guard import run_detached
    from xenoovs.switch.planned_restart import planned_restart

    # The flows are saved here until they are back on their bridges.
    directory = question.lab.directory if question.lab is not None else _STATE_DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return run_detached(lambda: planned_restart(question.switch, question.endpoint, order, directory=directory))
    except KeyboardInterrupt:
        echo("the restart is completed in the background", err=True)
        raise


def restart_facts(done: PlannedRestart) -> dict[str, object]:
    """What became of a restart, for JSON."""
    return {"gap_s": round(done.gap_s, 3), "flows": dict(done.flows), "groups": dict(done.groups)}


def restart_lines(done: PlannedRestart) -> Iterator[str]:
    """What became of a restart, for people."""
    for bridge, flows in done.flows.items():
        back = worded(flows + done.groups[bridge], "is", "are")
        groups = f" and {counted(done.groups[bridge], 'group')}" if done.groups[bridge] else ""
        yield f"{bridge}: {counted(flows, 'flow')}{groups} {back} back"
    yield f"done: {done.gap_s:.2f} s from the order to restart until all was back"


def _restart_lab(lab: Lab, endpoint: Endpoint) -> None:
    from xenoovs.lab.private_ovs import start_vswitchd_again, stop_process
    from xenoovs.switch.vswitchd import find_process

    process = find_process(endpoint)
    if process is not None:
        stop_process(process.pid)
    start_vswitchd_again(lab.ovs)


@click.command("restart-ovs")
@switch_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def restart_ovs_command(db: str | None, lab: str | None, *, yes: bool, output: Output) -> None:
    """Restart Open vSwitch and put all flows and groups back, also those of others.

    Uses Open vSwitch's own flow-restore-wait: until its flows are back the new ovs-vswitchd leaves those of the
    kernel's datapath alone, so that they go on forwarding. The restart is completed also when this command is
    killed. Rules in traffic control (hardware offload) forward on until the new ovs-vswitchd starts, which takes them
    away: packets are lost until flows and rules are back. A datapath in user space forwards nothing from the end of
    the old one until then. Meters are not kept.
    """
    from xenoovs.cli.doctor_case import Question
    from xenoovs.cli.where import where_of
    from xenoovs.lab.lab import open_lab
    from xenoovs.switch.host import check_reachable

    switch = connect(db, lab)
    check_reachable(switch.endpoint)
    where = where_of(switch.endpoint, config=None, lab=lab)
    question = Question(None, switch, open_lab(lab) if lab else None, target=where, backends=False)
    order = restart_order(question)
    confirm("Restart Open vSwitch now?", yes=yes)
    done = restart(question, order)
    if output is Output.JSON:
        print_json(restart_facts(done))
        return
    for line in restart_lines(done):
        echo(line)
