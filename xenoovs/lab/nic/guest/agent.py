"""The first program of the guest after `init.sh`: prepares it, then runs the commands that the host sends.

Emulated, a new Python takes seconds to start and to import; so commands of the program that calls this, and Python
modules, run in forks of this process, which has imported what they need.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import pty
import runpy
import select
import signal
import struct
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from xenoovs.lab.nic.frames import PORT_NAME, PORTS, FrameKind, FrameReader, GuestCommand, parse_command, render_frame
from xenoovs.lab.nic.guest.prepare import prepare

NOT_FOUND = 127
"""The exit status for a program that does not exist (sh(1p))."""

Commands = Mapping[str, Callable[[list[str]], int]]
"""Functions by name that run in place of a program; each gets the arguments and returns the exit status."""

_PIECE_BYTES = 32768


class RunningCommand:
    """A running command: a fork of this process for Python, another program otherwise."""

    def __init__(self, command: GuestCommand, commands: Commands) -> None:
        self.outputs: dict[int, FrameKind] = {}
        self._unread = bytearray()
        self._has_more = True
        if command.terminal is not None:
            self._pid, self._input = pty.fork()
            if self._pid == 0:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *command.terminal, 0, 0))
                _become(command, commands)
            self.outputs[self._input] = FrameKind.OUTPUT
        else:
            pipes = [os.pipe() for _ in range(3)]
            (stdin, self._input), (output, stdout), (error, stderr) = pipes
            self._pid = os.fork()
            if self._pid == 0:
                os.setsid()
                for number, end in enumerate((stdin, stdout, stderr)):
                    os.dup2(end, number)
                _become(command, commands)
            for end in (stdin, stdout, stderr):
                os.close(end)
            self.outputs = {output: FrameKind.OUTPUT, error: FrameKind.ERROR}
        os.set_blocking(self._input, False)

    @property
    def waiting_inputs(self) -> list[int]:
        """The file descriptor for which input waits until the command reads."""
        return [self._input] if self._unread else []

    def handle(self, kind: FrameKind, payload: bytes) -> None:
        """Apply a frame of the host."""
        if kind is FrameKind.INPUT:
            self._unread += payload
            self.push()
        elif kind is FrameKind.END_OF_INPUT:
            self._has_more = False
            self.push()
        elif kind is FrameKind.SIZE:
            rows, columns = map(int, payload.split())
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        elif kind is FrameKind.SIGNAL:
            self._signal(int(payload))

    def push(self) -> None:
        """Write as much input as the command reads now, and close its input after the last."""
        try:
            while self._unread:
                del self._unread[: os.write(self._input, self._unread)]
        except BlockingIOError:
            return
        except OSError:
            # It does not read any more.
            self._unread.clear()
        if not self._has_more and self._input >= 0 and self._input not in self.outputs:
            os.close(self._input)
            self._input = -1

    def read(self, descriptor: int) -> bytes:
        """Return output; nothing at the end of it."""
        # A terminal whose last process has ended reads as an error (EIO).
        with suppress(OSError):
            if piece := os.read(descriptor, _PIECE_BYTES):
                return piece
        del self.outputs[descriptor]
        if descriptor != self._input:
            os.close(descriptor)
        return b""

    def end(self, *, kill: bool = False) -> int:
        """Close everything, wait for the end, and return the exit status as shells do (128 + number of a signal)."""
        for descriptor in {self._input, *self.outputs} - {-1}:
            os.close(descriptor)
        if kill:
            self._signal(signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return 128 - code if code < 0 else code

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, number)


def _become(command: GuestCommand, commands: Commands) -> None:
    """Run a command in this process, and end it."""
    status = 1
    try:
        os.closerange(3, 4096)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(command.environment)
        _prepare_files(command)
        status = _run(command.argv, commands)
    except SystemExit as leaving:
        status = _status_of(leaving)
    except BaseException:  # noqa: BLE001 (a bug, which the user's terminal shows)
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _prepare_files(command: GuestCommand) -> None:
    for name, text in command.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    Path(command.directory).mkdir(parents=True, exist_ok=True)
    os.chdir(command.directory)


def _run(argv: tuple[str, ...], commands: Commands) -> int:
    # The streams of the parent were made for its console, before this process had its own.
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    match argv:
        case (name, *arguments) if name in commands:
            return commands[name](arguments)
        case ("python", "-m", module, *arguments):
            return _module(module, arguments)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 (what the operator has typed)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


def _module(module: str, arguments: list[str]) -> int:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` does)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


# Should a signal be lost.
_LONGEST_WAIT_S = 5.0


def serve(device: Path, commands: Commands) -> None:
    """Run the commands that come by a port, one after the other, forever."""
    port = os.open(device, os.O_RDWR)
    # As long as no host is connected, reading returns at once; SIGIO says that one has connected (virtio_console.c).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    fcntl.fcntl(port, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(port, fcntl.F_SETFL, os.O_RDWR | os.O_ASYNC)
    while True:
        # An earlier host may have left half a frame.
        with suppress(ValueError):
            serve_host(port, commands)
        signal.sigtimedwait({signal.SIGIO}, _LONGEST_WAIT_S)


def serve_host(port: int, commands: Commands) -> None:
    """Run the commands of one host until it disconnects. Raises ValueError when it does not send frames."""
    frames = FrameReader()
    running: RunningCommand | None = None
    try:
        while True:
            outputs, inputs = (running.outputs, running.waiting_inputs) if running else ((), ())
            readable, writable, _ = select.select([port, *outputs], inputs, [])
            if running and writable:
                running.push()
            for descriptor in set(readable) - {port}:
                if running and (piece := running.read(descriptor)):
                    _send(port, running.outputs[descriptor], piece)
            if port in readable:
                piece = os.read(port, _PIECE_BYTES)
                if not piece:
                    return
                for kind, payload in frames.feed(piece):
                    if kind is FrameKind.CALL:
                        if running:
                            running.end(kill=True)
                        command = parse_command(payload)
                        _send(port, FrameKind.BEGIN, command.token.encode())
                        running = RunningCommand(command, commands)
                    elif running:
                        running.handle(kind, payload)
            if running and not running.outputs:
                _send(port, FrameKind.EXIT, str(running.end()).encode())
                running = None
    finally:
        if running:
            running.end(kill=True)


def _send(port: int, kind: FrameKind, payload: bytes) -> None:
    rest = memoryview(render_frame(kind, payload))
    while rest:
        rest = rest[os.write(port, rest) :]


_GC_THRESHOLD = 200_000
_PORTS = Path("/sys/class/virtio-ports")


def run_guest(kernel_root: str, *, modules: Sequence[str], commands: Commands) -> None:
    """Never returns: the kernel panics when its first process ends, and the machine stops.

    modules: what commands import sooner or later. None of them may start a thread: forks would lose it.
    """
    try:
        serving = _start(kernel_root, modules, commands)
    except Exception:  # noqa: BLE001 (the host shows the console when the machine stops)
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    while True:
        pid, _ = os.wait()
        if device := serving.pop(pid, None):
            serving[_fork(partial(serve, device, commands))] = device


def _start(kernel_root: str, modules: Sequence[str], commands: Commands) -> dict[int, Path]:
    """The processes that serve a port each, and its device."""
    preparing = _fork(partial(prepare, kernel_root))
    for module in modules:
        importlib.import_module(module)
    # Commands are short; looking for cycles among what was imported would cost them more than it brings.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    if os.waitpid(preparing, 0)[1] != 0:
        raise RuntimeError("the guest could not be prepared")
    devices = [_device(f"{PORT_NAME}{port}") for port in range(PORTS)]
    serving = {_fork(partial(serve, device, commands)): device for device in devices}
    print(f"guest: ready after {time.monotonic():.0f} s", flush=True)
    return serving


def _fork(work: Callable[[], None]) -> int:
    if pid := os.fork():
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 (the host shows the console)
        traceback.print_exc()
        os._exit(1)


def _device(name: str) -> Path:
    for port in _PORTS.iterdir():
        if (port / "name").read_text().strip() == name:
            return Path("/dev") / port.name
    raise RuntimeError(f"there is no port {name} in {_PORTS}")
