"""The program that sends packets as the clients: `python -m xenoovs.lab.client`, flights on stdin, counts on stdout.

It prints a line of counts each second, until all packets are sent, its time is over, it gets SIGINT, or its reader
exits. It imports only the standard library, as it starts often.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from xenoovs.dataclass import asdict, dataclass, field
from xenoovs.lab.sockets import allow_any_local, destination_of, from_address, prepare, udp_socket
from xenoovs.model.address import checksum


@dataclass(frozen=True, slots=True)
class Flight:
    """Packets to one destination. `protocol`: `udp`, `tcp` (a connection for each packet) or `icmp`. `fresh_ports`:
    whether each UDP packet has a new source port, as each TCP connection has."""

    protocol: str
    destination: str
    port: int
    sources: tuple[str, ...]
    fresh_ports: bool = False

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.destination else socket.AF_INET


@dataclass(slots=True)
class AnswerCounts:
    """Results of flights. `answers`: packets by flight, source and responder, which is a machine's label, or its MAC
    for ICMP. `failures`: packets that the kernel refused to send, by reason."""

    sent: list[int]
    answers: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    duplicates: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, other: AnswerCounts, numbers: Sequence[int]) -> None:
        """Add the counts of other packets. `numbers`: for each flight of `other`, its index here."""
        for number, sent in zip(numbers, other.sent, strict=True):
            self.sent[number] += sent
        for (number, source, responder), packets in other.answers.items():
            self.answers[numbers[number], source, responder] += packets
        self.duplicates += other.duplicates
        self.failures += other.failures


@dataclass(frozen=True, slots=True)
class Pace:
    """A steady rate in packets/s. `for_s`: how long to repeat the packets; None to send each packet once."""

    rate: float
    for_s: float | None


def render_round(flights: Sequence[Flight], pace: Pace | None) -> str:
    return json.dumps([[asdict(flight) for flight in flights], None if pace is None else asdict(pace)])


def parse_round(text: str) -> tuple[list[Flight], Pace | None]:
    rows, pace = json.loads(text)
    flights = [Flight(**{**fields, "sources": tuple(fields["sources"])}) for fields in rows]
    return flights, None if pace is None else Pace(**pace)


def render_counts(counts: AnswerCounts) -> str:
    answers = [[*key, count] for key, count in counts.answers.items()]
    return json.dumps([counts.sent, answers, counts.duplicates, counts.failures])


def parse_counts(text: str) -> AnswerCounts:
    sent, rows, duplicates, failures = json.loads(text)
    answers = Counter({(number, source, responder): count for number, source, responder, count in rows})
    return AnswerCounts(sent, answers, duplicates, Counter(failures))


@dataclass(slots=True)
class SendWindow:
    """Limits unanswered packets, so that no socket buffer overflows. `short_timeout_s`: used after two lost windows."""

    size: int
    timeout_s: float
    short_timeout_s: float
    lost: int = 0
    under_way: dict[int, float] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.under_way) >= self.size

    @property
    def current_timeout_s(self) -> float:
        return self.short_timeout_s if self.lost > 2 * self.size else self.timeout_s

    def add(self, key: int, *, now_s: float) -> None:
        """Note a packet that is sent at the monotonic time `now_s`, which must not decrease from call to call."""
        self.under_way[key] = now_s

    def remove(self, key: int) -> None:
        """Note that a packet was answered. Does nothing if it has expired."""
        self.under_way.pop(key, None)

    def expire(self, *, now_s: float) -> list[int]:
        """Remove and return the packets whose timeout has passed, oldest first."""
        expired = []
        for key, sent_s in self.under_way.items():
            if now_s - sent_s < self.current_timeout_s:
                break
            expired.append(key)
        for key in expired:
            del self.under_way[key]
        self.lost += len(expired)
        return expired

    def wait_s(self, *, now_s: float) -> float:
        """Return the time until the oldest packet expires; 0 if none is unanswered."""
        oldest = next(iter(self.under_way.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest + self.current_timeout_s - now_s)


_LINGER_S = 0.05
_COLLECT_EVERY = 16
_REPORT_S = 1.0
_MOST_UNANSWERED = 500
"""Fewer than the descriptors that select(2) can wait for, as each TCP connection is a socket."""
_MOST_MISSING = 100_000
"""How many of the last unanswered packets may still be answered; an answer to an older one counts as a duplicate."""
_NO_ARP = "packets pile up in the kernel; does anything answer ARP for the destination?"


class TrafficChannel:
    """Sends packets, each with a key, and receives their answers."""

    def new_window(self) -> SendWindow:
        # Small packets take about 768 bytes of a receive buffer, whose default of 212,992 bytes holds 277 (socket(7)).
        return SendWindow(128, 1.0, 0.02)

    def sockets(self) -> Sequence[socket.socket]:
        """Return the sockets that become readable when answers come."""
        raise NotImplementedError

    def send(self, key: int, flight: Flight, source: str) -> None:
        """Send a packet of a flight. Raises OSError if the kernel refuses."""
        raise NotImplementedError

    def receive(self) -> Iterable[tuple[int, str, str]]:
        """Yield the answers that have arrived: key, client, responder (empty if it failed). Never blocks."""
        raise NotImplementedError

    def expire(self, key: int) -> None:
        """Stop waiting for the answer to a packet. By default late answers count."""


class TrafficExchange:
    """Sends the packets of some flights through a channel, and counts the answers."""

    def __init__(self, channel: TrafficChannel, flights: Sequence[Flight]) -> None:
        self._channel, self._flights = channel, flights
        self._counts = AnswerCounts([0] * len(flights))
        self._packets = [(number, source) for number, flight in enumerate(flights) for source in flight.sources]
        self._window = channel.new_window()
        # Unanswered packets, in the order of sending.
        self._missing: dict[int, None] = {}
        self._sent = 0
        self.is_stopped = False

    def run(self, pace: Pace | None, report: Callable[[AnswerCounts], None]) -> None:
        """Send at a pace, the flights in turn; without a pace each packet once, as fast as answers arrive. `report` is
        called with the counts of each second."""
        rate, for_s = (math.inf, None) if pace is None else (pace.rate, pace.for_s)
        if pace is not None:
            # Keep the pace even if servers do not answer.
            size = max(self._window.size, int(rate * self._window.timeout_s * 2))
            self._window = SendWindow(min(size, _MOST_UNANSWERED), self._window.timeout_s, 0.1)
            self._interleave()
        reported_s = begun_s = time.monotonic()
        end_s, most = (math.inf, len(self._packets)) if for_s is None else (begun_s + for_s, math.inf)
        while not self.is_stopped and self._sent < most and (now_s := time.monotonic()) < end_s:
            due = most if pace is None else min(most, int((now_s - begun_s) * rate) + 1)
            while self._sent < due and not self._window.is_full:
                self._send(self._sent)
                if self._sent % _COLLECT_EVERY == 0:
                    self._collect(0)
            if now_s - reported_s >= _REPORT_S:
                reported_s = now_s
                self._report(report)
            now_s = time.monotonic()
            next_s = begun_s + self._sent / rate
            if self._window.is_full:
                next_s = now_s + self._window.wait_s(now_s=now_s)
            self._collect(max(0.0, min(next_s, reported_s + _REPORT_S, end_s) - now_s))
            self._expire()
        self._finish()
        self._report(report)

    def _interleave(self) -> None:
        sizes = Counter(number for number, _ in self._packets)
        turns = Counter[int]()
        ordered = []
        for number, source in self._packets:
            ordered.append((turns[number] / sizes[number], number, source))
            turns[number] += 1
        self._packets = [(number, source) for _, number, source in sorted(ordered, key=lambda packet: packet[:2])]

    def _report(self, report: Callable[[AnswerCounts], None]) -> None:
        counts, self._counts = self._counts, AnswerCounts([0] * len(self._flights))
        report(counts)

    def _finish(self) -> None:
        while self._window.under_way:
            self._collect(self._window.wait_s(now_s=time.monotonic()))
            self._expire()
        # Late answers to expired packets, and duplicates of the last ones, may still arrive.
        while self._collect(self._window.timeout_s if self._missing else _LINGER_S):
            pass

    def _expire(self) -> None:
        for key in self._window.expire(now_s=time.monotonic()):
            self._channel.expire(key)

    def _packet(self, key: int) -> tuple[int, str]:
        return self._packets[key % len(self._packets)]

    def _send(self, key: int) -> None:
        self._sent = key + 1
        number, source = self._packet(key)
        try:
            self._channel.send(key, self._flights[number], source)
        except OSError as error:
            reason = _NO_ARP if isinstance(error, BlockingIOError) else error.strerror or str(error)
            self._counts.failures[reason] += 1
            return
        self._counts.sent[number] += 1
        self._missing[key] = None
        if len(self._missing) > _MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        self._window.add(key, now_s=time.monotonic())

    def _collect(self, timeout_s: float) -> bool:
        """Count the answers that arrive within the time. Return whether there were any."""
        ready, _, _ = select.select(self._channel.sockets(), [], [], timeout_s)
        if ready:
            for key, client, responder in self._channel.receive():
                self._count(key, client, responder)
        return bool(ready)

    def _count(self, key: int, client: str, responder: str) -> None:
        if key >= self._sent or client != self._packet(key)[1]:
            return
        if key not in self._missing:
            self._counts.duplicates += 1
            return
        del self._missing[key]
        self._window.remove(key)
        if responder:
            number, source = self._packet(key)
            self._counts.answers[number, source, responder] += 1


_HEADER = struct.Struct("!8sI")

_MOST_OPEN = 256
"""Sockets of single packets: more than can be unanswered at once, and few enough for select(2)."""


class UdpChannel(TrafficChannel):
    """UDP. Each request has the run's number and its key, and the answer repeats both before the machine's label."""

    def __init__(self) -> None:
        self._run = os.urandom(8)
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._single = deque[socket.socket]()

    def sockets(self) -> Sequence[socket.socket]:
        return (*self._sockets.values(), *self._single)

    def send(self, key: int, flight: Flight, source: str) -> None:
        if flight.family not in self._sockets:
            self._sockets[flight.family] = udp_socket(flight.family)
        sock = self._fresh(flight.family, source) if flight.fresh_ports else self._sockets[flight.family]
        control = from_address(socket.inet_pton(flight.family, source))
        sock.sendmsg([_HEADER.pack(self._run, key)], control, 0, (flight.destination, flight.port))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for sock in self.sockets():
            with suppress(BlockingIOError):
                while True:
                    data, ancillary, _, _ = sock.recvmsg(2048, 256)
                    run, key = _HEADER.unpack_from(data.ljust(_HEADER.size))
                    words = data[_HEADER.size :].split()
                    if run == self._run and words:
                        client = socket.inet_ntop(sock.family, destination_of(ancillary))
                        yield key, client, words[0].decode(errors="replace")

    def _fresh(self, family: socket.AddressFamily, source: str) -> socket.socket:
        sock = udp_socket(family)
        self._single.append(sock)
        if len(self._single) > _MOST_OPEN:
            self._single.popleft().close()
        sock.bind((source, 0))
        return sock


# linux/in.h: choose the port at connect, so that each client address can use all ports.
_IP_BIND_ADDRESS_NO_PORT = 24


class TcpChannel(TrafficChannel):
    """A connection for each packet; the machine sends its label before it closes."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[socket.socket, str]] = {}

    def new_window(self) -> SendWindow:
        # Long enough for the first retransmission of a SYN, which comes after a second (RFC 6298, section 2).
        return SendWindow(64, 1.5, 0.1)

    def sockets(self) -> Sequence[socket.socket]:
        return [sock for sock, _ in self._open.values()]

    def send(self, key: int, flight: Flight, source: str) -> None:
        sock = socket.socket(flight.family, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            allow_any_local(sock)
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((source, 0))
            with suppress(BlockingIOError):
                sock.connect((flight.destination, flight.port))
        except OSError:
            sock.close()
            raise
        self._open[key] = sock, source

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for key, (sock, source) in list(self._open.items()):
            try:
                words = sock.recv(2048).split()
            except BlockingIOError:
                continue
            except OSError:
                words = []
            self.expire(key)
            yield key, source, words[0].decode(errors="replace") if words else ""

    def expire(self, key: int) -> None:
        self._open.pop(key)[0].close()


# Echo requests of many clients (RFC 792, RFC 4443); the source MAC of the answer identifies the machine.


# Type, code, checksum, identifier, sequence number; then, as data, the run's number and the packet's key.
_ECHO = struct.Struct("!BBHHH8sI")
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}

