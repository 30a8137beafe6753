"""Agents as a process runs them: their configs, locks and sockets, and all that is served beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.errors import SameBridge, SwitchError

if TYPE_CHECKING:
    from xenoovs.agent.config_file import ConfigFile
    from xenoovs.agent.control.app import Mount
    from xenoovs.agent.control.paths import Places
    from xenoovs.agent.control.serve import Listener
    from xenoovs.agent.daemon import Agent
    from xenoovs.agent.snapshot import PortView
    from xenoovs.agent.tasks import TaskFactory
    from xenoovs.cli.agent import Options
    from xenoovs.cli.controller_options import Control
    from xenoovs.cli.via import Reach
    from xenoovs.datapath.host import PortState
    from xenoovs.model.balancer import Uplinks
    from xenoovs.switch.live import LiveSwitch


# The configs that one process serves: each of another bridge, and under which name each is found.


@dataclass(frozen=True, slots=True)
class Kept:
    """One bridge. `name`: of its socket, its lock and its state, for `--bridge`."""

    config: ConfigFile
    uplinks: Uplinks
    name: str


def kept_of(
    files: tuple[Path, ...], switch: LiveSwitch, *, datapath_id: int | None = None, is_told: bool
) -> tuple[Kept, ...]:
    """In the order of the files. `datapath_id`: as an option says it. `is_told`: bridges connect to us, from anywhere.

    Raises click.UsageError, ConfigError, ConfigUnreadable, SameBridge.
    """
    from xenoovs.agent.config_file import ConfigFile

    if datapath_id is not None and len(files) > 1:
        raise click.UsageError("--datapath-id is for one FILE: with several, write switch.datapath_id in each.")
    kept = []
    for file in files:
        config = ConfigFile(file)
        uplinks = _uplinks(config.balancer.uplinks, datapath_id)
        kept.append(Kept(config, uplinks, _name(uplinks, switch) if is_told else uplinks.bridge))
    for one, other in combinations(kept, 2):
        if _may_be_one(one.uplinks, other.uplinks):
            raise SameBridge(files=(str(one.config.path), str(other.config.path)), bridge=other.uplinks.label)
    return tuple(kept)


def _uplinks(uplinks: Uplinks, datapath_id: int | None) -> Uplinks:
    if datapath_id is None:
        return uplinks
    if uplinks.datapath_id not in (None, datapath_id):
        raise click.UsageError(f"--datapath-id {datapath_id:016x}: the config says {uplinks.datapath_id:016x}.")
    return replace(uplinks, datapath_id=datapath_id)


def _may_be_one(one: Uplinks, other: Uplinks) -> bool:
    ids = {one.datapath_id, other.datapath_id}
    return len(ids - {None}) < 2 and (one.bridge == other.bridge or None not in ids)


def _name(uplinks: Uplinks, switch: LiveSwitch) -> str:
    """A bridge of this host has its own name, whoever keeps it: so nobody else does, and commands find who does."""
    if uplinks.datapath_id is None:
        return uplinks.bridge
    try:
        states = switch.bridges() if switch.endpoint.rundir is not None else ()
    except SwitchError:
        states = ()
    mine = uplinks.bridge, f"{uplinks.datapath_id:016x}"
    return uplinks.bridge if mine in {(state.name, state.datapath_id) for state in states} else uplinks.label


@dataclass(frozen=True, slots=True)
class OpenedAgent:
    """Where one agent is asked, and the file of its overrides. `control`: the name of its socket."""

    kept: Kept
    sockets: tuple[Listener, ...]
    runtime: Path | None
    control: Path | None = None


@dataclass(frozen=True, slots=True)
class AllOpened:
    """`ports`: of the API and the page, for all agents."""

    agents: tuple[OpenedAgent, ...]
    ports: tuple[Listener, ...]


async def run_agents(opened: AllOpened, switch: LiveSwitch, options: Options, control: Control | None) -> None:
    """Until signals stop them. Raises click.UsageError, XenoovsError."""
    import asyncio

    from xenoovs.agent.bridges import handle_signals, run_together
    from xenoovs.cli.via import Way, reaching

    wanted = tuple(one.kept.uplinks for one in opened.agents)
    with reaching(wanted, Way(options.db, options.lab, options.once), control) as reach:
        agents = await make_agents(opened, reach, switch, options)
        handle_signals(asyncio.get_running_loop(), tuple(agents.values()))
        beside = serve_together(opened, agents, options)
        await run_together(agents, once=options.once, beside=beside)


async def make_agents(opened: AllOpened, reach: Reach, switch: LiveSwitch, options: Options) -> dict[str, Agent]:
    """By the labels of their bridges, not running yet."""
    import asyncio

    made = await asyncio.gather(*(_agent(one, reach, switch, options) for one in opened.agents))
    return {one.kept.uplinks.label: agent for one, agent in zip(opened.agents, made, strict=True)}


def serve_together(opened: AllOpened, agents: Mapping[str, Agent], options: Options) -> TaskFactory | None:
    """Put each agent's API at its own socket; what serves all of them at one port has to run beside them."""
    from xenoovs.agent.control.serve import ServedAgent, serve, serve_several

    shown = {bridge: ServedAgent(agent, _mounts(agent, options)) for bridge, agent in agents.items()}
    is_one = len(agents) == 1
    for one, each in zip(opened.agents, shown.values(), strict=True):
        for sock in (*one.sockets, *(opened.ports if is_one else ())):
            each.agent.add_task(lambda each=each, sock=sock: serve(each.agent, sock, each.mounts))  # type: ignore[misc]
    return None if is_one or not opened.ports else lambda: serve_several(shown, opened.ports)


