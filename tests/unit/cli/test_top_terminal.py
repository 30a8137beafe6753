"""`xenoovs top` in a real pseudo-terminal, with a stub of an agent."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.snapshots import snapshot
from tests.unix_http import answering
from xenoovs.show.codec import to_json

_MAIN = (sys.executable, "-c", "from xenoovs.cli.main import main; main()", "top", "--interval")


class Stub:
    """Answers status and drain as an agent. `drained`: the requested drains."""

    def __init__(self) -> None:
        self.drained: list[object] = []
        self.is_away = self.is_slow = self.is_waiting = False

    def answer(self, target: str, document: object) -> object:
        if target == "/v1/drain":
            self.drained.append(document)
            return {"message": "it is drained", "is_applied": True, "flow_mods": 0, "clients_moved": {}}
        while self.is_slow:
            self.is_waiting = True
            time.sleep(0.02)
        return None if self.is_away else {"snapshot": json.loads(to_json(snapshot()))}


class Window:
    """The user's side of a pseudo-terminal."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.seen = descriptor, ""

    def wait_for(self, text: str) -> None:
        """Read until the text is on the screen, since the last thing that was waited for."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen):
            assert time.monotonic() < deadline_s, f"never seen: {text!r} in {self.seen!r}"
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.seen += os.read(self.descriptor, 65536).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        self.seen = ""
        os.write(self.descriptor, keys)


@contextmanager
def top(path: Path, *, interval: str = "100ms", **environment: str) -> Iterator[tuple[Window, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    resize(ours, columns=80)
    known = {**os.environ, "TERM": "xterm-256color", **environment}
    known.pop("COLUMNS", None)
    argv = [*_MAIN, interval, "--control", str(path)]
    # A session and a job of its own: the terminal stops that job.
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=known, preexec_fn=os.setpgrp
    ) as process:
        os.close(theirs)
        try:
            yield Window(ours), process
        finally:
            process.kill()
            os.close(ours)


def resize(descriptor: int, *, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def control(stub: Stub, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "agent.sock"
    with answering(path, stub.answer):
        yield path


def test_a_drain_is_confirmed_and_keys_are_handled_while_a_request_is_pending(stub: Stub, control: Path) -> None:
    with top(control) as (window, process):
        window.wait_for("▸ b0")
        stub.is_slow = True
        eventually(lambda: stub.is_waiting, "a status request is pending")
        window.press(b"\x1b[B")
        window.wait_for("▸ b1")
        stub.is_slow = False
        window.press(b"d")
        window.wait_for("drain web/b1 and move its 25% of the clients?")
        assert stub.drained == []
        window.press(b"y")
        window.wait_for("it is drained")
        assert stub.drained == [{"service": "web", "backend": "b1"}]
        window.press(b"q")
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("ending", ["q", "ctrl-c", "terminate"])
def test_the_terminal_is_left_as_it_was(control: Path, ending: str) -> None:
    with top(control) as (window, process):
        window.wait_for("quit")
        if ending == "terminate":
            process.terminate()
        else:
            window.press(b"q" if ending == "q" else b"\x03")
        process.wait(PATIENCE_S)
        while select.select([window.descriptor], [], [], 0.1)[0]:
            try:
                window.seen += os.read(window.descriptor, 65536).decode(errors="replace")
            except OSError:
                break
        assert window.seen.count("\x1b[?25h\x1b[?1049l") == 1


def test_bug_no_line_began_in_the_first_column(control: Path) -> None:
    with top(control) as (window, _):
        window.wait_for("quit")
        assert window.seen.count("\r\n") >= 20
        assert not re.search(r"(?<!\r)\n", window.seen)


def test_a_new_width_is_drawn_at_once(control: Path) -> None:
    with top(control, interval="1h") as (window, process):
        window.wait_for("quit")
        assert "TRAFFIC | TARGET" not in window.seen
        resize(window.descriptor, columns=150)
        # The terminal is of another session here, so the kernel does not send it.
        process.send_signal(signal.SIGWINCH)
        window.wait_for("TRAFFIC | TARGET")


def test_it_can_be_stopped_and_goes_on(control: Path) -> None:
    with top(control) as (window, process):
        window.wait_for("quit")
        window.press(b"\x1a")
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        while not window.seen.endswith("\x1b[?25h\x1b[?1049l"):
            window.seen += os.read(window.descriptor, 65536).decode(errors="replace")
        window.press(b"")
        process.send_signal(signal.SIGCONT)
        window.wait_for("▸ b0")
        window.press(b"q")
        assert process.wait(PATIENCE_S) == 0


def test_while_the_agent_is_unreachable_the_frame_is_marked_as_old(stub: Stub, control: Path) -> None:
    with top(control) as (window, _):
        window.wait_for("a backend is down")
        stub.is_away = True
        window.wait_for("the agent does not answer")
        window.wait_for("old data: ")
        stub.is_away = False
        window.seen = ""
        window.wait_for("a backend is down")
        window.wait_for("↑ ↓ choose")


def test_on_a_terminal_that_cannot_move_the_cursor_one_frame_is_printed(control: Path) -> None:
    with top(control, TERM="dumb") as (window, process):
        window.wait_for("web  192.0.2.80  75% in hardware  14 megaflows, 16 predicted")
        assert process.wait(PATIENCE_S) == 0
        assert "\x1b[?1049h" not in window.seen
