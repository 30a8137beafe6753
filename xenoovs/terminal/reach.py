"""The Open vSwitch of a command, the files of its agents, and the options by which suggested commands name it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.errors import LabError, SwitchError, XenoovsError
from xenoovs.switch.endpoint import DEFAULT_RUNDIR, Endpoint, find_endpoint, require_answers
from xenoovs.switch.tape import passing_through, real_path
from xenoovs.terminal.defaults import is_forwarded, labs, option

if TYPE_CHECKING:
    from xenoovs.agent.control.files import AgentPaths
    from xenoovs.evidence.archive import Record
    from xenoovs.evidence.command_target import CommandTarget
    from xenoovs.switch.management import ManagementSwitch

_RECORDED = "xenoovs.record"
_OF_FLEET = "xenoovs.file_of_fleet_dpu"


def name_fleet() -> None:
    """Suggest only commands that take the file of a DPU of a fleet."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_OF_FLEET] = True


def open_record(file: Path) -> Record:
    """Return a record, and print which answers it lacks. Raises OSError, FileUnusable."""
    from xenoovs.evidence.archive import read_record
    from xenoovs.terminal.output import echo

    record = read_record(file)
    for each in record.cut:
        echo(f"note: {file} is not whole: {each}", err=True)
    return record


def replay(context: click.Context, _parameter: click.Parameter, file: Path | None) -> None:
    """Answer all questions of the command from a record. Raises OSError, FileUnusable."""
    if file is None or context.resilient_parsing:
        return
    # Imported here: few commands are about a record.
    from xenoovs.evidence.archive import Replay

    record = open_record(file)
    context.with_resource(passing_through(Replay(record)))
    context.meta[_RECORDED] = file, record


def replayed() -> tuple[Path, Record] | None:
    """Return the record of --record, with its file; None without that option."""
    found: tuple[Path, Record] | None = click.get_current_context().meta.get(_RECORDED)
    return found


def endpoint() -> Endpoint:
    """Return the endpoint of the Open vSwitch of the command. Raises what `endpoint_of` raises."""
    return endpoint_of(option("db"), option("lab"))


def endpoint_of(db: str | None, lab: str | None) -> Endpoint:
    """Return the endpoint of the Open vSwitch of the options. Raises click.UsageError, LabError, SwitchError."""
    if db and lab:
        raise click.UsageError("--db and --lab exclude each other.")
    context = click.get_current_context(silent=True)
    if context is not None and _RECORDED in context.meta:
        endpoint: Endpoint = context.meta[_RECORDED][1].endpoint
        return endpoint
    return labs().open_lab(lab).endpoint if lab else find_endpoint(db=db, env=os.environ)


def find_places(at: Endpoint | None = None) -> AgentPaths:
    """Return the places of the files of an Open vSwitch's agents; without one, of that of the command. Raises what
    `endpoint` raises, and ListenError."""
    from xenoovs.agent.control.files import agent_paths

    return agent_paths(at or endpoint(), env=os.environ, is_root=os.geteuid() == 0)


def connect() -> ManagementSwitch:
    """Return the Open vSwitch of the command. Raises what `endpoint` raises."""
    from xenoovs.switch.management import ManagementSwitch

    return ManagementSwitch(endpoint())


def target_options(db: str | None, lab: str | None) -> str:
    """Return --db or --lab for a command, after a space; empty for the Open vSwitch of the host."""
    given = ("--lab", lab) if lab else ("--db", db) if db else ()
    return "".join(f" {shlex.quote(str(word))}" for word in given)


def reach() -> ManagementSwitch:
    """Connect to an Open vSwitch that answers. Raises what `connect` raises, and SwitchUnresponsive after some
    seconds."""
    switch = connect()
    require_answers(switch.endpoint)
    return switch


def where_of(endpoint: Endpoint, config: Path | None = None) -> CommandTarget:
    """Return the words by which a suggested command names this Open vSwitch and the config."""
    from xenoovs.evidence.command_target import CommandTarget
    from xenoovs.switch.vswitchd import place_of

    file, lab = None if config is None or str(config) == "-" else str(config), option("lab")
    context = click.get_current_context(silent=True)
    is_of_fleet = context is not None and context.meta.get(_OF_FLEET, False)
    rundir, enter = endpoint.rundir, tuple(place_of(endpoint).argv())
    if rundir is not None and real_path(rundir) == real_path(DEFAULT_RUNDIR) and not endpoint.is_split:
        return CommandTarget(config=file, enter=enter, is_of_fleet=is_of_fleet)
    return CommandTarget(
        db=endpoint.db,
        rundir=None if rundir is None else str(rundir),
        options=("--lab", lab) if lab else ("--db", endpoint.db),
        enter=enter,
        config=file,
        machine=("xenoovs", "lab", "exec", "--lab", lab, "--") if lab and is_forwarded() else (),
        is_of_fleet=is_of_fleet,
    )


def address_commands(error: XenoovsError, config: Path | None) -> None:
    """Complete the commands in the text and the hint of an error for the Open vSwitch of the command."""
    if not error.commands:
        return
    try:
        target = where_of(endpoint(), config)
    except (SwitchError, LabError):
        # The error is about the same problem.
        return
    error.args = (target.message(str(error), error.commands),)
    error.hint = target.message(error.hint, error.commands)
