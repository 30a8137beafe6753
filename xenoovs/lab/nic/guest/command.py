"""One command in the guest: a fork of this process for commands of Python, another program otherwise."""

from __future__ import annotations

import fcntl
import os
import pty
import runpy
import signal
import struct
import sys
import termios
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from xenoovs.lab.nic.frames import Kind, Request

NOT_FOUND = 127
"""As shells report a program that is not there (sh(1p))."""

Commands = Mapping[str, Callable[[list[str]], int]]
"""By name, what is called with the arguments in place of starting a program; it returns the exit status."""


class Child:
    """A running command. `input`: where it reads from; `outputs`: where it writes to, and as what that is sent."""

    def __init__(self, pid: int, given: int, outputs: dict[int, Kind]) -> None:
        self.pid, self.input, self.outputs = pid, given, outputs
        self._pending = bytearray()
        self._input_open, self._ending = True, False
        os.set_blocking(given, False)

    @property
    def is_behind(self) -> bool:
        """Whether there is input that the command has not taken yet."""
        return self._input_open and bool(self._pending)

    def write(self, piece: bytes) -> None:
        """Input for the command, which takes it when it likes."""
        self._pending += piece
        self.push()

    def push(self) -> None:
        """Hand over what fits."""
        try:
            while self.is_behind:
                del self._pending[: os.write(self.input, self._pending)]
        except BlockingIOError:
            return
        except OSError:
            # It has stopped to read.
            self._pending.clear()
        if self._ending and self._input_open and self.input not in self.outputs:
            self._input_open = False
            os.close(self.input)

    def close_input(self) -> None:
        """The end of the input, after what is on its way."""
        self._ending = True
        self.push()

    def close_output(self, number: int) -> None:
        """After the end of an output."""
        del self.outputs[number]
        if number != self.input:
            os.close(number)

    def signal(self, number: int) -> None:
        """To the command and to all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self) -> int:
        """The exit status, as shells report it (128 + the signal's number)."""
        if self._input_open:
            self._input_open = False
            os.close(self.input)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return 128 - code if code < 0 else code


def start(request: Request, commands: Commands) -> Child:
    """Start a command with its own terminal or with three pipes."""
    return _on_pipes(request, commands) if request.terminal is None else _on_terminal(request, commands)


def _on_terminal(request: Request, commands: Commands) -> Child:
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *(request.terminal or (0, 0)), 0, 0))
        _become(request, commands)
    return Child(pid, terminal, {terminal: Kind.OUTPUT})


def _on_pipes(request: Request, commands: Commands) -> Child:
    (given, to), (out, out_end), (err, err_end) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number, end in ((0, given), (1, out_end), (2, err_end)):
            os.dup2(end, number)
        _become(request, commands)
    for end in (given, out_end, err_end):
        os.close(end)
    return Child(pid, to, {out: Kind.OUTPUT, err: Kind.ERROR})


def _become(request: Request, commands: Commands) -> None:
    """Never returns."""
    status = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 4096 else 4096)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(request.environment)
        _place(request)
        status = _run(request.argv, commands)
    except SystemExit as leaving:
        status = _status_of(leaving)
    except BaseException:  # noqa: BLE001 (a bug, which the user's terminal shows)
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _place(request: Request) -> None:
    for name, text in request.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    Path(request.directory).mkdir(parents=True, exist_ok=True)
    os.chdir(request.directory)


def _run(argv: tuple[str, ...], commands: Commands) -> int:
    match argv:
        case (name, *arguments) if name in commands:
            return _fresh_streams(lambda: commands[name](arguments))
        case ("python", "-m", module, *arguments):
            return _fresh_streams(lambda: _module(module, arguments))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 (what the operator has typed)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        return NOT_FOUND


def _module(module: str, arguments: list[str]) -> int:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` does)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _fresh_streams(work: Callable[[], int]) -> int:
    # Those of the parent were made for its console, before this process had its own.
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    return work()


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1
