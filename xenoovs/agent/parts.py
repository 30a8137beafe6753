"""The parts of an agent: all that runs beside its rounds, from its start to its end.

Three more belong to every agent, and `Agent.run` starts them: its probes (`scheduler`), notifications (`notify`), and
the count of packets during drains. Each part reads the state, and writes to it by events.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from xenoovs.agent.announce import Announcer
from xenoovs.agent.bridge_watch import follow_ipsec
from xenoovs.agent.control.serve import ApiListener, serve
from xenoovs.agent.daemon import Agent
from xenoovs.agent.neighbour import Neighbours
from xenoovs.agent.offload import OffloadSampler
from xenoovs.agent.paths.devices import ProbePort
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.search import SourcePorts
from xenoovs.datapath.fact import Unknown
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.vip_routes import VipRoutes, device_of, read_bgp_routes
from xenoovs.switch.vswitchd import netns_of

if TYPE_CHECKING:
    from xenoovs.agent.fleet import FleetMember


def add_parts(
    agent: Agent,
    *,
    endpoint: Endpoint,
    device: str,
    neighbours: Neighbours,
    source_ports: SourcePorts,
    sampler: OffloadSampler,
    listeners: Iterable[ApiListener],
    member: FleetMember | None,
    has_ports: bool,
    once: bool,
) -> None:
    """Register the parts of an agent that does not run yet.

    Args:
        endpoint: Of the Open vSwitch of this host.
        device: Name of the bridge on this host.
        listeners: Where the agent is served.
        member: Of a fleet; None if it is in none.
        has_ports: Whether the connection of the bridge reports its ports.
        once: The agent ends after one round.
    """
    # Ports and links of the bridge, from the database of Open vSwitch.
    if not has_ports:
        agent.watch_bridge(endpoint.db)
    # MACs of backends that the config gives by their addresses.
    agent.add_task(lambda: neighbours.follow(lambda: agent.config.balancers, on_change=agent.request_round))
    # Offload: samples of the datapath, and what the hardware does with each block.
    agent.add_task(lambda: sampler.run(agent.store.dispatch))
    # The control API, metrics and the status page, at each socket.
    agent.add_task(*(partial(serve, agent, listener) for listener in listeners))
    # Membership in a fleet: follows its store, votes on health, reports what is installed.
    if member is not None:
        agent.add_task(member.follow, member.run)
    if once:
        return
    # Policies of IPsec: a change starts a round.
    locate = partial(_switch_namespace, endpoint)
    agent.add_task(partial(follow_ipsec, locate, wanted=partial(_has_ipsec, agent), request_round=agent.request_round))
    # Paths of tunnels: probes them, and moves blocks between them.
    opened, again = partial(_open_probe_port, endpoint), agent.request_round
    is_deciding = agent.is_deciding
    agent.add_mover(
        Mover(agent.store, agent.engine, source_ports, opened, is_deciding=is_deciding, request_round=again)
    )
    # Routes of VIPs, and whether the BGP speaker advertises them.
    announcer = Announcer(agent.store, VipRoutes(device_of(device, endpoint)), read_bgp_routes)
    agent.add_task(announcer.run, announcer.follow_bgp)


def _has_ipsec(agent: Agent) -> bool:
    return bool(agent.used().ipsec_ports)


def _open_probe_port(endpoint: Endpoint, device: str, *, is_listener: bool = False) -> ProbePort:
    """Open a packet socket in the network namespace of Open vSwitch, which has the devices. Raises OSError."""
    return ProbePort(device, netns=_switch_namespace(endpoint), is_listener=is_listener)


def _switch_namespace(endpoint: Endpoint) -> str | None:
    place = netns_of(endpoint)
    return None if isinstance(place, Unknown) or place.netns is None else str(place.netns)
