"""The program that starts commands on another machine, and ends all of them when its input ends.

place.py sends its source to the machine (`python3 -I -c SOURCE`), which needs only Python 3.7. In the virtual machine
of a lab it is part of the first program (nic/guest/agent.py). It reads and writes lines of JSON:

    {"hello": TOKEN}                                             answered by "ready"; what came before it is void
    {"start": ID, "argv": [...], "env": {...}, "stdin": true}    a command; "stdin": whether it will be fed
    {"feed": ID, "text": "..."}    {"close": ID}                 input of it, and the end of its input
    {"signal": ID, "number": 2}                                  a signal to its process group
    {"end": ID}                                                  SIGTERM to its process group, SIGKILL 2 s later
    {"at_end": ID, "argv": [...], "text": "..."}                 undoes a change; is run when this ends
    {"forget": ID}                                               it is not needed any more
    {"lock": ID, "name": "..."}                                  held until all is undone; exit 1: another has it

    {"ready": TOKEN, "uid": 0}
    {"id": ID, "text": "...", "error": false}                    a piece of stdout or stderr
    {"id": ID, "exit": 0, "reason": "..."}                       its exit status; reason: it could not be started

In `text` each character is a byte (ISO 8859-1). The input ends with the process that sends commands, however that ends:
a pipe, a channel of ssh or a port of a virtual machine is closed by the kernel.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

PATIENCE_S = 2.0
PIECE_BYTES = 65536
UNDO_TIMEOUT_S = 600.0
PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def die_with_parent() -> None:
    """Make the kernel kill the command when this program is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Runner:
    """Runs commands. `undo`: the commands to run at the end. `locks`: held until those have run."""

    def __init__(self, inlet: int = 0, outlet: int = 1) -> None:
        self.inlet, self.outlet = inlet, outlet
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, Any] = {}
        self.open: dict[int, set[Any]] = {}
        self.unfed: dict[int, bytearray] = {}
        self.closing: set[int] = set()
        self.killed_at: dict[int, float] = {}
        self.undo: dict[int, dict[str, Any]] = {}
        self.locks: list[socket.socket] = []

    def serve(self) -> None:
        """Execute orders until the input ends."""
        self.selector.register(self.inlet, selectors.EVENT_READ, None)
        pending = bytearray()
        while True:
            for key, _ in self.selector.select(0.1 if self.killed_at else None):
                if isinstance(key.data, int):
                    self.write(key.data)
                    continue
                if key.data is not None:
                    number, is_error = key.data
                    self.read(key.fileobj, number, is_error=is_error)
                    continue
                piece = os.read(self.inlet, PIECE_BYTES)
                if not piece:
                    return
                pending += piece
                if b"\n" in piece:
                    *lines, pending = pending.split(b"\n")
                    for line in filter(None, lines):
                        self.take(line)
            self.kill_late()

    def take(self, line: bytes | bytearray) -> None:
        self.obey(json.loads(line.decode()))

    def obey(self, order: dict[str, Any]) -> None:
        if "hello" in order:
            self.say({"ready": order["hello"], "uid": os.getuid()})
        elif "start" in order:
            self.start(order["start"], order)
        elif "feed" in order:
            self.feed(order["feed"], order["text"].encode("latin-1"))
        elif "close" in order:
            self.close(order["close"])
        elif "signal" in order:
            self.signal(order["signal"], order["number"])
        elif "end" in order:
            self.signal(order["end"], signal.SIGTERM)
            self.killed_at.setdefault(order["end"], time.monotonic() + PATIENCE_S)
        elif "at_end" in order:
            self.undo[order["at_end"]] = order
        elif "forget" in order:
            self.undo.pop(order["forget"], None)
        elif "lock" in order:
            self.say({"id": order["lock"], "exit": 0 if self.lock(order["name"]) else 1})

    def lock(self, name: str) -> bool:
        """Hold a lock; return False if it is taken. An abstract socket (unix(7)) leaves no file, and needs no root."""
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind("\0xenoovs-" + hashlib.sha256(name.encode()).hexdigest())
        except OSError:
            lock.close()
            return False
        self.locks.append(lock)
        return True

    def start(self, number: int, order: dict[str, Any]) -> None:
        try:
            child = self.child(order)
        except OSError as error:
            self.say({"id": number, "exit": 127, "reason": f"{order['argv'][0]}: {error.strerror}"})
            return
        self.children[number], self.open[number] = child, set()
        streams: tuple[tuple[Any, bool], ...] = ((child.stdout, False), (child.stderr, True))
        for stream, is_error in streams:
            if stream is not None:
                self.open[number].add(stream)
                self.selector.register(stream, selectors.EVENT_READ, (number, is_error))

    def child(self, order: dict[str, Any]) -> Any:
        """Start a command. Raises OSError if it cannot be started."""
        return subprocess.Popen(
            order["argv"],
            stdin=subprocess.PIPE if order["stdin"] else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, **order["env"]),
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it has one thread
        )

    def feed(self, number: int, data: bytes) -> None:
        """Queue input of a command. It is written when the command reads, so this never blocks."""
        child = self.children.get(number)
        if child is None or child.stdin is None or child.stdin.closed or number in self.closing:
            return
        if number not in self.unfed:
            self.unfed[number] = bytearray()
            os.set_blocking(child.stdin.fileno(), False)
            self.selector.register(child.stdin, selectors.EVENT_WRITE, number)
        self.unfed[number] += data

    def write(self, number: int) -> None:
        child, unfed = self.children[number], self.unfed[number]
        try:
            del unfed[: os.write(child.stdin.fileno(), unfed[:PIECE_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            unfed.clear()
        if not unfed:
            self.stop_writing(number)
            if number in self.closing:
                self.close(number)

    def stop_writing(self, number: int) -> None:
        if self.unfed.pop(number, None) is not None:
            self.selector.unregister(self.children[number].stdin)

    def close(self, number: int) -> None:
        """Close the input of a command after all queued input is written."""
        child = self.children.get(number)
        if child is None or child.stdin is None:
            return
        if number in self.unfed:
            self.closing.add(number)
            return
        self.closing.discard(number)
        with suppress(OSError):
            child.stdin.close()

    def read(self, stream: Any, number: int, *, is_error: bool) -> None:
        piece = b""
        # A terminal whose last process has ended reads as an error (EIO).
        with suppress(OSError):
            piece = os.read(stream.fileno(), PIECE_BYTES)
        if piece:
            self.say({"id": number, "text": piece.decode("latin-1"), "error": is_error})
            return
        self.selector.unregister(stream)
        stream.close()
        self.open[number].discard(stream)
        if not self.open[number]:
            self.stop_writing(number)
            self.close(number)
            self.killed_at.pop(number, None)
            self.say({"id": number, "exit": self.children.pop(number).wait()})

    def signal(self, number: int, signal_number: int) -> None:
        child = self.children.get(number)
        if child is not None:
            send(child.pid, signal_number)

    def kill_late(self) -> None:
        for number, at in list(self.killed_at.items()):
            if time.monotonic() >= at:
                self.signal(number, signal.SIGKILL)

    def finish(self) -> None:
        """End every command, then run the commands that undo changes, the last change first."""
        for child in self.children.values():
            send(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        for child in self.children.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                send(child.pid, signal.SIGKILL)
                child.wait()
        for order in reversed(list(self.undo.values())):
            text, null = order["text"].encode("latin-1"), subprocess.DEVNULL
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(order["argv"], input=text, stdout=null, stderr=null, timeout=UNDO_TIMEOUT_S, check=False)
        for lock in self.locks:
            lock.close()
        self.selector.close()

    def say(self, document: dict[str, Any]) -> None:
        data = memoryview((json.dumps(document) + "\n").encode())
        while data:
            data = data[os.write(self.outlet, data) :]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN, which commands would inherit.
        signal.signal(number, lambda *_: None)
    runner = Runner()
    try:
        runner.serve()
    except BrokenPipeError:
        pass
    finally:
        sys.stderr.flush()
        runner.finish()


if __name__ == "__main__":
    main()
