"""Runs the agents of one process, with their configs, locks, sockets and TCP ports.

`run_agents` lists the parts of an agent: all that runs beside its rounds, from its start to its end. Each part reads
the state, and writes to it by events. `Agent.run` starts those that belong to every agent, such as its probes
(`scheduler`) and notifications (`notify`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as LateError
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.agent.announce import Announcer
from xenoovs.agent.bridge_watch import follow_ipsec
from xenoovs.agent.config_file import ConfigFile, parse_bound
from xenoovs.agent.control.files import AgentPaths, BridgeLocks, bound_socket, command_options
from xenoovs.agent.control.serve import ApiListener, open_port, serve, serve_several, unix_listener
from xenoovs.agent.control.xenoflow import xenoflow_routes
from xenoovs.agent.daemon import Agent, AgentGroup, Starter, handle_signals
from xenoovs.agent.neighbour import Neighbours
from xenoovs.agent.offload import OffloadSampler, RuleUse
from xenoovs.agent.paths.devices import ProbePort
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.search import SourcePorts
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.reload import Settings
from xenoovs.agent.runtime_file import RuntimeFile, parse_runtime, render_runtime
from xenoovs.agent.scheduler import max_probes, raise_descriptor_limit
from xenoovs.agent.state import BridgePorts, RoundFacts, Runtime
from xenoovs.agent.tasks import LoopCall
from xenoovs.agent.telemetry import telemetry
from xenoovs.cli.via import Options, Reach, reaching
from xenoovs.controller.server import port_states
from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import ConfigError, ListenError, RequestRefused, SameBridge, StateUnusable, SwitchError
from xenoovs.log import start_logging, warn
from xenoovs.model.balancer import Balancer, ProbeKind, Uplinks
from xenoovs.model.load import parse_config, read_config
from xenoovs.regex import DOTALL, MULTILINE, regex
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.vip_routes import VipRoutes, device_of, read_bgp_routes
from xenoovs.switch.vswitchd import place_of
from xenoovs.terminal.defaults import labs
from xenoovs.terminal.options import listen_address
from xenoovs.terminal.reach import connect, find_places, target_options

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

    from xenoovs.agent.fleet import FleetMember
    from xenoovs.controller.bridge import ExpectedBridge
    from xenoovs.controller.mastership import Mastership

_START_GC_THRESHOLD = 2_000_000
"""Above the number of objects of a thousand services, more than a million."""


@dataclass(frozen=True, slots=True)
class BridgeAgent:
    """A bridge, its config file, and what is opened for its agent.

    Attributes:
        read: Returns its config; raises ConfigError, ConfigUnreadable, OtherBridge.
        name: Names its socket, lock and run-time state, and is the value of `--bridge`.
        listener: At the control socket, whose path is `control`.
        runtime: The file of its run-time overrides.
    """

    read: Callable[[], ConfigFile]
    path: Path
    uplinks: Uplinks
    name: str
    listener: ApiListener | None = None
    control: Path | None = None
    runtime: Path | None = None
    locks: BridgeLocks | None = None


def configured_bridges(
    options: Options, switch: ManagementSwitch, fleet: ConfigFile | None = None
) -> tuple[BridgeAgent, ...]:
    """Return the bridges of one process, each with its config. Of several files, only the bridge is read, if possible.

    `switch`: the Open vSwitch of this host. `fleet`: the config of a member of a fleet, in place of those of the files.
    Raises click.UsageError, ConfigError, ConfigUnreadable, LabError, SameBridge.
    """
    files, lab, datapath_id = options.configs, options.lab, options.datapath_id
    # A controller refuses a config that later names another bridge.
    is_bound = len(files) > 1 and not options.is_controller
    if datapath_id is not None and len(files) > 1:
        raise click.UsageError("--datapath-id is for one bridge: with several, write `datapath_id` in the config.")
    bridges = []
    for file in files:
        uplinks = _peeked(file) if len(files) > 1 and lab is None else None
        if uplinks is not None:
            read = partial(_config, file, options, bridge=uplinks.label if is_bound else None)
        else:
            config = fleet or _config(file, options)
            uplinks, read = _uplinks(config.balancer.uplinks, datapath_id), partial(_itself, config)
        name = _name(uplinks, switch) if options.is_controller else uplinks.bridge
        bridges.append(BridgeAgent(read, file, uplinks, name))
    for one, other in combinations(bridges, 2):
        if _may_be_one(one.uplinks, other.uplinks):
            raise SameBridge(files=(str(one.path), str(other.path)), bridge=other.uplinks.label)
    return tuple(bridges)


_SWITCH = regex(rb"^switch:.*?(?=^[^\s#]|\Z)", MULTILINE | DOTALL)


def _peeked(file: Path) -> Uplinks | None:
    """Return the bridge of a config without the rest, which may take seconds; None if all must be read."""
    if not file.is_file() or (found := _SWITCH.search(read_config(file))) is None:
        return None
    with suppress(ConfigError):
        return parse_config(b"version: 1\nservices: []\n" + found[0], file=str(file)).uplinks
    return None


def _config(file: Path, options: Options, *, bridge: str | None = None) -> ConfigFile:
    """Return the config in a file. `bridge`: the only one that it may name; None for any."""
    if options.lab is not None:
        config = ConfigFile(file, labs().config_parser_of(options.lab))
    else:
        config = ConfigFile(file) if bridge is None else ConfigFile(file, partial(parse_bound, bridge=bridge))
    if not options.allow_exec:
        _refuse_programs(config.balancer, options.exec_option)
    return config


def _itself(config: ConfigFile) -> ConfigFile:
    return config


def _uplinks(uplinks: Uplinks, datapath_id: int | None) -> Uplinks:
    if datapath_id is None:
        return uplinks
    if uplinks.datapath_id not in (None, datapath_id):
        raise click.UsageError(f"--datapath-id {datapath_id:016x}: the config says {uplinks.datapath_id:016x}.")
    return replace(uplinks, datapath_id=datapath_id)


def _may_be_one(one: Uplinks, other: Uplinks) -> bool:
    ids = {one.datapath_id, other.datapath_id}
    return len(ids - {None}) < 2 and (one.bridge == other.bridge or None not in ids)


def _name(uplinks: Uplinks, switch: ManagementSwitch) -> str:
    """Return the bridge's own name if it is on this host, so that two agents cannot use it, and commands find it."""
    if uplinks.datapath_id is None:
        return uplinks.bridge
    try:
        states = switch.bridges() if switch.endpoint.rundir is not None else ()
    except SwitchError:
        states = ()
    mine = uplinks.bridge, f"{uplinks.datapath_id:016x}"
    return uplinks.bridge if mine in {(state.name, state.datapath_id) for state in states} else uplinks.label


