"""Follows policies and SAs of IPsec: a change starts a round, which compares all flows and reads the policies.

This only speeds rounds up: while nothing can be followed, the next comparison finds what has changed.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from xenoovs.agent.log import warn
from xenoovs.agent.tasks import within

_GROUPS = 1 << (2 - 1) | 1 << (3 - 1) | 1 << (4 - 1)
"""XFRMNLGRP_EXPIRE, _SA and _POLICY as bits of `nl_groups` (uapi/linux/xfrm.h, netlink(7))."""
_POLL_S = 1.0
"""Between two checks whether the config requires IPsec, and whether the policies can be followed."""
_RECEIVE_BYTES = 1 << 16


def open_ipsec_events() -> socket.socket:
    """Return a socket that gets a message for each change, in the network namespace of the thread. Raises OSError."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_XFRM)
    try:
        opened.bind((0, _GROUPS))
    except OSError:
        opened.close()
        raise
    return opened


class IpsecWatch:
    """Follows policies and SAs while a tunnel of the config requires IPsec."""

    def __init__(
        self,
        locate: Callable[[], str | None],
        open_events: Callable[[str | None], socket.socket],
        *,
        wanted: Callable[[], bool],
        request_round: Callable[[], None],
    ) -> None:
        """Bind it to an agent.

        Args:
            locate: Returns the network namespace in which Open vSwitch is now; None: that of this process.
            open_events: As `open_ipsec_events`, in a namespace.
            wanted: Returns whether a tunnel wants IPsec.
            request_round: Called after each change.
        """
        self._locate, self._open_events = locate, open_events
        self._wanted, self._request_round = wanted, request_round
        self._problem = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if self._wanted():
                try:
                    place = self._locate()
                    with self._open_events(place) as events:
                        self._problem = ""
                        # Something may have changed before.
                        self._request_round()
                        await self._follow(events, place)
                except OSError as error:
                    if not self._problem:
                        warn("changes of IPsec policies cannot be followed; polling", reason=str(error))
                    self._problem = str(error)
            await asyncio.sleep(_POLL_S)

    async def _follow(self, events: socket.socket, place: str | None) -> None:
        """Follow while Open vSwitch is in `place`: after a restart it may be in another one; the socket stays there."""
        loop = asyncio.get_running_loop()
        while self._wanted() and self._locate() == place:
            try:
                await within(_POLL_S, loop.sock_recv(events, _RECEIVE_BYTES))
            except asyncio.TimeoutError:
                continue
            except OSError as error:
                # Messages were lost: something has changed.
                if error.errno != errno.ENOBUFS:
                    raise
            self._request_round()
