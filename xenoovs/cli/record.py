"""`xenoovs record`: records the state of a host in a file, to be judged later or elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.errors import FileUnusable, FleetCacheUnusable
from xenoovs.evidence.archive import Recorder, write_record
from xenoovs.evidence.take import Anonymizer, take
from xenoovs.switch.host_facts import check_reachable
from xenoovs.switch.tape import passing_through
from xenoovs.terminal.command import file_behind
from xenoovs.terminal.completion import complete_bridge
from xenoovs.terminal.options import output_option, some_minutes, switch_options, time_option
from xenoovs.terminal.output import answer, echo
from xenoovs.terminal.reach import find_places, reach

if TYPE_CHECKING:
    from xenoovs.agent.control.files import AgentPaths

_ASKING_S = 60.0
"""Time limit, besides the time between the two samples."""


def _ask_for_services(places: AgentPaths, bridge: str | None) -> None:
    """Record the services of a fleet that agents have saved: the config of a DPU has none."""
    from xenoovs.agent.fleet_config import FleetCache

    for path in places.state.glob(f"{bridge or ''}*.fleet"):
        with suppress(FleetCacheUnusable):
            FleetCache(path).load()


@click.command("record")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@switch_options
@click.option("--bridge", metavar="NAME", shell_complete=complete_bridge, help="Only this bridge. Default: all.")
@time_option(
    "--for",
    "10s",
    type=some_minutes,
    help="Time between the two samples of megaflows and counters: their growth shows where packets go.",
)
@click.option("--anonymous", is_flag=True, help="Replace all addresses and host names.")
@output_option
def record_command(
    *,
    file: Path,
    bridge: str | None,
    for_s: float,
    anonymous: bool,
) -> None:
    """Record everything about offload in one FILE, a tar.gz of text files with a manifest.

    It has two samples of the megaflows and their rules of traffic control; flows, groups, meters; settings, counters,
    devices and versions; and the end of the log. It works on any bridge, needs no config and changes nothing. Options
    with keys and passwords are hidden; names of ports are not, addresses only with --anonymous: look into it before you
    send it.

    `xenoovs verify-offload`, `why`, `doctor`, `lint` and `trace` judge it with --record FILE, with or without a config,
    on any machine, and print what they would have printed here.

    It takes at most a minute besides --for; the manifest lists what was left out. FILE is complete or does not
    change.
    """
    target = file_behind(file, option="FILE")
    if not os.access(target.parent, os.W_OK):
        raise FileUnusable(file=str(file), reason=f"nothing can be written into {target.parent}")
    switch = reach()
    check_reachable(switch.endpoint)
    recorder = Recorder(limit_s=for_s + _ASKING_S)
    with passing_through(recorder):
        states = take(switch, bridge, recorder, interval_s=for_s)
        _ask_for_services(find_places(), bridge)
    names = [state.name for state in states]
    alter = Anonymizer() if anonymous else str
    size = write_record(target, recorder, switch.endpoint, alter=alter, bridges=names, anonymous=anonymous)
    document = {"file": str(file), "bytes": size, "bridges": names, "cut": recorder.cut}

    def show() -> None:
        echo(f"{file}: {len(recorder.found)} answers in {size / 1024:.0f} KiB, bridges {', '.join(names) or '(none)'}")
        for each in recorder.cut:
            echo(f"cut: {each}")

    answer(lambda: document, show)
