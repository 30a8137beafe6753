"""The source ports that select paths: found by the agent, put into the balancer of each round. From any thread.

They need no file: the flows on the bridge name them, and a restarted agent probes the same ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock

from xenoovs.compile.pipeline import PROGRAM
from xenoovs.compile.read import read
from xenoovs.decision.decision import Decision, Owner
from xenoovs.model.balancer import Balancer, RemoteName, service_ids
from xenoovs.model.next_hop import SourcePort, parse_next_hop
from xenoovs.model.remote import every_service, remotes_of, with_source_ports
from xenoovs.model.tunnel import Discover, HostTunnel, PathSelector
from xenoovs.switch.api import Switch


class SourcePorts:
    """The source ports that were found, by tunnel and remote, in the order of the paths.

    Attributes:
        switch: Where flows name the ports that an earlier agent found; None: nothing is read back.
        is_read: Whether they were read, or there is nothing to read.
    """

    def __init__(self) -> None:
        self.switch: Switch | None = None
        self.is_read = False
        self._found: Mapping[RemoteName, tuple[int, ...]] = {}
        self._lock = Lock()

    @property
    def found(self) -> Mapping[RemoteName, tuple[int, ...]]:
        return self._found

    def resolve(self, balancer: Balancer) -> Balancer:
        """Return the balancer with the ports of now; the first time with those of the bridge. Raises SwitchError."""
        if not self.is_read and self.switch is not None and any(map(is_sought, balancer.tunnels)):
            flows = self.switch.dump_flows(balancer.uplinks.bridge, only=PROGRAM)
            self._adopt(balancer, read(flows, balancer)[0])
        self.is_read = True
        return self.known(balancer)

    def known(self, balancer: Balancer) -> Balancer:
        """Return the balancer with the ports of now, at once."""
        return with_source_ports(balancer, self._found)

    def set(self, name: RemoteName, ports: tuple[int, ...]) -> None:
        """Use these ports from now on."""
        with self._lock:
            self._found = {**self._found, name: ports}

    def _adopt(self, balancer: Balancer, on_bridge: Decision) -> None:
        decided = dict(on_bridge.services)
        ids = service_ids(service.claim for service in every_service(balancer))
        for tunnel, remote, service in remotes_of(balancer):
            found = decided.get(ids[service.claim])
            if found is None or not is_sought(tunnel):
                continue
            ports = sorted(set(filter(None, map(_port_of, found.home.owners | found.active.owners))))
            if ports:
                self.set((tunnel.name, remote.name), tuple(ports[: tunnel.paths.count]))


def is_sought(tunnel: HostTunnel) -> bool:
    """Return whether the agent looks for the source ports of a tunnel's paths."""
    return tunnel.paths.by is PathSelector.SOURCE_PORT and tunnel.paths.discover is Discover.TTL


def _port_of(owner: Owner) -> int | None:
    """Return the source port of an owner that no backend of the config is."""
    with suppress(ValueError):
        hop = parse_next_hop(owner)
        return hop.source_port if isinstance(hop, SourcePort) else None
    return None
