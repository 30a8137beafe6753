"""`doctor --fix`: show, ask, mend one thing after the other; and the restart that keeps our flows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.errors import SwitchError

if TYPE_CHECKING:
    from xenoovs.cli.doctor_case import Question
    from xenoovs.lab.lab import Lab
    from xenoovs.switch.endpoint import Endpoint
    from xenoovs.verify.doctor.check import Fix

_STATE_DIRECTORY = Path("/run/xenoovs")


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


def foreign_flows_lost(question: Question) -> dict[str, int]:
    """Bridge -> flows of others, which a restart takes away; bridges without any are left out. Raises SwitchError."""
    switch = question.switch
    counts = {state.name: switch.count_foreign_flows(state.name) for state in switch.bridges()}
    return {bridge: count for bridge, count in counts.items() if count}


def restart(question: Question, order: Callable[[], None]) -> dict[str, object]:
    """Restart Open vSwitch by `order` and put our flows back. Raises SwitchError."""
    from xenoovs.switch.restart import restart_with_flows

    done = restart_with_flows(question.switch, order, directory=restart_directory(question))
    return {"gap_s": round(done.gap_s, 3), "flows": dict(done.flows)}


def restart_directory(question: Question) -> Path:
    """Where flows lie while they are not on their bridges."""
    directory = question.lab.directory if question.lab is not None else _STATE_DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def restart_order(question: Question) -> Callable[[], None]:
    """How this Open vSwitch is restarted. Raises SwitchError for one that can only be restarted by its owner."""
    lab = question.lab
    if lab is not None:
        return lambda: _restart_lab(lab, question.endpoint)
    from xenoovs.switch.service import check_is_service, restart_service

    check_is_service(question.endpoint)
    return restart_service


def _restart_lab(lab: Lab, endpoint: Endpoint) -> None:
    from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
    from xenoovs.switch.vswitchd import find_process

    process = find_process(endpoint)
    if process is not None:
        stop_process(process.pid)
    start_vswitchd(lab.ovs, datapath=Datapath.USERSPACE, netns=lab.topology.switch_namespace)
