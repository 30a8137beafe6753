"""The program that sends as the clients: `python -m xenoovs.lab.client`, flights on stdin, a tally on stdout.

Needs nothing but the standard library, for it starts often.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Protocol

from xenoovs.lab.sockets import allow_any_local, destination_of, from_address, prepare, udp_socket

# What a round of traffic is made of and what came of it, as the helper program and its caller exchange it in JSON.


@dataclass(frozen=True, slots=True)
class Flight:
    """Packets to one destination; `sources`: the client of each of them. protocol: udp, tcp (connections) or icmp.

    fresh_ports: whether each UDP packet comes from a port of its own, as each connection of TCP does.
    """

    protocol: str
    destination: str
    port: int
    sources: tuple[str, ...]
    fresh_ports: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of a round. sent: packets for each flight. answers: (flight, source, who answered) -> packets.

    who: the label of a machine, or for ICMP the MAC that the answer came from. duplicates: second answers to a packet.
    failures: why the kernel refused to send -> packets.
    """

    sent: list[int]
    answers: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    duplicates: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Packets sent and not answered."""
        return sum(self.sent) - self.answers.total()


def packets_of(flights: Sequence[Flight], protocol: str) -> Iterator[tuple[int, str]]:
    """Flight number and source of each packet of this protocol, in order."""
    for number, flight in enumerate(flights):
        if flight.protocol == protocol:
            yield from ((number, source) for source in flight.sources)


def render_round(flights: Sequence[Flight], *, lost: int) -> str:
    """What the helper program is to do. `lost`: packets lost in earlier rounds, which make it less patient."""
    return json.dumps({"lost": lost, "flights": [asdict(flight) for flight in flights]})


def parse_round(text: str) -> tuple[list[Flight], int]:
    """The inverse of `render_round`: flights, packets lost before."""
    facts = json.loads(text)
    flights = [Flight(**{**fields, "sources": tuple(fields["sources"])}) for fields in facts["flights"]]
    return flights, facts["lost"]


def render_tally(tally: Tally) -> str:
    answers = [[*key, count] for key, count in tally.answers.items()]
    return json.dumps(
        {"sent": tally.sent, "answers": answers, "duplicates": tally.duplicates, "failures": tally.failures}
    )


def parse_tally(text: str) -> Tally:
    facts = json.loads(text)
    answers = Counter({(number, source, who): count for number, source, who, count in facts["answers"]})
    return Tally(facts["sent"], answers, facts["duplicates"], Counter(facts["failures"]))


# How many packets are under way at once: enough to be quick, few enough that no socket buffer overflows.


@dataclass(slots=True)
class Window:
    """At most `size` unanswered packets. Whoever is not answered within the patience no longer counts as under way.

    patience_s: how long to wait for an answer while answers come; hurried_s: once more than two windows are lost.
    """

    size: int
    patience_s: float
    hurried_s: float
    lost: int = 0
    under_way: dict[int, float] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.under_way) >= self.size

    @property
    def current_patience_s(self) -> float:
        return self.hurried_s if self.lost > 2 * self.size else self.patience_s

    def add(self, key: int, *, now_s: float) -> None:
        """A packet leaves at the monotonic time `now_s`; times never fall from call to call."""
        self.under_way[key] = now_s

    def answered(self, key: int) -> None:
        """Its answer came; nothing happens when it had been given up."""
        self.under_way.pop(key, None)

    def give_up(self, *, now_s: float) -> list[int]:
        """Those whose time is over, oldest first; they are under way no longer."""
        over = []
        for key, sent_s in self.under_way.items():
            if now_s - sent_s < self.current_patience_s:
                break
            over.append(key)
        for key in over:
            del self.under_way[key]
        self.lost += len(over)
        return over

    def rest_s(self, *, now_s: float) -> float:
        """Until the time of the oldest is over; 0 when nothing is under way."""
        oldest = next(iter(self.under_way.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest + self.current_patience_s - now_s)


# Sending single packets and collecting their answers, whatever the protocol.


# Small packets take about 768 bytes of a receive buffer, whose default of 212,992 bytes holds 277 (socket(7)).
_WINDOW = 128
_PATIENCE_S = 1.0
_HURRIED_S = 0.02
_LINGER_S = 0.05
_LOOK_EVERY = 16
_STUCK = "packets pile up in the kernel; does anybody answer ARP for the destination?"


class Channel(Protocol):
    """A way to send packets under a number and to get their answers."""

    def sockets(self) -> Sequence[socket.socket]:
        """Where answers come in."""

    def send(self, key: int, flight: int, source: str) -> None:
        """Send packet `key` of a flight. Raises OSError when the kernel refuses."""

    def receive(self) -> Iterable[tuple[int, str, str]]:
        """Answers that are there: key, client that got it, who answered. Never blocks."""


def exchange_all(channel: Channel, packets: Sequence[tuple[int, str]], tally: Tally, *, lost: int) -> None:
    """Send the packets (flight and source each) in order, as quickly as answers come, and count into `tally`.

    `lost`: packets lost in earlier rounds.
    """
    _Exchange(channel, packets, tally, Window(_WINDOW, _PATIENCE_S, _HURRIED_S, lost)).run()


class _Exchange:
    def __init__(self, channel: Channel, packets: Sequence[tuple[int, str]], tally: Tally, window: Window) -> None:
        self._channel, self._packets, self._tally, self._window = channel, packets, tally, window
        self._missing: set[int] = set()

    def run(self) -> None:
        for key in range(len(self._packets)):
            while self._window.is_full:
                self._collect(self._window.rest_s(now_s=time.monotonic()))
                self._window.give_up(now_s=time.monotonic())
            self._send(key)
            if key % _LOOK_EVERY == 0:
                self._collect(0)
        while self._missing and self._collect(self._window.current_patience_s):
            pass
        # A second answer to the last packets may still be on its way.
        while self._collect(_LINGER_S):
            pass

    def _send(self, key: int) -> None:
        flight, source = self._packets[key]
        try:
            self._channel.send(key, flight, source)
        except BlockingIOError:
            self._tally.failures[_STUCK] += 1
            return
        except OSError as error:
            self._tally.failures[error.strerror or str(error)] += 1
            return
        self._tally.sent[flight] += 1
        self._missing.add(key)
        self._window.add(key, now_s=time.monotonic())

    def _collect(self, timeout_s: float) -> bool:
        """Count what comes within the time; whether anything did."""
        ready, _, _ = select.select(self._channel.sockets(), [], [], timeout_s)
        if not ready:
            return False
        for key, client, who in self._channel.receive():
            self._count(key, client, who)
        return True

    def _count(self, key: int, client: str, who: str) -> None:
        if key >= len(self._packets):
            return
        flight, source = self._packets[key]
        if client != source:
            return
        if key not in self._missing:
            self._tally.duplicates += 1
            return
        self._missing.remove(key)
        self._window.answered(key)
        self._tally.answers[flight, source, who] += 1


# UDP packets of many clients, through one socket or many; the answer tells the machine by its label.


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


# TCP connections of many clients; what the machine says before it closes tells which one it is.


_TCP_WINDOW = 64
# Long enough for the first retransmission of a SYN, which comes after a second (RFC 6298, section 2).
_TCP_PATIENCE_S = 1.5
_TCP_HURRIED_S = 0.1

# linux/in.h: choose the port at connect, so that each client address has all of them to itself.
_IP_BIND_ADDRESS_NO_PORT = 24


def connect_all(flights: Sequence[Flight], packets: Sequence[tuple[int, str]], tally: Tally, *, lost: int) -> None:
    """One connection for each packet (flight and source), some at a time; counted into `tally`.

    `lost`: connections lost in earlier rounds.
    """
    with selectors.DefaultSelector() as selector:
        window = Window(_TCP_WINDOW, _TCP_PATIENCE_S, _TCP_HURRIED_S, lost)
        _Connections(flights, packets, tally, window=window, selector=selector).run()


class _Connections:
    def __init__(
        self,
        flights: Sequence[Flight],
        packets: Sequence[tuple[int, str]],
        tally: Tally,
        *,
        window: Window,
        selector: selectors.BaseSelector,
    ) -> None:
        self._flights, self._packets, self._tally = flights, packets, tally
        self._window, self._selector = window, selector
        self._open: dict[int, socket.socket] = {}

    def run(self) -> None:
        for key in range(len(self._packets)):
            while self._window.is_full:
                self._progress()
            self._connect(key)
        while self._open:
            self._progress()

    def _connect(self, key: int) -> None:
        number, source = self._packets[key]
        flight = self._flights[number]
        sock = socket.socket(family_of(flight), socket.SOCK_STREAM)
        try:
            _begin(sock, source, flight)
        except OSError as error:
            sock.close()
            self._tally.failures[error.strerror or str(error)] += 1
            return
        self._tally.sent[number] += 1
        self._open[key] = sock
        self._window.add(key, now_s=time.monotonic())
        self._selector.register(sock, selectors.EVENT_READ, key)

    def _progress(self) -> None:
        for ready, _ in self._selector.select(self._window.rest_s(now_s=time.monotonic())):
            self._read(ready.data)
        for key in self._window.give_up(now_s=time.monotonic()):
            self._close(key)

    def _read(self, key: int) -> None:
        try:
            words = self._open[key].recv(2048).split()
        except OSError:
            words = []
        if words:
            number, source = self._packets[key]
            self._tally.answers[number, source, words[0].decode(errors="replace")] += 1
        self._window.answered(key)
        self._close(key)

    def _close(self, key: int) -> None:
        sock = self._open.pop(key)
        self._selector.unregister(sock)
        sock.close()


def _begin(sock: socket.socket, source: str, flight: Flight) -> None:
    sock.settimeout(0)
    allow_any_local(sock)
    sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    sock.bind((source, 0))
    with suppress(BlockingIOError):
        sock.connect((flight.destination, flight.port))


# Echo requests of many clients (RFC 792, RFC 4443); the source MAC of the answer tells the machine.


# Type, code, checksum, identifier, sequence number; then, of our own, a number of this run and the packet's key.
_ECHO = struct.Struct("!BBHHH8sI")
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}

# linux/if_ether.h
_ETHERTYPE = {socket.AF_INET: 0x0800, socket.AF_INET6: 0x86DD}
_BUFFER_BYTES = 4 << 20
_SO_RCVBUFFORCE = 33


class IcmpChannel:
    """Sends by raw sockets (raw(7)), listens by packet sockets (packet(7)), which know the MAC of the sender."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._run = os.urandom(8)
        families = sorted({family_of(flight) for flight in flights})
        self._listeners = {family: _listener(family) for family in families}
        self._senders = {family: _sender(family) for family in families}

    def sockets(self) -> Sequence[socket.socket]:
        return tuple(self._listeners.values())

    def send(self, key: int, flight: int, source: str) -> None:
        target = self._flights[flight]
        family = family_of(target)
        control = from_address(socket.inet_pton(family, source))
        request = echo_request(family, self._run, key)
        self._senders[family].sendmsg([request], control, 0, (target.destination, 0))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for family, sock in self._listeners.items():
            while True:
                try:
                    packet, (_, _, kind, _, mac) = sock.recvfrom(2048)
                except BlockingIOError:
                    break
                reply = parse_echo_reply(family, packet)
                if kind == socket.PACKET_HOST and reply is not None and reply[0] == self._run:
                    yield reply[1], reply[2], mac.hex(":")


