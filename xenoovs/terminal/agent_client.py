"""How commands find the agent, and their output without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from xenoovs.errors import AgentMissing, ListenError, did_you_mean, first_names
from xenoovs.terminal.command import EXIT_FAILED, EXIT_OK
from xenoovs.terminal.completion import complete_agent_bridge
from xenoovs.terminal.defaults import ContextOption, option
from xenoovs.terminal.options import Command, control_option, output_option, switch_options
from xenoovs.terminal.output import answer, echo
from xenoovs.terminal.reach import find_places, target_options

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client


def agent_options(command: Command) -> Command:
    """Add --control, --bridge, --db and --lab, which name the agent of the command."""
    option = click.option(
        "--bridge",
        cls=ContextOption,
        metavar="NAME",
        shell_complete=complete_agent_bridge,
        help="Bridge of the agent; needed if several agents run.",
    )
    return switch_options(control_option(option(command)))


def is_agent_named() -> bool:
    return option("control") is not None or option("bridge") is not None


def agent_command(name: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command to an agent. The function returns the exit status; None for 0."""
    return lambda function: click.command(name)(agent_options(output_option(function)))


def find_client() -> Client:
    """Return the agent that the options name, or the only one. Raises AgentMissing, click.UsageError."""
    from xenoovs.agent.control.client import Client

    if (control := option("control")) is not None:
        return Client(control)
    places = find_places()
    if (bridge := option("bridge")) is not None:
        path, others = places.socket(bridge), [socket.stem for socket in places.sockets()]
        if others and bridge not in others:
            guess = did_you_mean(bridge, others, "; did you mean {}?")
            raise AgentMissing(where=str(path), reason=f"there are agents for {first_names(others)}{guess}")
        return Client(path)
    found = find_clients()
    if len(found) > 1:
        raise click.UsageError(f"Agents run for several bridges ({', '.join(found)}): choose one with --bridge NAME.")
    if not found:
        raise AgentMissing(where=f"{places.run}/*.sock", reason="there is no such socket")
    return next(iter(found.values()))


def find_clients() -> dict[str, Client]:
    """Return all agents that run, by the names of their bridges. Raises click.UsageError, LabError, ListenError."""
    from xenoovs.agent.control.client import Client
    from xenoovs.switch.endpoint import answers

    paths = find_places().sockets()
    return {path.stem: Client(path) for path in paths if len(paths) == 1 or answers(path)}


def agent_of(*names: str) -> Client | None:
    """Return the agent of a bridge, by the first of these names that an agent has; None if none runs. With --control an
    agent must run."""
    path, bridge = option("control"), option("bridge")
    if path is None:
        with suppress(ListenError):
            path = next(filter(None, map(find_places().running, (bridge,) if bridge else names)), None)
    if path is None:
        return None
    # Imported here: it imports HTTP, and most often no agent runs.
    from xenoovs.agent.control.client import Client

    return Client(path)


def options_of(client: Client) -> str:
    """Return the options by which commands reach this agent, after a space; empty if they need none."""
    from xenoovs.agent.control.files import command_options

    places = None if option("control") else find_places()
    return command_options(client.path, places, target=target_options(option("db"), option("lab")))


def refuse_beside_agent(bridge: str) -> None:
    """Raise click.UsageError if an agent reconciles the bridge: it would apply again what was rolled back."""
    if find_places().running(bridge) is not None:
        raise click.UsageError(
            f"An agent reconciles bridge {bridge}: change its config instead; for a rollback, start it with "
            "--confirm TIME."
        )


INSTEAD = "edit that file, which the agent then reads again, or use `xenoovs weight` and `xenoovs drain`"


def check_agent(bridge: str, *, force: bool, instead: str = INSTEAD) -> None:
    """Refuse a change of a bridge that an agent reconciles; with `force`, only warn on stderr that the agent will
    revert it. `instead`: what the user should do, for the message. Raises click.UsageError if an agent runs and `force`
    is not set."""
    if agent_of(bridge) is None:
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


def change(name: str, request: Mapping[str, object] | None = None, *, client: Client | None = None) -> int:
    """Request a change, print its result, and return the exit status. Raises AgentMissing, AgentRefused."""
    done = (client or find_client()).ask(name, request)
    answer(lambda: done, lambda: echo(done["message"], err=not done["is_applied"]))
    return EXIT_OK if done["is_applied"] else EXIT_FAILED
