"""`xenoovs paths`: the paths of tunnels, with their state by probes and their blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from xenoovs.display import duration as shown_duration
from xenoovs.display import printable
from xenoovs.errors import counted
from xenoovs.show.codec import parse
from xenoovs.show.column import Row, columns_of
from xenoovs.show.conditions import addressed
from xenoovs.show.paths import PATH_STYLES, PathState, PathView, RemoteView
from xenoovs.show.terminal import STYLES
from xenoovs.terminal.agent_client import agent_command, change, find_client, options_of
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK, GuessingGroup
from xenoovs.terminal.options import time_option
from xenoovs.terminal.output import answer, echo, print_columns, print_text, repeat

_remote_argument = click.argument("remote", metavar="TUNNEL/REMOTE")


@click.group("paths", cls=GuessingGroup)
def paths_command() -> None:
    """Show and steer the paths of tunnels.

    The agent probes every path to each remote of `tunnels` in the config. It moves blocks of the host's packets away
    from paths that are congested or dead.
    """


@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@time_option("--interval", "1s", help="Time between two refreshes with --watch.")
@agent_command("list")
def list_command(*, watch: bool, interval_s: float) -> int:
    """Show each path with its state by probes and its blocks.

    EXCESS: how much later than the fastest path it answers, the median of the last nine rounds; WORST: the largest.
    LOST: share of probes without an answer since the agent started. PORT: source port that selects it. HOPS: routers.

    Exit status 2: a path has failed, or a remote does not answer.
    """

    def show() -> int:
        client = find_client()
        found = client.ask("paths")
        remotes = [parse(RemoteView, remote, "a remote of an agent") for remote in found["remotes"]]
        answer(lambda: found, lambda: _show(remotes, found, options=options_of(client)))
        is_bad = any(each.paths_in(PathState.FAILED) or each.is_unknown or each.problem for each in remotes)
        return EXIT_DIFFERS if is_bad else EXIT_OK

    return repeat(show, interval_s) if watch else show()


@click.argument("remote", metavar="[TUNNEL/REMOTE]", required=False)
@agent_command("discover")
def discover_command(*, remote: str | None) -> int:
    """Search the source ports of paths again, for one remote or for all.

    Ports in use stay, unless two of them share a path. For tunnels with `discover: ttl`.
    """
    return change("paths/discover", {} if remote is None else {"remote": remote})


@click.argument("path", metavar="[PATH]", required=False)
@_remote_argument
@click.option("--end", is_flag=True, help="End the pin of the remote.")
@agent_command("pin")
def pin_command(*, remote: str, path: str | None, end: bool) -> int:
    """Leave all blocks of a remote on PATH, whatever its state is, until `xenoovs paths pin TUNNEL/REMOTE --end`.

    The pin survives restarts of the agent.
    """
    if (path is None) is not end:
        raise click.UsageError("Give one of PATH and --end.")
    return change("paths/pin", {"remote": remote} if path is None else {"remote": remote, "path": path})


@agent_command("plan")
def plan_command() -> int:
    """Show the blocks that the next decision would move, also while moves are paused.

    The target is one of two random good paths, so the next decision may choose others. Exit status 2: blocks would
    move.
    """
    found = find_client().ask("paths_plan")
    moves = [
        f"{move['remote']}: {counted(move['blocks'], 'block')} {move['path']} to {move['to']} ({move['reason']})"
        for move in found["moves"]
    ]
    answer(lambda: found, lambda: echo("\n".join(moves) or "no block would move"))
    return EXIT_DIFFERS if found["moves"] else EXIT_OK


@click.option(
    "--source-port", type=click.IntRange(1, 65535), metavar="PORT", help="Explain the path of packets with it."
)
@_remote_argument
@agent_command("why")
def why_command(*, remote: str, source_port: int | None) -> None:
    """Explain why the blocks of a remote are on their paths.

    For each path: its state with the figures behind it, and the last blocks that left it. The agent remembers moves
    since it started.
    """
    asked = {"remote": remote} if source_port is None else {"remote": remote, "source_port": source_port}
    found = find_client().ask("paths_why", query=asked)
    answer(lambda: found, lambda: _explain(found))


def _explain(found: Mapping[str, Any]) -> None:
    block, now_s = found["block"], found["now_s"]
    if block is not None:
        ago = "" if block["moved_s"] is None else f", {shown_duration(now_s - block['moved_s'])} ago"
        at = f"block {block['block']} is on {block['path']}, its home is {block['home']}"
        print_text(f"{at}: {block['reason']}{ago}\n")
    for path in found["paths"]:
        state = click.style(path["state"], **STYLES[PATH_STYLES[PathState(path["state"])]])
        echo(f"{printable(path['name'])}: {state}, {counted(path['blocks'], 'block')}, {path['home']} at home")
        print_text(f"  {path['reason']}")
        if path["departure_s"] is not None:
            print_text(f"  {shown_duration(now_s - path['departure_s'])} ago {path['departure']}")


for _command in (list_command, why_command, discover_command, pin_command, plan_command):
    paths_command.add_command(_command)


def _show(remotes: list[RemoteView], found: Mapping[str, Any], *, options: str) -> None:
    """Print a table of all paths, and below it what is wrong and what moved last. `options`: for suggested commands."""
    if not remotes:
        echo("no remote is probed: the config has no `tunnels` with `probe`")
        return
    now_s = found["now_s"]
    print_columns(columns_of(PathView), (Row(path, remote, now_s) for remote in remotes for path in remote.paths))
    echo()
    for remote in remotes:
        if remote.problem:
            print_text(f"{remote.name}: {remote.problem}", fg="red")
        if remote.pinned:
            undo = addressed(f"`xenoovs paths pin {remote.name} --end` ends it", options)
            print_text(f"{remote.name}: pinned to {remote.pinned}; {undo}", fg="cyan")
        if remote.last_move and remote.last_move_s is not None:
            ago, total = shown_duration(now_s - remote.last_move_s), sum(remote.moves.values())
            echo(f"{remote.name}: {ago} ago {remote.last_move}; {counted(total, 'move')} so far")
    if found["are_moves_paused"]:
        print_text(addressed("moves are paused; `xenoovs pause --paths --end` ends it", options), fg="yellow")
