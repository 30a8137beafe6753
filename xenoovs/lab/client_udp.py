"""UDP packets of many clients, through one socket or many; the answer tells the machine by its label."""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence

from xenoovs.lab.tally import Flight
from xenoovs.lab.wire import destination_of, from_address, udp_socket

_HEADER = struct.Struct("!8sI")

_MOST_OPEN = 256
"""Sockets of single packets: more than can be under way at once, and few enough for select(2)."""


class UdpChannel:
    """Each request carries a number of this run and the packet's key, which come back in front of the answer."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._run = os.urandom(8)
        families = {family_of(flight) for flight in flights}
        self._sockets = {family: udp_socket(family) for family in sorted(families)}
        self._single = deque[socket.socket]()

    def sockets(self) -> Sequence[socket.socket]:
        return (*self._sockets.values(), *self._single)

    def send(self, key: int, flight: int, source: str) -> None:
        target = self._flights[flight]
        family = family_of(target)
        sock = self._fresh(family, source) if target.fresh_ports else self._sockets[family]
        control = from_address(socket.inet_pton(family, source))
        sock.sendmsg([_HEADER.pack(self._run, key)], control, 0, (target.destination, target.port))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for sock in self.sockets():
            while True:
                try:
                    data, ancillary, _, _ = sock.recvmsg(2048, 256)
                except BlockingIOError:
                    break
                run, key = _HEADER.unpack_from(data.ljust(_HEADER.size))
                words = data[_HEADER.size :].split()
                if run == self._run and words:
                    yield (
                        key,
                        socket.inet_ntop(sock.family, destination_of(ancillary)),
                        words[0].decode(errors="replace"),
                    )

    def _fresh(self, family: socket.AddressFamily, source: str) -> socket.socket:
        """Return a socket with a port by chance."""
        sock = udp_socket(family)
        self._single.append(sock)
        if len(self._single) > _MOST_OPEN:
            self._single.popleft().close()
        sock.bind((source, 0))
        return sock


def family_of(flight: Flight) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in flight.destination else socket.AF_INET
