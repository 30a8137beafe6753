"""A steady stream of packets beside everything else, and which of them were delivered."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event, Lock, Thread

from tests.nic.guest import nic
from tests.nic.guest.frames import CLIENT_MAC, Kind
from tests.nic.guest.record import Delivered, Mark, Streamed
from tests.nic.guest.wire import Wire, remaining_frames

RATE_PPS = 50
_FIRST_SOURCE_PORT = 10_000
"""That of packet 0; each further packet has the next one, which identifies it, and the same megaflow."""
_SOURCE_PORT_AT, _MAC_BYTES = 34, 6
"""In a frame of IPv4 without options (RFC 791, RFC 768)."""


class Stream:
    """Sends packets of the sources in turn, at a fixed rate whatever is lost."""

    def __init__(self, wires: Mapping[str, Wire], sources: Sequence[str], kind: Kind) -> None:
        """`wires`: the far ends of all ports. Nothing else may be sent until the end of the stream."""
        self._wires = wires
        self._sources, self._kind = tuple(sources), kind
        self._sent, self._marks = 0, list[Mark]()
        self._lock, self._end = Lock(), Event()
        self._begun_s = time.monotonic()
        self._thread = Thread(target=self._flow)

    def begin(self) -> None:
        """Send from now on."""
        self.mark("begun")
        self._thread.start()

    def mark(self, label: str) -> None:
        """Note this moment. Between two packets: what the NIC counts is of exactly those that were sent."""
        with self._lock:
            second = time.monotonic() - self._begun_s
            self._marks.append(Mark(label, second, self._sent, nic.rules(), nic.port_counters()))

    def go_on(self, packets: int) -> None:
        """Return when so many more have been sent."""
        wanted = self._sent + packets
        while self._sent < wanted and self._thread.is_alive():
            time.sleep(1 / RATE_PPS)

    def end(self) -> Streamed:
        """Stop, and count what has come out anywhere."""
        self._end.set()
        self._thread.join()
        self.mark("ended")
        delivered = tuple(_delivered(*item) for item in remaining_frames(self._wires) if _is_of_stream(item[1]))
        return Streamed(self._sources, tuple(self._marks), delivered)

    def _flow(self) -> None:
        while not self._end.is_set():
            wait_s = self._begun_s + self._sent / RATE_PPS - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
                continue
            source = self._sources[self._sent % len(self._sources)]
            frame = replace(self._kind, source_port=_FIRST_SOURCE_PORT + self._sent).frame(source)
            with self._lock:
                self._wires["p0"].send([frame])
                self._sent += 1


def _is_of_stream(frame: bytes) -> bool:
    # When Open vSwitch starts it sends a frame of its own.
    return frame[_MAC_BYTES : 2 * _MAC_BYTES].hex(":") == CLIENT_MAC


def _delivered(port: str, frame: bytes) -> Delivered:
    number = int.from_bytes(frame[_SOURCE_PORT_AT : _SOURCE_PORT_AT + 2], "big") - _FIRST_SOURCE_PORT
    return Delivered(number, port, frame[:_MAC_BYTES].hex(":"))
