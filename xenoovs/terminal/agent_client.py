"""How commands find the agent, and their output without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.dataclass import dataclass
from xenoovs.errors import AgentMissing, ListenError, did_you_mean, first_names
from xenoovs.terminal.command import EXIT_FAILED, EXIT_OK
from xenoovs.terminal.completion import complete_agent_bridge
from xenoovs.terminal.options import OutputFormat, control_option, output_option, switch_options
from xenoovs.terminal.output import echo
from xenoovs.terminal.reach import find_places, target_options

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.agent.control.files import AgentPaths


@dataclass(frozen=True, slots=True)
class Where:
    """The options that name an agent."""

    control: Path | None
    bridge: str | None
    db: str | None
    lab: str | None


def agent_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add --control, --bridge, --db and --lab to a command, which gets them as `where`."""

    @wraps(command)
    def called(*args: object, control: Any, bridge: Any, db: Any, lab: Any, **kwargs: object) -> object:
        return command(*args, where=Where(control, bridge, db, lab), **kwargs)

    option = click.option(
        "--bridge",
        metavar="NAME",
        shell_complete=complete_agent_bridge,
        help="Bridge of the agent; needed if several agents run.",
    )
    return switch_options(control_option(option(called)))


def agent_command(name: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command to an agent: `NAME [options]`. The function gets `where`, `output` and its own parameters, and
    returns the exit status; None for 0."""
    return lambda function: click.command(name)(agent_options(output_option(function)))


def find_client(where: Where) -> Client:
    """Return the agent that the options name, or the only one. Raises AgentMissing, click.UsageError."""
    from xenoovs.agent.control.client import Client

    if where.control is not None:
        return Client(where.control)
    places = find_places(where.db, where.lab)
    if where.bridge is not None:
        path, others = places.socket(where.bridge), [socket.stem for socket in places.sockets()]
        if others and where.bridge not in others:
            guess = did_you_mean(where.bridge, others, "; did you mean {}?")
            raise AgentMissing(where=str(path), reason=f"there are agents for {first_names(others)}{guess}")
        return Client(path)
    found = find_clients(where)
    if len(found) > 1:
        raise click.UsageError(f"Agents run for several bridges ({', '.join(found)}): choose one with --bridge NAME.")
    if not found:
        raise AgentMissing(where=f"{places.run}/*.sock", reason="there is no such socket")
    return next(iter(found.values()))


def find_clients(where: Where) -> dict[str, Client]:
    """Return all agents that run, by the names of their bridges. Raises click.UsageError, LabError, ListenError."""
    from xenoovs.agent.control.client import Client
    from xenoovs.switch.endpoint import answers

    paths = find_places(where.db, where.lab).sockets()
    return {path.stem: Client(path) for path in paths if len(paths) == 1 or answers(path)}


def agent_of(where: Where, *names: str) -> Client | None:
    """Return the agent of a bridge, by the first of these names that an agent has; None if none runs. With --control an
    agent must run."""
    path, names = where.control, (where.bridge,) if where.bridge else names
    if path is None:
        with suppress(ListenError):
            path = next(filter(None, map(find_places(where.db, where.lab).running, names)), None)
    if path is None:
        return None
    # Imported here: it imports HTTP, and most often no agent runs.
    from xenoovs.agent.control.client import Client

    return Client(path)


def options_of(client: Client, where: Where) -> str:
    """Return the options by which commands reach this agent, after a space; empty if they need none."""
    from xenoovs.agent.control.files import command_options

    places = find_places(where.db, where.lab) if where.control is None else None
    return command_options(client.path, places, target=target_options(where.db, where.lab))


def refuse_beside_agent(places: AgentPaths, bridge: str) -> None:
    """Raise click.UsageError if an agent reconciles the bridge: it would apply again what was rolled back."""
    if places.running(bridge) is not None:
        raise click.UsageError(
            f"An agent reconciles bridge {bridge}: change its config instead; for a rollback, start it with "
            "--confirm TIME."
        )


INSTEAD = "edit that file, which the agent then reads again, or use `xenoovs weight` and `xenoovs drain`"


def check_agent(where: Where, bridge: str, *, force: bool, instead: str = INSTEAD) -> None:
    """Refuse a change of a bridge that an agent reconciles; with `force`, only warn on stderr that the agent will
    revert it. `instead`: what the user should do, for the message. Raises click.UsageError if an agent runs and `force`
    is not set."""
    if agent_of(where, bridge) is None:
        return
    if not force:
        raise click.UsageError(
            f"An agent reconciles bridge {bridge} with its own config (`xenoovs status` names it): {instead}. "
            "--force makes the change anyway, and the agent reverts it."
        )
    echo(
        f"warning: an agent reconciles bridge {bridge}: it reverts what differs from its own config and from what was "
        "set at run time (`xenoovs status`); change its config instead",
        err=True,
    )


def change(where: Where, output: OutputFormat, name: str, request: Mapping[str, object] | None = None) -> int:
    """Request a change, print its result, and return the exit status. Raises AgentMissing, AgentRefused."""
    done = find_client(where).ask(name, request)
    output.show(lambda: done, lambda: echo(done["message"], err=not done["is_applied"]))
    return EXIT_OK if done["is_applied"] else EXIT_FAILED
