"""The program that starts commands on a machine of a bed, and ends all of them when its input ends.

Its source is sent to the machine (`python3 -I -c SOURCE`), so it needs Python 3.7 and nothing else there. It reads and
writes lines of JSON:

    {"start": ID, "argv": [...], "env": {...}, "stdin": true}    a command; "stdin": whether it will be fed
    {"feed": ID, "text": "..."}    {"close": ID}                 input of it, and the end of its input
    {"interrupt": ID}                                            SIGINT to its process group
    {"end": ID}                                                  SIGTERM to its process group, SIGKILL 2 s later
    {"at_end": ID, "argv": [...], "text": "..."}                 undoes a change; is run when this ends
    {"forget": ID}                                               it is not needed any more
    {"lock": ID, "name": "..."}                                  held until all is undone; exit 1: another has it

    {"ready": PID, "uid": 0}
    {"id": ID, "line": "...", "error": false}                    a line of stdout or stderr
    {"id": ID, "exit": 0, "reason": "..."}                       its exit status; reason: it could not be started

Its input ends with the process that sends commands, however that ends: a pipe, a channel of ssh or a port of a virtual
machine is closed by the kernel.
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
    """Let the kernel kill the command when this program is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Runner:
    """Runs commands; `undo`: those to run at the end, `locks`: held until they have run."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, Any] = {}
        self.partial: dict[tuple[int, bool], bytes] = {}
        self.unfed: dict[int, bytearray] = {}
        self.closing: set[int] = set()
        self.killed_at: dict[int, float] = {}
        self.undo: dict[int, dict[str, Any]] = {}
        self.locks: list[socket.socket] = []

    def serve(self) -> None:
        self.selector.register(0, selectors.EVENT_READ, None)
        pending = b""
        while True:
            for key, _ in self.selector.select(0.1 if self.killed_at else None):
                if isinstance(key.data, int):
                    self.write(key.data)
                    continue
                if key.data is not None:
                    number, is_error = key.data
                    self.read(key.fileobj, number, is_error=is_error)
                    continue
                piece = os.read(0, PIECE_BYTES)
                if not piece:
                    return
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line.decode()))
            self.kill_late()

    def obey(self, order: dict[str, Any]) -> None:
        if "start" in order:
            self.start(order["start"], order["argv"], order["env"], has_input=order["stdin"])
        elif "feed" in order:
            self.feed(order["feed"], order["text"].encode())
        elif "close" in order:
            self.close(order["close"])
        elif "interrupt" in order:
            self.interrupt(order["interrupt"])
        elif "end" in order:
            self.end(order["end"])
        elif "at_end" in order:
            self.undo[order["at_end"]] = order
        elif "forget" in order:
            self.undo.pop(order["forget"], None)
        elif "lock" in order:
            say({"id": order["lock"], "exit": 0 if self.lock(order["name"]) else 1})

    def lock(self, name: str) -> bool:
        """Hold a lock of this name. It is an abstract socket (unix(7)): no file stays of it, and no root is needed."""
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind("\0xenoovs-" + hashlib.sha256(name.encode()).hexdigest())
        except OSError:
            lock.close()
            return False
        self.locks.append(lock)
        return True

    def start(self, number: int, argv: list[str], env: dict[str, str], *, has_input: bool) -> None:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ, LC_ALL="C", **env),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it has one thread
            )
        except OSError as error:
            say({"id": number, "exit": 127, "reason": f"{argv[0]}: {error.strerror}"})
            return
        self.children[number] = child
        streams: tuple[tuple[Any, bool], ...] = ((child.stdout, False), (child.stderr, True))
        for stream, is_error in streams:
            self.partial[number, is_error] = b""
            self.selector.register(stream, selectors.EVENT_READ, (number, is_error))

    def feed(self, number: int, data: bytes) -> None:
        """Queue input of a command; it is written when the command reads, so that nothing waits for that."""
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
        """End the input of a command, behind all that is queued."""
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
        piece = os.read(stream.fileno(), PIECE_BYTES)
        *lines, rest = (self.partial[number, is_error] + piece).split(b"\n")
        if not piece and rest:
            lines, rest = [rest], b""
        for line in lines:
            say({"id": number, "line": line.decode("utf-8", "backslashreplace"), "error": is_error})
        self.partial[number, is_error] = rest
        if piece:
            return
        self.selector.unregister(stream)
        stream.close()
        del self.partial[number, is_error]
        if (number, not is_error) not in self.partial:
            self.stop_writing(number)
            self.close(number)
            self.killed_at.pop(number, None)
            say({"id": number, "exit": self.children.pop(number).wait()})

    def interrupt(self, number: int) -> None:
        child = self.children.get(number)
        if child is not None:
            send(child.pid, signal.SIGINT)

    def end(self, number: int) -> None:
        child = self.children.get(number)
        if child is not None:
            send(child.pid, signal.SIGTERM)
            self.killed_at.setdefault(number, time.monotonic() + PATIENCE_S)

    def kill_late(self) -> None:
        for number, at in list(self.killed_at.items()):
            if time.monotonic() >= at:
                send(self.children[number].pid, signal.SIGKILL)

    def finish(self) -> None:
        """End every command, and run those that undo changes, the last change first."""
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
            text, null = order["text"].encode(), subprocess.DEVNULL
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(order["argv"], input=text, stdout=null, stderr=null, timeout=UNDO_TIMEOUT_S, check=False)


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def say(document: dict[str, Any]) -> None:
    data = (json.dumps(document) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # No SIG_IGN: commands would inherit it.
        signal.signal(number, lambda *_: None)
    runner = Runner()
    try:
        say({"ready": os.getpid(), "uid": os.getuid()})
        runner.serve()
    except BrokenPipeError:
        pass
    finally:
        sys.stderr.flush()
        runner.finish()


if __name__ == "__main__":
    main()
