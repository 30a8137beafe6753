"""UDP packets of many clients through one socket; the answer tells the machine by its label."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence

from xenoovs.lab.tally import Flight
from xenoovs.lab.wire import destination_of, from_address, udp_socket

_HEADER = struct.Struct("!8sI")


class UdpChannel:
    """Each request carries a number of this run and the packet's key, which come back in front of the answer."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._run = os.urandom(8)
        families = {family_of(flight) for flight in flights}
        self._sockets = {family: udp_socket(family) for family in sorted(families)}

    def sockets(self) -> Sequence[socket.socket]:
        return tuple(self._sockets.values())

    def send(self, key: int, flight: int, source: str) -> None:
        target = self._flights[flight]
        family = family_of(target)
        control = from_address(socket.inet_pton(family, source))
        self._sockets[family].sendmsg([_HEADER.pack(self._run, key)], control, 0, (target.destination, target.port))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for family, sock in self._sockets.items():
            while True:
                try:
                    data, ancillary, _, _ = sock.recvmsg(2048, 256)
                except BlockingIOError:
                    break
                run, key = _HEADER.unpack_from(data.ljust(_HEADER.size))
                words = data[_HEADER.size :].split()
                if run == self._run and words:
                    yield key, socket.inet_ntop(family, destination_of(ancillary)), words[0].decode(errors="replace")


def family_of(flight: Flight) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in flight.destination else socket.AF_INET