def run(options: Options) -> None:
    """Run agents until signals stop them. Raises click.UsageError, XenoovsError."""
    start_logging(is_json=options.log == "json")
    started = _starting()
    switch = connect()
    places = local_places(switch, options)
    with ExitStack() as stack:
        config: ConfigFile | None = None
        joined: Callable[[Agent], FleetMember | None] | None = None
        if options.fleet is not None:
            # Imported here: only members of a fleet need the library `ovs`.
            from xenoovs.cli.agent_fleet import joined_fleet

            config, joined = stack.enter_context(joined_fleet(options, places))
        bridges = configured_bridges(options, switch, config)
        options.check_several(len(bridges))
        opened, ports = stack.enter_context(open_sockets(options, places, bridges))

        async def run_all() -> None:
            group, join = AgentGroup(), joined or (lambda _agent: None)

            def made(agent: Agent) -> None:
                agent.store.subscribe(RoundFacts, lambda _: started() if len(group.agents) == len(opened) else None)

            with reaching(tuple(one.uplinks for one in opened), options) as reach:
                handle_signals(asyncio.get_running_loop(), group)
                await run_agents(group, opened, ports, reach, switch, options, made=made, joined=join)

        asyncio.run(run_all())


def _starting() -> Callable[[], None]:
    """Collect garbage rarely until the returned function is called; objects made by then are not searched again."""
    usual = gc.get_threshold()[0]
    gc.set_threshold(_START_GC_THRESHOLD)

    def end() -> None:
        if gc.get_threshold()[0] != usual:
            gc.freeze()
            gc.set_threshold(usual)

    return end


