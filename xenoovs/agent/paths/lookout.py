"""When paths are looked for: at once where they are not known, later to see whether those in use still differ."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from xenoovs.agent.log import warn
from xenoovs.agent.paths.discover import in_places
from xenoovs.agent.paths.frame import Quote
from xenoovs.agent.paths.ports import is_sought
from xenoovs.agent.paths.search import PathSearch

if TYPE_CHECKING:
    from xenoovs.agent.paths.mover import Mover
    from xenoovs.agent.paths.remote import ProbedRemote

_RETRY_S = 10.0
"""After a search that could not be made."""
_CHECK_S = 60.0
"""Between two checks whether the ports in use take different paths: after a change of routes they hash differently."""
AFTER_FAILURE_S = 1.0
"""After a path has failed: routes of the fabric may have changed by then."""
_MORE_S = 600.0
"""Between two searches for paths that are missing."""


class Lookout:
    """Searches of one agent, one after the other: a router answers all of them from one budget of ICMP."""

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self._due_s: dict[str, float] = {}
        self._more_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._search: PathSearch | None = None

    def request(self, name: str, *, at_s: float = 0.0) -> None:
        """Search for the paths of a remote from this time on. `name`: of its service."""
        self._due_s[name] = min(at_s, self._due_s.get(name, at_s))
        self._more_s[name] = 0.0

    def quoted(self, quote: Quote) -> None:
        """Count the ICMP error of a router about a probe."""
        if self._search is not None:
            self._search.quoted(quote)

    def look(self, now_s: float) -> None:
        """Begin the next search that is due."""
        if self._task is not None and not self._task.done():
            return
        if self._task is not None:
            # An error that is no refusal of the network ends the agent, as in any other task.
            self._task.result()
        self._task = self._search = None
        sought = {name: remote for name, remote in self._mover.remotes.items() if is_sought(remote.tunnel)}
        for name, remote in sought.items():
            self._due_s.setdefault(name, now_s + _CHECK_S if remote.paths else now_s)
        # Those that wait longest go first: where routers are silent a search takes seconds.
        for name in sorted((name for name in sought if now_s >= self._due_s[name]), key=self._due_s.__getitem__):
            remote = sought[name]
            self._due_s[name] = now_s + (_CHECK_S if remote.paths else _RETRY_S)
            if (search := self._new_search(remote, now_s)) is not None:
                self._search = search
                self._task = asyncio.create_task(self._run(search, remote, now_s))
                return

    async def stop(self) -> None:
        """Cancel the search under way."""
        if self._task is not None:
            self._task.cancel()
            # Its own error, if it has failed, must not keep the sockets open.
            await asyncio.wait([self._task])

    def _new_search(self, remote: ProbedRemote, now_s: float) -> PathSearch | None:
        """Return a search; None: nothing can be sent to the remote now."""
        gateway, port = self._mover.gateway(remote), self._mover.devices.port(remote.probe.port, now_s)
        if gateway is None or port is None:
            self._due_s[remote.service.name] = now_s + 0.5
            return None
        addresses = remote.addresses(port.mac, gateway, remote.remote.address)
        return PathSearch(remote.tunnel, remote.remote, addresses, port.send)

    async def _run(self, search: PathSearch, remote: ProbedRemote, now_s: float) -> None:
        name, in_use = remote.service.name, tuple(path.source_port for path in remote.paths)
        try:
            doubled = await search.doubled(in_use) if in_use else ()
            keep = tuple(port for port in in_use if port not in doubled)
            is_more_due = len(keep) < remote.tunnel.paths.count and now_s >= self._more_s.get(name, 0.0)
            if doubled or not in_use or is_more_due:
                self._more_s[name] = now_s + _MORE_S
                found = await search.find(keep=keep)
                if (ports := in_places(remote.source_ports, found)) != remote.source_ports:
                    self._mover.source_ports.set(remote.name, ports)
                    self._mover.agent.request_round()
        except OSError as error:
            warn("search for paths failed", remote=name, reason=error.strerror or str(error))
        # A new value of the remote may have taken its place, with the ports that were found.
        self._mover.remotes.get(name, remote).hops.update(search.hops)
