"""The first program of the guest after `init.sh`: prepares it, then runs what the host asks for, until the power goes.

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

from xenoovs.lab.nic.frames import PORT_NAME, PORTS, FrameReader, Kind, Request, parse_request, parse_size, render_frame
from xenoovs.lab.nic.guest.prepare import prepare

# One command in the guest: a fork of this process for commands of Python, another program otherwise.


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


# One port of the guest: takes calls one after the other, runs each command, sends back what it says.


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
    except BaseException:  # noqa: BLE001 (the console is where somebody will look)
        traceback.print_exc()
        os._exit(1)


def _device(name: str) -> Path:
    for port in _PORTS.iterdir():
        if (port / "name").read_text().strip() == name:
            return Path("/dev") / port.name
    raise RuntimeError(f"there is no port {name} in {_PORTS}")
