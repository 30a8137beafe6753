"""`xenoovs agent`: health checks, and a bridge that is kept right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import config_argument, connect, control_option, duration, switch_options
from xenoovs.cli.via import Control, control_of, via_options

if TYPE_CHECKING:
    from xenoovs.agent.config_file import ConfigFile
    from xenoovs.agent.control.app import Mount
    from xenoovs.agent.control.places import Places
    from xenoovs.agent.control.serve import Opened
    from xenoovs.agent.daemon import Agent
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.live import LiveSwitch

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path
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
        if str(self.config) == "-":
            raise click.UsageError("The agent reads its config again and again: name a file.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together.")
        is_served = self.api is not None or self.web is not None
        if self.token_file and not is_served:
            raise click.UsageError("--token-file goes with --api or --web.")
        if self.tls_cert and not is_served and self.via != "controller":
            raise click.UsageError("--tls-cert and --tls-key go with --api, --web or --via controller.")


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
def command(**given: Any) -> None:
    """Keep the bridge as the config FILE says, with clients only at backends that answer.

    Asks backends (`health` in the config), moves the blocks of one that is down to the others and gives exactly those
    back when it answers again. Reads the config anew when it changes (or on SIGHUP); one that the bridge cannot take is
    told and the last good one stays. Puts flows back within a second after Open vSwitch was restarted, and puts right
    what others change. SIGTERM ends it; the flows stay. Events go to stderr.

    `xenoovs status`, `drain`, `weight`, `pause`, `logs` and others talk to it at a unix socket.
    """
    import asyncio

    from xenoovs.agent.config_file import ConfigFile
    from xenoovs.agent.log import LogForm, start_logging

    options = Options(**{name: given[name] for name in Options.__dataclass_fields__})
    options.check()
    control = control_of(given)
    start_logging(LogForm(options.log))
    config = ConfigFile(options.config)
    _check_programs(config.balancer, options)
    switch = connect(options.db, options.lab)
    is_shared = control is not None and control.redundant
    bridge, places = config.balancer.uplinks.bridge, _places(switch, options)
    with _open(options, places, bridge, is_shared=is_shared) as opened:
        runtime = None if places is None else places.runtime(bridge)
        asyncio.run(_run(_Setting(config, switch, runtime, tuple(opened)), options, control))


def _check_programs(balancer: Balancer, options: Options) -> None:
    """A probe that may not run would take healthy backends out. Raises click.UsageError."""
    from xenoovs.model.health import ProbeKind

    for service in balancer.services:
        if service.health is not None and service.health.probe is ProbeKind.EXEC and not options.allow_exec:
            raise click.UsageError(
                f"Service {service.name} asks its backends by a program (probe: exec): give --allow-exec to let the "
                "agent run it; without that all of its probes would fail."
            )


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where an agent works. `runtime`: the file of its overrides."""

    config: ConfigFile
    switch: LiveSwitch
    runtime: Path | None
    opened: tuple[Opened, ...]


async def _run(setting: _Setting, options: Options, control: Control | None) -> None:
    import asyncio

    from xenoovs.agent.clock import MonotonicClock
    from xenoovs.agent.control.serve import serve
    from xenoovs.agent.daemon import Agent, Settings
    from xenoovs.agent.neighbour import Neighbours
    from xenoovs.agent.overrides import RuntimeFile
    from xenoovs.agent.probe.run import Prober
    from xenoovs.cli.keeping import Way, reconciling, wake

    bridge, loop = setting.config.balancer.uplinks.bridge, asyncio.get_running_loop()
    runtime = None if setting.runtime is None else RuntimeFile(setting.runtime)
    settings = Settings(options.resync_s, options.confirm_s, runtime)
    prober = Prober(exec_allowed=options.allow_exec)
    way, neighbours = Way(options.db, options.lab, options.once), Neighbours()
    await asyncio.to_thread(neighbours.settle, setting.config.balancer)
    with reconciling(bridge, way, control, resolve=neighbours.resolve) as (reconciler, on_change):
        agent = Agent(setting.config, reconciler, probe=prober.probe, clock=MonotonicClock(), settings=settings)
        on_change(lambda: wake(loop, agent.want_round))
        if control is None:
            agent.watch_bridge(setting.switch.endpoint.db)
        agent.beside(lambda: neighbours.follow(lambda: agent.config.balancer, changed=agent.want_round))
        mounts = _mounts(agent, options)
        for one in setting.opened:
            agent.beside(lambda one=one: serve(agent, one, mounts))  # type: ignore[misc]
        agent.handle_signals(loop)
        await agent.run(once=options.once)


def _mounts(agent: Agent, options: Options) -> tuple[Mount, ...]:
    """What is served beside the API."""
    from xenoovs.agent.eyes import Eyes
    from xenoovs.agent.metrics.metric import Detail

    detail = Detail.BLOCKS if options.metrics_blocks else Detail.ALWAYS
    is_read = options.api is not None or options.web is not None
    return Eyes(agent, interval_s=options.offload_interval_s, detail=detail, is_always=is_read).mounts()


def _places(switch: LiveSwitch, options: Options) -> Places | None:
    """Where its files are; None: nowhere, which will do for --once. Raises ListenError."""
    from xenoovs.agent.control.places import Places, places_of
    from xenoovs.errors import ListenError

    try:
        return places_of(switch.endpoint, env=os.environ, is_root=os.geteuid() == 0)
    except ListenError:
        if options.control is not None:
            return Places(options.control.absolute().parent, options.control.absolute().parent)
        if options.once:
            return None
        raise


@contextmanager
def _open(options: Options, places: Places | None, bridge: str, *, is_shared: bool) -> Iterator[list[Opened]]:
    """Lock the bridge and open the sockets, before anything else is begun.

    Controllers that share a bridge agree by roles, without a lock. With --once nothing is opened and no lock is made:
    one that is there is asked for, and refused beside an agent.
    """
    from xenoovs.agent.control.serve import open_local, open_port
    from xenoovs.agent.control.unix import bound_socket, lock_bridge

    with ExitStack() as stack:
        opened = []
        is_locked = not options.once or (places is not None and places.lock(bridge).exists())
        if places is not None and is_locked and not is_shared:
            stack.enter_context(lock_bridge(places.lock(bridge), bridge=bridge))
        if places is not None and not options.once:
            sock = stack.enter_context(bound_socket(options.control or places.socket(bridge)))
            opened.append(open_local(sock))
            for option, where in (("--api", options.api), ("--web", options.web)):
                if where is not None:
                    opened.append(open_port(_listen(options, option, where)))
        yield opened


def _listen(options: Options, option: str, where: str) -> Any:
    from xenoovs.agent.control.serve import Listen

    host, _, port = where.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port[:6]) <= 65535:
        raise click.UsageError(f"{option} {where}: expected ADDRESS:PORT, such as 127.0.0.1:9090 or [::1]:9090")
    tls = None if options.tls_cert is None or options.tls_key is None else (options.tls_cert, options.tls_key)
    return Listen(host, int(port), tls, options.token_file, option)
