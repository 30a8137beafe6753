"""The MACs of backends that are given by their address alone: found on the network, and followed when they change.

The kernel finds them: a datagram to the address makes it ask (ARP, RFC 826; neighbour discovery, RFC 4861), and its
table of neighbours has the answer. Probes of such a backend keep that table fresh.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from xenoovs.agent.log import tell, warn
from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import Via
from xenoovs.errors import MacUnknown, ParseError, SwitchError
from xenoovs.model.address import Mac, parse_mac
from xenoovs.model.balancer import Balancer, Macs, Sought, sought, with_macs
from xenoovs.switch.devices import read_neighbours

_DISCARD_PORT = 9
"""RFC 863: whatever comes there is thrown away. The datagram is empty."""
_LOOK_S = 1.0
_NUDGE_S = 10.0
"""So often the kernel is made to ask for all of them, so that entries of the table do not grow old."""
_STEP_S = 0.05
_PATIENCE_S = 3.0
_AT_FIRST_S = 1.0
"""So long a round waits for addresses that come for the first time. Who was found already is followed meanwhile."""


class Neighbours:
    """What is known of the MACs. `look` blocks and may run in a thread; `resolve` is asked by rounds."""

    def __init__(self) -> None:
        self.macs: Macs = {}
        self._asked: frozenset[Sought] = frozenset()
        self._nudged_s = float("-inf")

    def resolve(self, balancer: Balancer) -> Balancer:
        """With the MACs of now; a backend without one gets no clients. Raises MacUnknown where a service has none.

        Waits for addresses that come for the first time, as those of a new config do.
        """
        if any(one not in self._asked for one in sought(balancer)):
            with suppress(SwitchError, ParseError):
                self.settle(balancer, timeout_s=_AT_FIRST_S)
        resolved = with_macs(balancer, self.macs)
        for had, service in zip(balancer.services, resolved.services, strict=True):
            if any(had.weights) and not any(service.weights):
                raise MacUnknown(unknown=_unknown(balancer, self.macs))
        return resolved

    def look(self, *balancers: Balancer) -> Mapping[Sought, Mac]:
        """Read the table, and ask for what it lacks. What is new in it. Raises SwitchError, ParseError."""
        wanted = _all_sought(balancers)
        found = _known(wanted)
        everybody = time.monotonic() >= self._nudged_s + _NUDGE_S
        nudge(wanted if everybody else [one for one in wanted if one not in found])
        if everybody:
            self._nudged_s = time.monotonic()
        news = {one: mac for one, mac in found.items() if self.macs.get(one) != mac}
        # Who is silent for a while keeps the MAC that it had: health checks decide about its clients.
        self.macs = {**self.macs, **found}
        return news

    def settle(self, balancer: Balancer, *, timeout_s: float = _PATIENCE_S) -> None:
        """Look until all are found or the time is over. Raises SwitchError, ParseError."""
        wanted, deadline = sought(balancer), time.monotonic() + timeout_s
        self._asked = self._asked.union(wanted)
        while any(one not in self.macs for one in wanted):
            self.look(balancer)
            if time.monotonic() >= deadline:
                return
            time.sleep(_STEP_S)

    async def follow(self, balancers: Callable[[], tuple[Balancer, ...]], *, changed: Callable[[], None]) -> None:
        """Look every second, until cancelled. `balancers`: the one in use, and one that waits until it can be.

        `changed`: called when a MAC is another one than before.
        """
        last, names = tuple[Balancer, ...](), dict[Sought, tuple[str, ...]]()
        while True:
            # Thousands of backends are not gone through each second to find that none has to be looked for.
            if (now := balancers()) != last:
                last, names = now, _all_sought(now)
                self.macs = {one: mac for one, mac in self.macs.items() if one in names}
            if names:
                before = dict(self.macs)
                with suppress(SwitchError, ParseError):
                    news = await asyncio.to_thread(self.look, *now)
                    for one, mac in news.items():
                        _tell(names.get(one, ()), one, mac, before.get(one))
                    if news:
                        changed()
            await asyncio.sleep(_LOOK_S)


def resolve_now(balancer: Balancer, *, timeout_s: float = _PATIENCE_S) -> Balancer:
    """The balancer with all MACs, found within this time. Raises MacUnknown, SwitchError."""
    neighbours = Neighbours()
    neighbours.settle(balancer, timeout_s=timeout_s)
    unknown = _unknown(balancer, neighbours.macs)
    if unknown:
        raise MacUnknown(unknown=unknown)
    return with_macs(balancer, neighbours.macs)


def nudge(wanted: Iterable[Sought]) -> None:
    """Make the kernel ask for these addresses; whoever cannot be sent to stays unknown."""
    for one in wanted:
        via = Via(one.interface or None, one.netns or None)
        with suppress(OSError), open_socket(one.address, socket.SOCK_DGRAM, via) as sock:
            sock.sendto(b"", (host_of(one.address), _DISCARD_PORT))


def _all_sought(balancers: Iterable[Balancer]) -> dict[Sought, tuple[str, ...]]:
    return {one: names for balancer in balancers for one, names in sought(balancer).items()}


def _known(wanted: Iterable[Sought]) -> dict[Sought, Mac]:
    tables = {netns: read_neighbours(netns) for netns in sorted({one.netns for one in wanted})}
    return {
        one: parse_mac(neighbour.mac)
        for one in wanted
        for neighbour in tables[one.netns]
        if neighbour.address == host_of(one.address) and one.interface in ("", neighbour.device)
    }


def _unknown(balancer: Balancer, macs: Macs) -> dict[str, tuple[str, ...]]:
    return {str(one.address): names for one, names in sought(balancer).items() if one not in macs}


def _tell(names: Iterable[str], one: Sought, mac: Mac, before: Mac | None) -> None:
    facts = {"backends": ",".join(names), "address": one.address, "mac": mac}
    if before is None:
        tell("a backend was found", **facts)
    else:
        warn("a backend has another MAC", before=before, **facts)
