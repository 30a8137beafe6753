"""`xenoovs controller`: bridges connect to us, and are kept right. The agent, by the other way to the switch."""

from __future__ import annotations

from typing import Any

import click

from xenoovs.cli import agent

_HELP = """Be the OpenFlow controller of the bridge of the config FILE, and keep it as the FILE says; with several
FILEs, of as many bridges, each on its own.

The same as `xenoovs agent --via controller`: health checks where the config has some, the same flows, in atomic
bundles, read back. The bridge connects and is spoken to by OpenFlow 1.4; all other bridges are refused. Ports that lose
their link count at once: backends behind them are out like those that do not answer. SIGTERM ends it; the flows stay
where the bridge has fail_mode=secure (--attach sets it).
"""


def _run(**options: Any) -> None:
    click.get_current_context().invoke(agent.command, via="controller", **options)


command = click.Command(
    "controller",
    callback=_run,
    params=[parameter for parameter in agent.command.params if parameter.name != "via"],
    help=_HELP,
)