# linux/if_ether.h
_ETHERTYPE = {socket.AF_INET: 0x0800, socket.AF_INET6: 0x86DD}
_BUFFER_BYTES = 4 << 20
_SO_RCVBUFFORCE = 33


class EchoChannel(TrafficChannel):
    """Sends through raw sockets (raw(7)), receives from packet sockets (packet(7)), which return the sender's MAC."""

    def __init__(self) -> None:
        self._run = os.urandom(8)
        self._listeners: dict[socket.AddressFamily, socket.socket] = {}
        self._senders: dict[socket.AddressFamily, socket.socket] = {}

    def sockets(self) -> Sequence[socket.socket]:
        return tuple(self._listeners.values())

    def send(self, key: int, flight: Flight, source: str) -> None:
        if flight.family not in self._listeners:
            self._listeners[flight.family] = _listener(flight.family)
            sender = socket.socket(flight.family, socket.SOCK_RAW, _PROTOCOL[flight.family])
            prepare(sender)
            self._senders[flight.family] = sender
        control = from_address(socket.inet_pton(flight.family, source))
        request = echo_request(flight.family, self._run, key)
        self._senders[flight.family].sendmsg([request], control, 0, (flight.destination, 0))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for family, sock in self._listeners.items():
            with suppress(BlockingIOError):
                while True:
                    packet, (_, _, kind, _, mac) = sock.recvfrom(2048)
                    reply = parse_echo_reply(family, packet)
                    if kind == socket.PACKET_HOST and reply is not None and reply[0] == self._run:
                        yield reply[1], reply[2], mac.hex(":")


