"""`xenoovs history`: what commands have applied to a bridge, and when."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from xenoovs.engine.history import History, histories
from xenoovs.errors import ListenError, XenoovsError
from xenoovs.terminal.command import EXIT_OK
from xenoovs.terminal.completion import choose_lab, offering
from xenoovs.terminal.defaults import option
from xenoovs.terminal.load import answer_each, resolved
from xenoovs.terminal.options import EntryNumber, output_option, switch_options
from xenoovs.terminal.output import answer, echo, is_text, print_json, print_table, print_text
from xenoovs.terminal.reach import find_places, reach, target_options

if TYPE_CHECKING:
    from xenoovs.engine.saved import HistoryEntry
    from xenoovs.switch.api import Switch


def history_of(bridge: str) -> History | None:
    """Return the history of a bridge; None if there is no directory for it."""
    try:
        return History(bridge, find_places().history(bridge))
    except ListenError:
        return None


def find_history(bridge: str | None) -> History:
    """Return the history of a bridge; without a name, that of the only bridge with a history. Raises click.UsageError,
    LabError, ListenError."""
    places = find_places()
    if bridge is not None:
        return History(bridge, places.history(bridge))
    found = histories(places.state)
    if len(found) > 1:
        names = ", ".join(history.bridge for history in found)
        raise click.UsageError(f"Several bridges have a history ({names}): choose one with --bridge NAME.")
    if not found:
        raise click.UsageError(f"No bridge has a history in {places.state}: `xenoovs apply` begins it.")
    return found[0]


def is_installed(switch: Switch, entry: HistoryEntry) -> bool:
    """Return whether a bridge has the flows of an entry of its history, except those of drains that still go on. Raises
    XenoovsError."""
    from xenoovs.compile.read import is_of_drain
    from xenoovs.decision.decision import Decision, compare
    from xenoovs.engine.engine import Engine

    change = Engine(switch).plan(resolved(entry.balancer()), entry.options(partial=True))
    if change.difference.is_empty:
        return True
    decided = Decision.of({i: found for i, found in change.target.decision.services if i in change.touched})
    is_decided = not any(each.share for each in compare(change.before, decided))
    return is_decided and any(is_of_drain(flow) for flow in change.observed)


@offering
def complete_history_bridge(context: click.Context) -> Iterable[str]:
    """Offer the bridges that have a history."""
    choose_lab(context)
    return [found.bridge for found in histories(find_places().state)]


@offering
def complete_history_number(context: click.Context) -> Iterable[tuple[str, str]]:
    """Offer the entries of a history."""
    choose_lab(context)
    history = find_history(context.params.get("bridge"))
    return [(str(number), history.load(number).command) for number in history.numbers]


bridge_option = click.option(
    "--bridge", metavar="NAME", shell_complete=complete_history_bridge, help="The bridge, if several have a history."
)


@click.command("history")
@click.argument("number", required=False, type=EntryNumber(min=1), shell_complete=complete_history_number)
@bridge_option
@switch_options
@output_option
def history_command(number: int | None, *, bridge: str | None) -> int:
    """Show what `apply` did to a bridge, or to each one: when, by whom, and what changed.

    With NUMBER, print the config of that entry as YAML, in normal form; with -o json, the whole entry.

    The newest 20 entries are stored, readable only by the user who applied them. Changes that an agent makes
    are in its log (`xenoovs logs`).
    """
    several = [] if number is not None or bridge is not None else histories(find_places().state)
    if len(several) > 1:
        works = {each.bridge: partial(_show_history, each) for each in several}
        return answer_each(works)
    history = find_history(bridge)
    if number is None:
        return _show_history(history)
    entry = history.load(number)
    head = f"# {entry.number}: {entry.command}, {entry.local_time}, {entry.user}; {entry.changed}\n"
    answer(lambda: entry.model_dump(mode="json"), lambda: echo(head + entry.config.text, nl=False))
    return EXIT_OK


def _show_history(history: History) -> int:
    """Print the entries of a bridge, and whether it has the flows of the last one. Return the exit status."""
    entries: list[HistoryEntry] = []
    unusable: list[str] = []
    for each in history.numbers:
        try:
            entries.append(history.load(each))
        except XenoovsError as error:
            unusable.append(str(error))
    installed, problem = None, ""
    if entries:
        try:
            installed = entries[-1].number if is_installed(reach(), entries[-1]) else None
        except XenoovsError as error:
            problem = str(error)
    if not is_text():
        documents = [
            entry.model_dump(mode="json", exclude={"config": {"lines"}, "decision": True}) for entry in entries
        ]
        print_json({"bridge": history.bridge, "entries": documents, "installed": installed})
    elif entries:
        rows = [[str(each.number), each.local_time[:-3], each.user, each.command, each.changed] for each in entries]
        print_table(["NUMBER", "WHEN", "USER", "COMMAND", "CHANGED"], rows, right=(0,), spare=(2,))
    else:
        echo(f"bridge {history.bridge} has no history; `xenoovs apply` begins it")
    for text in unusable:
        echo(f"warning: {text}", err=True)
    if problem:
        echo(f"warning: not compared with the bridge: {problem}", err=True)
    elif is_text() and entries:
        echo()
        print_text(_standing(history.bridge, entries[-1].number, is_there=installed is not None))
    return EXIT_OK


def _standing(bridge: str, last: int, *, is_there: bool) -> str:
    """Return, as a sentence, whether the bridge has the flows of the last entry."""
    if is_there:
        return f"Bridge {bridge} has the flows of entry {last}."
    options = target_options(option("db"), option("lab"))
    return (
        f"Bridge {bridge} does not have the flows of entry {last}: an agent, another program, or a command that did "
        f"not finish has changed them. `xenoovs apply --rollback {last}{options}` goes back to entry {last}."
    )
