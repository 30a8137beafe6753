"""The MACs of backends that have only an address in the config: resolved by the kernel, and followed.

A datagram to the address makes the kernel resolve it (ARP, RFC 826; neighbour discovery, RFC 4861) into its neighbour
table. Health checks of such a backend keep the entry fresh.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock

from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.errors import MacUnknown, ParseError, SwitchError
from xenoovs.log import info, warn
from xenoovs.model.address import Mac, parse_mac
from xenoovs.model.balancer import Balancer, Macs, Sought, sought, with_macs
from xenoovs.switch.devices import read_neighbours
from xenoovs.switch.tape import is_replaying

_DISCARD_PORT = 9
"""RFC 863: the receiver discards all data to this port. The datagram is empty."""
_POLL_S = 1.0
_REFRESH_S = 10.0
"""Interval at which the kernel is made to resolve all addresses, so that its entries do not become stale."""
_SETTLE_POLL_S = 0.05
_SETTLE_TIMEOUT_S = 3.0
_FIRST_TIMEOUT_S = 1.0
"""How long a round waits for new addresses in the config."""


class Neighbours:
    """The MACs of backends by their addresses. Any thread may use it."""

    def __init__(self) -> None:
        self.macs: Macs = {}
        self._waited_for: frozenset[Sought] = frozenset()
        self._refreshed_s = float("-inf")
        self._lock = Lock()

    def resolve(self, balancer: Balancer) -> Balancer:
        """Return the balancer with the current MACs. A backend without a MAC gets no clients. Blocks for new addresses.
        Raises MacUnknown if a service has no backend with a MAC."""
        if any(address not in self._waited_for for address in sought(balancer)):
            with suppress(SwitchError, ParseError):
                self.settle(balancer, timeout_s=_FIRST_TIMEOUT_S)
        resolved = with_macs(balancer, self.macs)
        for configured, service in zip(balancer.services, resolved.services, strict=True):
            if any(configured.weights) and not any(service.weights):
                raise MacUnknown(unknown=_unknown(balancer, self.macs))
        return resolved

    def poll(self, *balancers: Balancer) -> Mapping[Sought, Mac]:
        """Read the neighbour table, make the kernel resolve missing addresses, and return the changed MACs. Blocks.
        Raises SwitchError, ParseError."""
        wanted = _all_sought(balancers)
        found = _read_macs(wanted)
        is_refresh = time.monotonic() >= self._refreshed_s + _REFRESH_S
        make_kernel_resolve(wanted if is_refresh else [address for address in wanted if address not in found])
        with self._lock:
            if is_refresh:
                self._refreshed_s = time.monotonic()
            changed = {address: mac for address, mac in found.items() if self.macs.get(address) != mac}
            # A backend that does not answer keeps its MAC: health checks decide about its clients.
            self.macs = {**self.macs, **found}
        return changed

    def settle(self, balancer: Balancer, *, timeout_s: float = _SETTLE_TIMEOUT_S) -> None:
        """Poll until all MACs are known or the time is over. Raises SwitchError, ParseError."""
        wanted, deadline_s = sought(balancer), time.monotonic() + timeout_s
        self._waited_for = self._waited_for.union(wanted)
        while any(address not in self.macs for address in wanted):
            self.poll(balancer)
            if is_replaying() or time.monotonic() >= deadline_s:
                return
            time.sleep(_SETTLE_POLL_S)

    async def follow(self, balancers: Callable[[], tuple[Balancer, ...]], *, on_change: Callable[[], None]) -> None:
        """Poll every second until cancelled. `balancers`: returns the config in use, and the candidate."""
        last, names = tuple[Balancer, ...](), dict[Sought, tuple[str, ...]]()
        while True:
            # With thousands of backends, none of which needs this, a new list each second would cost much.
            if (now := balancers()) != last:
                last, names = now, _all_sought(now)
                with self._lock:
                    self.macs = {address: mac for address, mac in self.macs.items() if address in names}
                    self._waited_for = self._waited_for.intersection(names)
            if names:
                before = dict(self.macs)
                with suppress(SwitchError, ParseError, OSError):
                    changed = await asyncio.to_thread(self.poll, *now)
                    for address, mac in changed.items():
                        _log_change(names.get(address, ()), address, mac, before.get(address))
                    if changed:
                        on_change()
            await asyncio.sleep(_POLL_S)


def resolve_now(balancer: Balancer, *, timeout_s: float = _SETTLE_TIMEOUT_S) -> Balancer:
    """Return the balancer with all MACs, resolved within `timeout_s`. Raises MacUnknown, SwitchError, ParseError."""
    neighbours = Neighbours()
    neighbours.settle(balancer, timeout_s=timeout_s)
    unknown = _unknown(balancer, neighbours.macs)
    if unknown:
        raise MacUnknown(unknown=unknown)
    return with_macs(balancer, neighbours.macs)


def make_kernel_resolve(addresses: Iterable[Sought]) -> None:
    """Make the kernel resolve these addresses. An address without a route stays unknown."""
    for address in () if is_replaying() else addresses:
        ip, interface, netns = address.address, address.interface or None, address.netns or None
        with suppress(OSError), open_socket(ip, socket.SOCK_DGRAM, interface, netns) as sock:
            sock.sendto(b"", (host_of(ip), _DISCARD_PORT))


def _all_sought(balancers: Iterable[Balancer]) -> dict[Sought, tuple[str, ...]]:
    return {address: names for balancer in balancers for address, names in sought(balancer).items()}


def _read_macs(addresses: Iterable[Sought]) -> dict[Sought, Mac]:
    tables = {netns: read_neighbours(netns) for netns in sorted({address.netns for address in addresses})}
    return {
        address: parse_mac(each.mac)
        for address in addresses
        for each in tables[address.netns]
        if each.mac and each.address == host_of(address.address) and address.interface in ("", each.device)
    }


def _unknown(balancer: Balancer, macs: Macs) -> dict[str, tuple[str, ...]]:
    return {str(address.address): names for address, names in sought(balancer).items() if address not in macs}


def _log_change(names: Iterable[str], address: Sought, mac: Mac, before: Mac | None) -> None:
    facts = {"backends": ",".join(names), "address": address.address, "mac": mac}
    if before is None:
        info("MAC of a backend resolved", **facts)
    else:
        warn("MAC of a backend changed", before=before, **facts)