def _refuse_programs(balancer: Balancer, option: str) -> None:
    """Refuse programs that no option allows: their probes would fail healthy backends. Raises click.UsageError."""
    for service in balancer.services:
        what = "runs a program when a state changes (notify)" if service.notify is not None else ""
        if service.health is not None and service.health.probe is ProbeKind.EXEC:
            what = what or "probes its backends with a program (probe: exec)"
        if what:
            raise click.UsageError(f"Service {service.name} {what}: add {option} to let the agent run it.")


async def run_agents(
    group: AgentGroup,
    opened: Sequence[BridgeAgent],
    ports: Sequence[ApiListener],
    reach: Reach,
    switch: ManagementSwitch,
    options: Options,
    *,
    made: Callable[[Agent], None] = lambda _agent: None,
    joined: Callable[[Agent], FleetMember | None] = lambda _agent: None,
) -> None:
    """Run agents. Serve each at its own socket, and all of them at the TCP ports of the API and the page, which they
    share. `made`: called with each agent. `joined`: returns it as a member of its fleet."""
    is_one = len(opened) == 1
    # All agents of this process share its descriptors.
    probes = max_probes(raise_descriptor_limit() // len(opened))

    async def start(one: BridgeAgent) -> Agent | None:
        """Return an agent with all its parts; None if this process ends."""
        async with group.turn:
            if group.is_stopping:
                return None
            config = await asyncio.to_thread(one.read)
        neighbours, source_ports = Neighbours(), SourcePorts()
        await asyncio.to_thread(neighbours.settle, config.balancer)
        # The engine compares the bridge with the desired state, and changes it.
        engine, expected = reach(one.uplinks, lambda balancer: source_ports.resolve(neighbours.resolve(balancer)))
        master = None if expected is None else expected.mastership
        commands: Callable[[], str] = str
        # The file keeps overrides and pauses over restarts; controllers of one bridge share its content.
        runtime = None if one.runtime is None else RuntimeFile(one.runtime)
        if master is not None and one.runtime is not None:
            runtime = SharedRuntimeFile(one.runtime, master)
        if one.control is not None:
            places = None if options.control is not None else local_places(switch, options)
            target = target_options(options.db, options.lab)
            commands = partial(command_options, one.control.absolute(), places, target=target)
        settings = Settings(
            options.resync_s,
            options.confirm_s,
            runtime,
            probes,
            hold=one.locks.hold if one.locks is not None and expected is None else lambda _bridges: None,
            refusal=(lambda: None) if master is None else partial(standby_refusal, master),
            command_options=commands,
        )
        probe = Prober(exec_allowed=options.allow_exec, exec_option=options.exec_option).probe
        agent = Agent(config, engine, probe=probe, settings=settings)
        if master is not None:
            share_runtime(agent, master, control=one.control)
        agent.routes = _routes(agent, options)
        # Ports and links of the bridge: from its connection, or from the database of Open vSwitch.
        if expected is None:
            agent.watch_bridge(switch.endpoint.db)
        else:
            changed = partial(_changed, agent, expected)
            expected.on_change(LoopCall(asyncio.get_running_loop(), changed))
            # The bridge may have connected before.
            changed()
        # MACs of backends that the config gives by their addresses.
        agent.add_task(lambda: neighbours.follow(lambda: agent.config.balancers, on_change=agent.request_round))
        # Samples of the datapath: what the hardware does with each block, which a fleet compares during roll-outs.
        is_always = options.fleet is not None or any(where is not None for _, where in options.served)
        use, interval_s = RuleUse.at(switch.endpoint), options.offload_interval_s
        agent.add_task(OffloadSampler(agent.store, engine.switch, use, interval_s=interval_s, is_always=is_always).run)
        # The control API, metrics and the status page, at each socket.
        own = () if one.listener is None else (one.listener,)
        agent.add_task(*(partial(serve, agent, listener) for listener in (*own, *(ports if is_one else ()))))
        # Membership in a fleet: follows its store, votes on health, reports what is installed.
        if (member := joined(agent)) is not None:
            agent.add_task(member.follow, member.run)
        if not options.once:
            _add_lasting_parts(agent, switch.endpoint, source_ports, device=one.name)
        made(agent)
        return agent

    starters: dict[str, Starter] = {one.uplinks.label: partial(start, one) for one in opened}
    beside = [] if is_one else [partial(serve_several, group.agents, listener) for listener in ports]
    await group.run(starters, once=options.once, beside=beside)


def _add_lasting_parts(agent: Agent, endpoint: Endpoint, source_ports: SourcePorts, *, device: str) -> None:
    """Add the parts that an agent with --once does not have. `device`: name of the bridge on this host."""

    def namespace() -> str | None:
        netns = place_of(endpoint).netns
        return None if netns is None else str(netns)

    def open_probe_port(device: str, *, is_listener: bool = False) -> ProbePort:
        # Open vSwitch has the devices in its network namespace.
        return ProbePort(device, netns=namespace(), is_listener=is_listener)

    def has_ipsec() -> bool:
        return bool(agent.used().ipsec_ports)

    again = agent.request_round
    # Policies of IPsec: a change starts a round.
    agent.add_task(partial(follow_ipsec, namespace, wanted=has_ipsec, request_round=again))
    # Paths of tunnels: probes them, and moves blocks between them.
    may_move = agent.is_deciding
    agent.add_mover(
        Mover(agent.store, agent.engine, source_ports, open_probe_port, is_deciding=may_move, request_round=again)
    )
    # Routes of VIPs, and whether the BGP speaker advertises them.
    announcer = Announcer(agent.store, VipRoutes(device_of(device, endpoint)), read_bgp_routes)
    agent.add_task(announcer.run, announcer.follow_bgp)


def _changed(agent: Agent, expected: ExpectedBridge) -> None:
    """Start a round after a change of a bridge that connects to this controller."""
    ports = port_states(expected.connection)
    agent.store.dispatch(BridgePorts(None if ports is None else {agent.bridge: ports}))
    agent.request_round()


def _routes(agent: Agent, options: Options) -> list[RouteDef]:
    """Return what is served besides the API: metrics, page, and XenoFlow's API."""
    shown = telemetry(agent, with_blocks=options.metrics_blocks)
    return shown if options.xenoflow_api is None else [*shown, *xenoflow_routes(agent)]


def local_places(switch: ManagementSwitch, options: Options) -> AgentPaths | None:
    """Return where sockets and locks are; None if there is no directory and --once needs none. Raises ListenError."""
    try:
        return find_places(switch.endpoint)
    except ListenError:
        if options.control is not None:
            return AgentPaths(options.control.absolute().parent, options.control.absolute().parent)
        if options.once:
            return None
        raise


@contextmanager
def open_sockets(
    options: Options, places: AgentPaths | None, bridges: tuple[BridgeAgent, ...]
) -> Iterator[tuple[list[BridgeAgent], list[ApiListener]]]:
    """Lock the bridges and open the sockets. Controllers that share a bridge agree by OpenFlow roles, without a lock.
    With --once nothing is opened and no lock is made, but it is an error if another agent holds the lock."""
    with ExitStack() as stack:
        agents, ports = list[BridgeAgent](), list[ApiListener]()
        for bridge in bridges:
            listener, control, locks = None, None, None
            if places is not None and not options.once:
                control = options.control or places.socket(bridge.name)
            is_locked = not options.once or (places is not None and places.lock(bridge.name).exists())
            if places is not None and is_locked and not options.redundant:
                locks = stack.enter_context(closing(BridgeLocks(places, control)))
                locks.hold((bridge.name,))
            if control is not None:
                listener = unix_listener(stack.enter_context(bound_socket(control)))
            runtime = None if places is None else places.runtime(bridge.name)
            agents.append(replace(bridge, listener=listener, control=control, runtime=runtime, locks=locks))
        if places is not None and not options.once:
            for option, where in options.served:
                if where is not None:
                    ports.append(_open_port(options, option, where))
        yield agents, ports


def _open_port(options: Options, option: str, where: str) -> ApiListener:
    tls = None if options.tls_cert is None or options.tls_key is None else (options.tls_cert, options.tls_key)
    # XenoFlow's dashboard has no token, and only reads.
    is_readable = option == "--xenoflow-api"
    place = listen_address(option, where)
    return open_port(*place, tls=tls, token_file=options.token_file, option=option, is_readable=is_readable)


# Run-time state that controllers of one bridge share: it is in the lease on the bridge, and in a file of each of them.

_ADOPT_TIMEOUT_S, _ROUND_TIMEOUT_S = 30.0, 2.0
"""A bridge that hangs may delay a round for longer, but not the adoption of the state."""


class SharedRuntimeFile(RuntimeFile):
    """The run-time state of one controller. Saving it also publishes it; a published state goes before the file."""

    def __init__(self, path: Path, mastership: Mastership) -> None:
        super().__init__(path)
        self._mastership = mastership

    def load(self) -> Runtime:
        """Return the published state, or else that of the file. Raises StateUnusable."""
        state = self._mastership.state
        if not state:
            runtime = super().load()
            self._mastership.publish(render_runtime(runtime).encode())
            return runtime
        self._mastership.publish(state)
        try:
            return parse_runtime(state)
        except ValueError as error:
            raise StateUnusable(path="the lease on the bridge", reason=str(error), renamed=None) from None

    def save(self, runtime: Runtime) -> None:
        """Save and publish the state. Blocks. Raises OSError, and then publishes nothing."""
        super().save(runtime)
        self._mastership.publish(render_runtime(runtime).encode())


def share_runtime(agent: Agent, mastership: Mastership, *, control: Path | None) -> None:
    """Make an agent adopt the state that other controllers publish. `control`: its socket, which they name to users."""
    loop = asyncio.get_running_loop()

    def adopt(state: bytes) -> None:
        try:
            runtime = parse_runtime(state)
        except ValueError as error:
            warn("the run-time state in the lease is unusable", bridge=agent.bridge, reason=str(error))
            return
        try:
            asyncio.run_coroutine_threadsafe(agent.adopt(runtime), loop).result(_ADOPT_TIMEOUT_S)
            asyncio.run_coroutine_threadsafe(agent.next_round(), loop).result(_ROUND_TIMEOUT_S)
        except (LateError, CancelledError, RuntimeError):
            # The state is adopted, or the agent ends. Only the end of the round was not awaited.
            return

    where = "" if control is None else f", --control {control}"
    mastership.share(f"{socket.gethostname()}, PID {os.getpid()}{where}", adopt)


def standby_refusal(mastership: Mastership) -> RequestRefused | None:
    """Return why requests are refused while another controller is master; None if this one is."""
    if mastership.is_master:
        return None
    bridge, master = mastership.label, mastership.holder
    reason = f"no controller is master of bridge {bridge} now; send the request again in a moment"
    if master:
        reason = f"another controller ({master}) is master of bridge {bridge}; send the request there"
    return RequestRefused(reason, status=409, code="standby")
