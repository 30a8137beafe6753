"""`xenoovs agent`: health checks, and a bridge that is kept right."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.cli.options import config_argument, connect, duration, switch_options


@click.command("agent")
@config_argument
@switch_options
@click.option("--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of events.")
@click.option(
    "--resync",
    "resync_s",
    type=duration,
    default="10s",
    show_default=True,
    help="How often all flows are compared; puts right what others changed.",
)
@click.option("--allow-exec", is_flag=True, help="Run the programs of exec probes; without this they fail.")
@click.option("--once", is_flag=True, help="Ask every backend once, make the bridge right, and end.")
def command(
    config: Path, db: str | None, lab: str | None, *, log: str, resync_s: float, allow_exec: bool, once: bool
) -> None:
    """Keep the bridge as the config FILE says, with clients only at backends that answer.

    Asks backends (`health` in the config), moves the blocks of one that is down to the others and gives exactly those
    back when it answers again. Reads the config anew when it changes (or on SIGHUP); a bad one is told and the last
    good one stays. Puts flows back within a second after Open vSwitch was restarted, and puts right what others
    change. SIGTERM ends it; the flows stay. Events go to stderr.
    """
    import asyncio

    from xenoovs.agent.clock import MonotonicClock
    from xenoovs.agent.config_file import ConfigFile
    from xenoovs.agent.daemon import Agent, Settings
    from xenoovs.agent.log import LogForm, start_logging
    from xenoovs.agent.probe.run import Prober
    from xenoovs.agent.reconcile import Reconciler

    if str(config) == "-":
        raise click.UsageError("The agent reads its config again and again: name a file.")
    start_logging(LogForm(log))

    async def run() -> None:
        reconciler = Reconciler(connect(db, lab))
        agent = Agent(
            ConfigFile(config),
            reconciler,
            probe=Prober(exec_allowed=allow_exec).probe,
            clock=MonotonicClock(),
            settings=Settings(resync_s),
        )
        agent.handle_signals(asyncio.get_running_loop())
        await agent.run(once=once)

    asyncio.run(run())
