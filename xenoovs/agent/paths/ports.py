"""The source ports that select paths, as the agent found them. From any thread.

They need no file: the flows on the bridge name them, and the engine reads them back (compile.read.with_paths).
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from xenoovs.model.balancer import Balancer, RemoteName
from xenoovs.model.remote import with_source_ports
from xenoovs.model.tunnel import Discover, HostTunnel, PathSelector


class SourcePorts:
    """The source ports that were found, by tunnel and remote, in the order of the paths."""

    def __init__(self) -> None:
        self._found: Mapping[RemoteName, tuple[int, ...]] = {}
        self._lock = Lock()

    def resolve(self, balancer: Balancer) -> Balancer:
        """Return the balancer with the ports of now."""
        return with_source_ports(balancer, self._found)

    def set(self, name: RemoteName, ports: tuple[int, ...]) -> None:
        """Use these ports from now on."""
        with self._lock:
            self._found = {**self._found, name: ports}


def is_sought(tunnel: HostTunnel) -> bool:
    """Return whether the agent looks for the source ports of a tunnel's paths."""
    return tunnel.paths.by is PathSelector.SOURCE_PORT and tunnel.paths.discover is Discover.TTL