def echo_request(family: socket.AddressFamily, run: bytes, key: int) -> bytes:
    """Return the ICMP message without IP header; for IPv6 the kernel adds the checksum (RFC 3542, section 3.1)."""
    fields = (int.from_bytes(run[:2], "big"), key & 0xFFFF, run, key)
    message = _ECHO.pack(_REQUEST[family], 0, 0, *fields)
    if family == socket.AF_INET6:
        return message
    return _ECHO.pack(_REQUEST[family], 0, checksum(message), *fields)


def parse_echo_reply(family: socket.AddressFamily, packet: bytes) -> tuple[bytes, int, str] | None:
    """Return run number, key and client from an IP packet without extension headers; None if it is no echo reply."""
    if family == socket.AF_INET:
        start, protocol, client = (packet[0] & 15) * 4, packet[9], packet[16:20]
    else:
        start, protocol, client = 40, packet[6], packet[24:40]
    if protocol != _PROTOCOL[family] or len(packet) < start + _ECHO.size:
        return None
    kind, _, _, _, _, run, key = _ECHO.unpack_from(packet, start)
    return (run, key, socket.inet_ntop(family, client)) if kind == _REPLY[family] else None


def _listener(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETHERTYPE[family]))
    sock.settimeout(0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    return sock


_CHANNELS: dict[str, Callable[[], TrafficChannel]] = {"udp": UdpChannel, "tcp": TcpChannel, "icmp": EchoChannel}


def main() -> int:
    """Send the packets of one protocol, wait for the answers, print the counts."""
    flights, pace = parse_round(sys.stdin.read())
    exchange = TrafficExchange(_CHANNELS[flights[0].protocol](), flights)
    signal.signal(signal.SIGINT, lambda *_: setattr(exchange, "is_stopped", True))
    try:
        exchange.run(pace, lambda counts: print(render_counts(counts), flush=True))
    except BrokenPipeError:
        # The caller was killed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"cannot send: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
