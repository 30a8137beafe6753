"""Searches for source ports on different paths if they are unknown, and later checks that those in use differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import SystemRandom

from xenoovs.agent.paths.devices import Devices
from xenoovs.agent.paths.frame import (
    CANDIDATES,
    WAIT_S,
    Quote,
    Search,
    Token,
    TtlProbe,
    hops_text,
    in_places,
    payload,
    probe_head,
)
from xenoovs.agent.paths.remote import ProbedRemote
from xenoovs.errors import fault_text
from xenoovs.log import info, warn
from xenoovs.model.balancer import Balancer, RemoteName
from xenoovs.model.remote import any_source_ports, with_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, Discover, HostTunnel, PathSelector

_CHANCE = SystemRandom()
_NO_TOKEN = Token(0, 0, 0)
_GAP_S = 0.002
"""Pause between two probes, so that no router gets a burst: 144 probes take a third of a second."""

_LEAST_PATHS = 2
"""With silent spines a search finds one path. Then other ports are used, which may share a path without harm."""

Send = Callable[[TtlProbe], object]


# The source ports that were found. They are not saved in a file, because the engine reads them from the flows on the
# bridge (compile.read.with_paths).


class SourcePorts:
    """The source ports that were found, by tunnel and remote, in the order of the paths. Any thread may read them."""

    def __init__(self) -> None:
        self._found: Mapping[RemoteName, tuple[int, ...]] = {}

    def resolve(self, balancer: Balancer) -> Balancer:
        return with_source_ports(balancer, self._found)

    def set(self, name: RemoteName, ports: tuple[int, ...]) -> None:
        """Use these ports from now on."""
        self._found = {**self._found, name: ports}


def is_sought(tunnel: HostTunnel) -> bool:
    """Return whether the agent searches for the source ports of a tunnel's paths."""
    return tunnel.paths.by is PathSelector.SOURCE_PORT and tunnel.paths.discover is Discover.TTL


# When searches are made.


_RETRY_S = 10.0
"""Pause after a search that could not be made."""
_CHECK_S = 60.0
"""Time between two checks that the ports in use have different paths, because routes may change."""
AFTER_FAILURE_S = 1.0
"""Delay of a search after a path has failed, in which the routes of the fabric may change."""
_MORE_S = 600.0
"""Time between two searches for missing paths."""


