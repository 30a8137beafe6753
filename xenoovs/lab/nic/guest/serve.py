"""One port of the guest: takes calls one after the other, runs each command, sends back what it says."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
from contextlib import suppress
from pathlib import Path

from xenoovs.lab.nic.frames import FrameReader, Kind, parse_request, parse_size, render_frame
from xenoovs.lab.nic.guest.command import Child, Commands, start

_PIECE_BYTES = 32768
# Should a signal be lost.
_LONGEST_WAIT_S = 5.0


def serve(device: Path, commands: Commands) -> None:
    """Serve for ever. `commands`: those that run in forks of this process."""
    port = os.open(device, os.O_RDWR)
    # As long as no host is there, poll(2) returns at once (POLLHUP); SIGIO tells that one has come (virtio_console.c).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    fcntl.fcntl(port, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(port, fcntl.F_SETFL, os.O_RDWR | os.O_ASYNC)
    while True:
        Connection(port, commands).run()
        signal.sigtimedwait({signal.SIGIO}, _LONGEST_WAIT_S)


class Connection:
    """From the moment that the host is there to the moment that it is gone."""

    def __init__(self, port: int, commands: Commands) -> None:
        self._port, self._commands = port, commands
        self._reader = FrameReader()
        self._child: Child | None = None
        self._poll = select.poll()
        self._poll.register(port, select.POLLIN)

    def run(self) -> None:
        try:
            while self._step():
                pass
        except ValueError:
            # Half of something that an earlier host had begun: begin anew.
            pass
        finally:
            self._abandon()

    def _step(self) -> bool:
        for number, events in self._ready():
            if number == self._port:
                if not self._take(events):
                    return False
            elif self._child is not None:
                if number == self._child.input:
                    self._child.push()
                if number in self._child.outputs and events & ~select.POLLOUT:
                    self._forward(self._child, number)
        if self._child is not None and not self._child.outputs:
            self._finish(self._child)
        return True

    def _ready(self) -> list[tuple[int, int]]:
        child = self._child
        if child is None or not child.is_behind:
            return self._poll.poll()
        self._poll.register(child.input, select.POLLOUT | (select.POLLIN if child.input in child.outputs else 0))
        try:
            return self._poll.poll()
        finally:
            if child.input in child.outputs:
                self._poll.register(child.input, select.POLLIN)
            else:
                self._poll.unregister(child.input)

    def _take(self, events: int) -> bool:
        """What the host says; False: it is gone (virtio_console shows that as POLLHUP, and reads nothing)."""
        piece = os.read(self._port, _PIECE_BYTES) if events & select.POLLIN else b""
        if not piece:
            return False
        for kind, payload in self._reader.feed(piece):
            self._obey(kind, payload)
        return True

    def _obey(self, kind: Kind, payload: bytes) -> None:
        if kind is Kind.CALL:
            self._abandon()
            request = parse_request(payload)
            self._send(Kind.BEGIN, bytes.fromhex(request.token))
            self._child = start(request, self._commands)
            for number in self._child.outputs:
                self._poll.register(number, select.POLLIN)
        elif self._child is None:
            return
        elif kind is Kind.INPUT:
            self._child.write(payload)
        elif kind is Kind.END_OF_INPUT:
            self._child.close_input()
        elif kind is Kind.SIZE:
            rows, columns = parse_size(payload)
            fcntl.ioctl(self._child.input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        elif kind is Kind.SIGNAL:
            self._child.signal(int(payload))

    def _forward(self, child: Child, number: int) -> None:
        # A terminal whose last process has ended reads as an error (EIO).
        piece = b""
        with suppress(OSError):
            piece = os.read(number, _PIECE_BYTES)
        if piece:
            self._send(child.outputs[number], piece)
        else:
            self._poll.unregister(number)
            child.close_output(number)

    def _finish(self, child: Child) -> None:
        self._send(Kind.EXIT, str(child.wait()).encode())
        self._child = None

    def _abandon(self) -> None:
        if self._child is not None:
            for number in list(self._child.outputs):
                self._poll.unregister(number)
                self._child.close_output(number)
            self._child.signal(signal.SIGKILL)
            self._child.wait()
            self._child = None

    def _send(self, kind: Kind, payload: bytes) -> None:
        rest = memoryview(render_frame(kind, payload))
        while rest:
            rest = rest[os.write(self._port, rest) :]
