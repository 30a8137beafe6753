"""`xenoovs agent` and `xenoovs controller`: health checks, and a bridge that is kept right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.controller_options import control_of, via_options
from xenoovs.cli.options import configs_argument, connect, control_option, duration, switch_options

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer


_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    configs: tuple[Path, ...]
    db: str | None
    lab: str | None
    log: str
    resync_s: float
    once: bool
    confirm_s: float | None
    control: Path | None
    api: str | None
    via: str
    tls_cert: Path | None
    tls_key: Path | None
    token_file: Path | None
    web: str | None
    offload_interval_s: float
    metrics_blocks: bool
    allow_exec: bool

    def check(self) -> None:
        """Raises click.UsageError for options that exclude or need each other."""
        if "-" in map(str, self.configs):
            raise click.UsageError("The agent reads its config again and again: name a file.")
        if len(self.configs) > 1 and self.via != "controller":
            raise click.UsageError("Several FILEs need --via controller; else start an agent for each bridge.")
        if len(self.configs) > 1 and self.control is not None:
            raise click.UsageError(
                "--control names one socket: with several FILEs each bridge has its own default one."
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together.")
        is_served = self.api is not None or self.web is not None
        if self.token_file and not is_served:
            raise click.UsageError("--token-file goes with --api or --web.")
        if self.tls_cert and not is_served and self.via != "controller":
            raise click.UsageError("--tls-cert and --tls-key go with --api, --web or --via controller.")


@click.command("agent")
@configs_argument
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
@click.option("--allow-exec", is_flag=True, help="Run the programs of exec probes; a config that has some needs it.")
@click.option("--once", is_flag=True, help="Ask every backend once, make the bridge right, and end.")
@click.option(
    "--confirm",
    "confirm_s",
    type=duration,
    metavar="TIME",
    help="Take a changed config back unless `xenoovs confirm` comes within TIME.",
)
@control_option
@click.option(
    "--api",
    metavar="ADDRESS:PORT",
    help="Serve the API here too. Without --token-file it only shows; beyond loopback it needs that and TLS.",
)
@click.option(
    "--web",
    metavar="ADDRESS:PORT",
    help="Serve the status page and the metrics here too, such as 127.0.0.1:8080; under the same rules.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Of what is served: certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Of what is served: private key, PEM.")
@click.option(
    "--token-file", type=_FILE, metavar="FILE", help="With --api and --web: whoever knows the token may do all."
)
@click.option(
    "--offload-interval",
    "offload_interval_s",
    type=duration,
    default="10s",
    show_default=True,
    help="How often the datapath is looked at for the page and the metrics, at most half a percent of the time.",
)
@click.option("--metrics-blocks", is_flag=True, help="A metric for every block too: thousands of series.")
@via_options
def agent_command(**given: Any) -> None:
    """Keep the bridge as the config FILE says, with clients only at backends that answer.

    Asks backends (`health` in the config), moves the blocks of one that is down to the others and gives exactly those
    back when it answers again. Reads the config anew when it changes (or on SIGHUP); one that the bridge cannot take is
    told and the last good one stays. Puts flows back within a second after Open vSwitch was restarted, and puts right
    what others change. SIGTERM ends it; the flows stay. Events go to stderr.

    `xenoovs status`, `drain`, `weight`, `pause`, `logs` and others talk to it at a unix socket.
    """
    import asyncio

    from xenoovs.agent.log import LogForm, start_logging
    from xenoovs.cli.agents import kept_of, local_places, opening, run_agents

    options = Options(**{name: given[name] for name in Options.__dataclass_fields__})
    options.check()
    control = control_of(given)
    start_logging(LogForm(options.log))
    switch = connect(options.db, options.lab)
    datapath_id = None if control is None else control.datapath_id
    kept = kept_of(options.configs, switch, datapath_id=datapath_id, is_told=control is not None)
    for one in kept:
        _check_programs(one.config.balancer, options)
    is_shared = control is not None and control.redundant
    with opening(options, local_places(switch, options), kept, is_shared=is_shared) as opened:
        asyncio.run(run_agents(opened, switch, options, control))


def _check_programs(balancer: Balancer, options: Options) -> None:
    """A probe that may not run would take healthy backends out. Raises click.UsageError."""
    from xenoovs.model.balancer import ProbeKind

    for service in balancer.services:
        if service.health is not None and service.health.probe is ProbeKind.EXEC and not options.allow_exec:
            raise click.UsageError(
                f"Service {service.name} asks its backends by a program (probe: exec): give --allow-exec to let the "
                "agent run it; without that all of its probes would fail."
            )


# `xenoovs controller`: the agent, with bridges that connect to it.


_HELP = """Run as OpenFlow controller and reconcile the bridge with the config FILE; with several FILEs,
one bridge each.

The same as `xenoovs agent --via controller`: health checks where the config has some, the same flows, in atomic
bundles, read back. The bridge connects by OpenFlow 1.4; all other bridges are refused. Backends behind a port without
link are ejected at once. SIGTERM ends it; the flows stay where the bridge has fail_mode=secure (--attach sets it).
"""


def _run(**options: Any) -> None:
    click.get_current_context().invoke(agent_command, via="controller", **options)


controller_command = click.Command(
    "controller",
    callback=_run,
    params=[parameter for parameter in agent_command.params if parameter.name != "via"],
    help=_HELP,
)