async def _agent(one: OpenedAgent, reach: Reach, switch: LiveSwitch, options: Options) -> Agent:
    import asyncio

    from xenoovs.agent.daemon import Agent, Settings
    from xenoovs.agent.neighbour import Neighbours
    from xenoovs.agent.probe.run import Prober
    from xenoovs.agent.runtime_file import RuntimeFile
    from xenoovs.agent.store import MonotonicClock
    from xenoovs.cli.shared_runtime import SharedRuntimeFile, share_runtime
    from xenoovs.cli.via import wake

    config, loop, neighbours = one.kept.config, asyncio.get_running_loop(), Neighbours()
    await asyncio.to_thread(neighbours.settle, config.balancer)
    reached = reach(one.kept.uplinks, neighbours.resolve)
    runtime = None if one.runtime is None else RuntimeFile(one.runtime)
    if reached.mastership is not None and one.runtime is not None:
        runtime = SharedRuntimeFile(one.runtime, reached.mastership)
    settings = Settings(options.resync_s, options.confirm_s, runtime)
    probe = Prober(exec_allowed=options.allow_exec).probe
    agent = Agent(config, reached.engine, probe=probe, clock=MonotonicClock(), settings=settings)
    if reached.mastership is not None:
        share_runtime(agent, reached.mastership, control=one.control)
    reached.on_change(lambda: wake(loop, agent.request_round))
    if reached.ports is None:
        agent.watch_bridge(switch.endpoint.db)
    else:
        agent.ports = partial(_told_ports, reached.ports, agent)
    agent.add_task(lambda: neighbours.follow(lambda: agent.config.balancers, on_change=agent.request_round))
    return agent


def _told_ports(ports: Callable[[], dict[str, PortState] | None], agent: Agent) -> tuple[PortView, ...] | None:
    from xenoovs.agent.bridge_watch import port_views

    told = ports()
    return None if told is None else port_views(told, agent.config.balancer)


def _mounts(agent: Agent, options: Options) -> tuple[Mount, ...]:
    """What is served beside the API."""
    from xenoovs.agent.metrics.metric import Detail
    from xenoovs.agent.offload import SamplePace
    from xenoovs.agent.telemetry import Telemetry

    detail = Detail.BLOCKS if options.metrics_blocks else Detail.ALWAYS
    is_read = options.api is not None or options.web is not None
    return Telemetry(agent, pace=SamplePace(options.offload_interval_s), detail=detail, is_always=is_read).mounts()


def local_places(switch: LiveSwitch, options: Options) -> Places | None:
    """Where its files are; None: nowhere, which will do for --once. Raises ListenError."""
    from xenoovs.agent.control.paths import Places, places_of
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
def opening(options: Options, places: Places | None, kept: tuple[Kept, ...], *, is_shared: bool) -> Iterator[AllOpened]:
    """Lock the bridges and open the sockets, before anything else is begun.

    Controllers that share a bridge agree by roles, without a lock. With --once nothing is opened and no lock is made:
    one that is there is asked for, and refused beside an agent.
    """
    from xenoovs.agent.control.paths import bound_socket, lock_bridge
    from xenoovs.agent.control.serve import open_port, unix_listener

    with ExitStack() as stack:
        agents, ports = [], []
        for one in kept:
            sockets, control = [], None
            is_locked = not options.once or (places is not None and places.lock(one.name).exists())
            if places is not None and is_locked and not is_shared:
                stack.enter_context(lock_bridge(places.lock(one.name), bridge=one.name))
            if places is not None and not options.once:
                control = options.control or places.socket(one.name)
                sockets.append(unix_listener(stack.enter_context(bound_socket(control))))
            runtime = None if places is None else places.runtime(one.name)
            agents.append(OpenedAgent(one, tuple(sockets), runtime, control))
        if places is not None and not options.once:
            for option, where in (("--api", options.api), ("--web", options.web)):
                if where is not None:
                    ports.append(open_port(_listen(options, option, where)))
        yield AllOpened(tuple(agents), tuple(ports))


def _listen(options: Options, option: str, where: str) -> Any:
    from xenoovs.agent.control.serve import Listen

    host, _, port = where.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 <= int(port[:6]) <= 65535:
        raise click.UsageError(f"{option} {where}: expected ADDRESS:PORT, such as 127.0.0.1:9090 or [::1]:9090")
    tls = None if options.tls_cert is None or options.tls_key is None else (options.tls_cert, options.tls_key)
    return Listen(host, int(port), tls, options.token_file, option)