def echo_request(family: socket.AddressFamily, run: bytes, key: int) -> bytes:
    """The message behind the IP header; for IPv6 the kernel adds the checksum (RFC 3542, section 3.1)."""
    fields = (int.from_bytes(run[:2], "big"), key & 0xFFFF, run, key)
    message = _ECHO.pack(_REQUEST[family], 0, 0, *fields)
    if family == socket.AF_INET6:
        return message
    return _ECHO.pack(_REQUEST[family], 0, checksum(message), *fields)


def parse_echo_reply(family: socket.AddressFamily, packet: bytes) -> tuple[bytes, int, str] | None:
    """Number of the run, key, and the client it is for, from an IP packet without extension headers; None: no echo."""
    start, protocol, client = _header(family, packet)
    if protocol != _PROTOCOL[family] or len(packet) < start + _ECHO.size:
        return None
    kind, _, _, _, _, run, key = _ECHO.unpack_from(packet, start)
    return (run, key, socket.inet_ntop(family, client)) if kind == _REPLY[family] else None


def checksum(data: bytes) -> int:
    """RFC 1071, for an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _header(family: socket.AddressFamily, packet: bytes) -> tuple[int, int, bytes]:
    if family == socket.AF_INET:
        return (packet[0] & 15) * 4, packet[9], packet[16:20]
    return 40, packet[6], packet[24:40]


def _listener(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETHERTYPE[family]))
    sock.settimeout(0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    return sock


def _sender(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_RAW, _PROTOCOL[family])
    prepare(sock)
    return sock


def main() -> int:
    """Send everything, wait for the answers, tell."""
    flights, lost = parse_round(sys.stdin.read())
    tally = Tally([0] * len(flights))
    try:
        _send_all(flights, tally, lost=lost)
    except OSError as error:
        print(f"cannot send: {error}", file=sys.stderr)
        return 1
    print(render_tally(tally))
    return 0


def _send_all(flights: Sequence[Flight], tally: Tally, *, lost: int) -> None:
    if packets := list(packets_of(flights, "udp")):
        exchange_all(UdpChannel(flights), packets, tally, lost=lost)
    if packets := list(packets_of(flights, "icmp")):
        exchange_all(IcmpChannel(flights), packets, tally, lost=lost)
    if packets := list(packets_of(flights, "tcp")):
        connect_all(flights, packets, tally, lost=lost)


if __name__ == "__main__":
    sys.exit(main())
