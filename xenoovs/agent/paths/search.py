"""Looks for source ports on different paths: when they are not known, and later whether those in use still differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import SystemRandom

from xenoovs.agent.log import info, warn
from xenoovs.agent.paths.discover import CANDIDATES, TRIES, WAIT_S, Search, hops_text
from xenoovs.agent.paths.frame import Addresses, Quote, Token, payload, probe_head
from xenoovs.model.remote import any_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, HostTunnel, Remote

_CHANCE = SystemRandom()
_NO_TOKEN = Token(0, 0, 0)
_GAP_S = 0.002
"""Between two probes: 144 of them take a third of a second, and no router gets a burst."""

_LEAST_PATHS = 2
"""One path is what silent spines look like; ports that may share a path do no harm."""

Send = Callable[[bytes], object]


class PathSearch:
    """A search under way for one remote. Its answers come by `quoted`."""

    def __init__(self, tunnel: HostTunnel, remote: Remote, addresses: Addresses, send: Send) -> None:
        self.tunnel, self.remote = tunnel, remote
        self.hops: dict[int, str] = {}
        self._addresses, self._send = addresses, send
        self._search: Search | None = None

    def quoted(self, quote: Quote) -> None:
        """Count the ICMP error of a router about a probe."""
        if self._search is not None:
            self._search.quoted(quote)

    async def find(self, *, keep: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return source ports on different paths, those to keep first, at most as many as the tunnel has paths.

        Where routers are silent, they are ports that no search has found.
        """
        count = self.tunnel.paths.count
        search = await self._ask((*keep, *_candidates()), lambda asked: len(asked.differing(count, keep=keep)) >= count)
        found = search.differing(count, keep=keep)
        name = f"{self.tunnel.name}/{self.remote.name}"
        if len(found) < _LEAST_PATHS or (len(found) < count and search.has_gap):
            warn("routers are silent; source ports are chosen without them", remote=name, found=len(found))
            others = (port for port in any_source_ports(self.tunnel, self.remote) if port not in found)
            return (*found, *others)[:count]
        if len(found) < count:
            warn("fewer paths than configured", remote=name, found=len(found), configured=count)
        found = found if keep else tuple(sorted(found))
        info("paths found", remote=name, ports=",".join(map(str, found)))
        return found

    async def doubled(self, in_use: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ports in use that take the path of another one."""
        search = await self._ask(in_use, lambda asked: not asked.has_missing)
        return search.same(in_use)

    async def _ask(self, ports: tuple[int, ...], is_enough: Callable[[Search], bool]) -> Search:
        """Send probes until there are answers enough, or the tries are over."""
        search = self._search = Search(self.remote.address, ports, _idents())
        for number in range(TRIES):
            for probe in search.probes():
                head = probe_head(self._addresses, probe.source_port, ttl=probe.ttl, ident=probe.ident)
                self._send(head + payload(_NO_TOKEN))
                await asyncio.sleep(_GAP_S)
            await asyncio.sleep(WAIT_S[number])
            if is_enough(search):
                break
        self.hops |= {port: hops_text(routers) for port in ports if (routers := search.routers(port))}
        return search


def _candidates() -> tuple[int, ...]:
    return tuple(_CHANCE.sample(range(DYNAMIC_PORTS.first, DYNAMIC_PORTS.last + 1), CANDIDATES))


def _idents() -> Iterator[int]:
    while True:
        yield _CHANCE.randrange(1 << 16)