class Lookout:
    """Searches of one agent, one after the other, because a router limits its ICMP for all of them together."""

    def __init__(
        self,
        devices: Devices,
        gateway: Callable[[ProbedRemote], bytes | None],
        source_ports: SourcePorts,
        request_round: Callable[[], None],
    ) -> None:
        """Bind it to an agent. `gateway`: returns the MAC to which probes of a remote are sent, 6 bytes."""
        self._devices, self._gateway, self._source_ports = devices, gateway, source_ports
        self._request_round = request_round
        self._remotes: Mapping[str, ProbedRemote] = {}
        self._due_s: dict[str, float] = {}
        self._more_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._search: Search | None = None

    def request(self, name: str, *, at_s: float = 0.0) -> None:
        """Request a search for the paths of a remote at this time. `name`: of its service."""
        self._due_s[name] = min(at_s, self._due_s.get(name, at_s))
        self._more_s[name] = 0.0

    def quoted(self, quote: Quote) -> None:
        """Count the ICMP error of a router about a probe."""
        if self._search is not None:
            self._search.quoted(quote)

    def look(self, remotes: Mapping[str, ProbedRemote], now_s: float) -> None:
        """Begin the next search that is due. `remotes`: those that are probed, by the names of their services."""
        self._remotes = remotes
        if self._task is not None and not self._task.done():
            return
        self._task = self._search = None
        sought = {name: remote for name, remote in remotes.items() if is_sought(remote.tunnel)}
        for known in (self._due_s, self._more_s):
            for name in known.keys() - sought.keys():
                del known[name]
        for name, remote in sought.items():
            self._due_s.setdefault(name, now_s + _CHECK_S if remote.paths else now_s)
        # Those that have waited longest go first, because a search with silent routers takes seconds.
        for name in sorted((name for name in sought if now_s >= self._due_s[name]), key=self._due_s.__getitem__):
            remote = sought[name]
            self._due_s[name] = now_s + (_CHECK_S if remote.paths else _RETRY_S)
            if (send := self._sender(remote, now_s)) is not None:
                self._task = asyncio.create_task(self._run(send, remote, now_s))
                return

    async def stop(self) -> None:
        """Cancel the running search."""
        if self._task is not None:
            self._task.cancel()
            # An error of the search must not keep the sockets open.
            await asyncio.wait([self._task])

    def _sender(self, remote: ProbedRemote, now_s: float) -> Send | None:
        """Return a function that sends a probe; None if no packet can be sent to the remote now."""
        gateway, port = self._gateway(remote), self._devices.port(remote.probe.port, now_s)
        if gateway is None or port is None:
            self._due_s[remote.service.name] = now_s + 0.5
            return None
        addresses, send = remote.addresses(port.mac, gateway, remote.remote.address, remote.way_back_tos), port.send

        def send_probe(probe: TtlProbe) -> None:
            head = probe_head(addresses, probe.source_port, ttl=probe.ttl, ident=probe.ident)
            send(head + payload(_NO_TOKEN))

        return send_probe

    async def _run(self, send: Send, remote: ProbedRemote, now_s: float) -> None:
        name, in_use = remote.service.name, tuple(path.source_port for path in remote.paths)
        try:
            keep = in_use
            if in_use:
                search = await self._ask(send, remote, in_use, lambda asked: not asked.has_missing)
                doubled = search.same(in_use)
                keep = tuple(port for port in in_use if port not in doubled)
            is_more_due = len(keep) < remote.tunnel.paths.count and now_s >= self._more_s.get(name, 0.0)
            if keep != in_use or not in_use or is_more_due:
                self._more_s[name] = now_s + _MORE_S
                found = await self._find(send, remote, keep)
                if (ports := in_places(remote.source_ports, found)) != remote.source_ports:
                    self._source_ports.set(remote.name, ports)
                    self._request_round()
        except Exception as error:  # noqa: BLE001 - one search must not end the probes of all paths.
            reason = error.strerror or str(error) if isinstance(error, OSError) else fault_text(error)
            warn("search for paths failed", remote=name, reason=reason)

    async def _find(self, send: Send, remote: ProbedRemote, keep: tuple[int, ...]) -> tuple[int, ...]:
        """Return source ports on different paths, those to keep first, at most as many as the tunnel has paths. If
        routers are silent, ports are added without a search."""
        count, name = remote.tunnel.paths.count, "/".join(remote.name)
        candidates = _CHANCE.sample(range(DYNAMIC_PORTS.first, DYNAMIC_PORTS.last + 1), CANDIDATES)
        ports = (*keep, *candidates)
        search = await self._ask(send, remote, ports, lambda asked: len(asked.differing(count, keep=keep)) >= count)
        found = search.differing(count, keep=keep)
        if len(found) < _LEAST_PATHS or (len(found) < count and search.has_gap):
            warn("routers are silent; source ports are chosen without them", remote=name, found=len(found))
            others = (port for port in any_source_ports(remote.tunnel, remote.remote) if port not in found)
            return (*found, *others)[:count]
        if len(found) < count:
            warn("fewer paths than configured", remote=name, found=len(found), configured=count)
        found = found if keep else tuple(sorted(found))
        info("paths found", remote=name, ports=",".join(map(str, found)))
        return found

    async def _ask(
        self, send: Send, remote: ProbedRemote, ports: tuple[int, ...], is_enough: Callable[[Search], bool]
    ) -> Search:
        """Send probes by these source ports until enough routers have answered, or all tries are over."""
        search = self._search = Search(remote.remote.address, ports, _idents())
        for wait_s in WAIT_S:
            for probe in search.probes():
                send(probe)
                await asyncio.sleep(_GAP_S)
            await asyncio.sleep(wait_s)
            if is_enough(search):
                break
        # The remote may have been replaced by a new value.
        hops = {port: hops_text(routers) for port in ports if (routers := search.routers(port))}
        self._remotes.get(remote.service.name, remote).note_hops(hops)
        return search


def _idents() -> Iterator[int]:
    while True:
        yield _CHANCE.randrange(1 << 16)
