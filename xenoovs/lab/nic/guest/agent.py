"""The first program of the guest after `init.sh`: prepares the guest, then runs the commands that the host sends.

In an emulated machine Python takes seconds to start and to import modules. So `Commands` and Python modules run in
forks of this process, which has imported what they need.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import importlib
import os
import pty
import runpy
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from xenoovs.lab.nic.machine import PORT_NAME, PORTS
from xenoovs.lab.runner import Runner
from xenoovs.switch.process import run

Commands = Mapping[str, Callable[[list[str]], int]]
"""Functions by the name of the program that they replace. Each gets the arguments and returns the exit status."""

_STEP_S = 0.01


class GuestChild:
    """A running command: a fork of this process for Python, else another program."""

    def __init__(self, order: Mapping[str, Any], commands: Commands) -> None:
        if order.get("terminal"):
            self.pid, terminal = pty.fork()
            if self.pid == 0:
                _become(order, commands)
            self.stdin, self.stdout = os.fdopen(os.dup(terminal), "wb", 0), os.fdopen(terminal, "rb", 0)
            self.stderr: BinaryIO | None = None
            self.resize(*order["terminal"])
            return
        pipes = [os.pipe() for _ in range(3)]
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = pipes
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for number, end in enumerate((stdin, stdout, stderr)):
                os.dup2(end, number)
            _become(order, commands)
        for end in (stdin, stdout, stderr):
            os.close(end)
        self.stdin, self.stdout = os.fdopen(to_stdin, "wb", 0), os.fdopen(from_stdout, "rb", 0)
        self.stderr = os.fdopen(from_stderr, "rb", 0)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.stdout, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit status, negative for a signal. Raises TimeoutExpired, as Popen does."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while deadline_s is not None and not (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired([], timeout_s or 0.0)
            time.sleep(_STEP_S)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1] if deadline_s is None else found[1])


class NewHost(Exception):
    """Another process of the host has connected, and the guest did not notice that the last one disconnected."""


class GuestRunner(Runner):
    """The runner at a port of the guest. Its commands may have a terminal, a directory, and files from the host."""

    def __init__(self, port: int, commands: Commands) -> None:
        super().__init__(port, port)
        self.commands, self.is_begun = commands, False

    def take(self, line: bytes | bytearray) -> None:
        # An earlier host process may have left half a line.
        with suppress(ValueError):
            super().take(line)

    def obey(self, order: dict[str, Any]) -> None:
        if "hello" in order and self.is_begun:
            raise NewHost(order)
        self.is_begun = True
        if "size" not in order:
            super().obey(order)
        elif child := self.children.get(order["size"]):
            child.resize(*order["terminal"])

    def child(self, order: dict[str, Any]) -> GuestChild:
        name = order["argv"][0]
        if name not in self.commands and name != "python" and shutil.which(name) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return GuestChild(order, self.commands)


def _become(order: Mapping[str, Any], commands: Commands) -> None:
    """Run a command in this process, and exit."""
    status = 1
    try:
        os.closerange(3, 4096)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(order["env"])
        _prepare_files(order)
        status = _run(order["argv"], commands)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            status = leaving.code or 0
        else:
            print(leaving.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 (a bug, which the user's terminal shows)
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _prepare_files(order: Mapping[str, Any]) -> None:
    for name, text in order.get("files", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    directory = Path(order.get("directory", "/"))
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)


def _run(argv: Sequence[str], commands: Commands) -> int:
    # The streams of the parent were made for its console, before this process had its own.
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    match argv:
        case [name, *arguments] if name in commands:
            return commands[name](arguments)
        case ["python", "-m", module, *arguments]:
            sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` does)
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return 0
    os.execvp(argv[0], list(argv))  # noqa: S606 (what the operator has typed)


# In case a signal is lost.
_LONGEST_WAIT_S = 5.0


def serve(device: Path, commands: Commands) -> None:
    """Run the commands that arrive at a port, of one host process after the other, forever."""
    port = os.open(device, os.O_RDWR)
    # As long as no host is connected, reading returns at once; SIGIO says that one has connected (virtio_console.c).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    fcntl.fcntl(port, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(port, fcntl.F_SETFL, os.O_RDWR | os.O_ASYNC)
    while True:
        serve_host(port, commands)
        signal.sigtimedwait({signal.SIGIO}, _LONGEST_WAIT_S)


def serve_host(port: int, commands: Commands) -> None:
    hello: dict[str, Any] | None = None
    while True:
        runner = GuestRunner(port, commands)
        try:
            if hello is not None:
                runner.obey(hello)
            runner.serve()
            return
        except NewHost as new:
            hello = new.args[0]
        finally:
            runner.finish()


_MODULES = (
    *("openvswitch", "sch_ingress", "cls_flower", "act_mirred", "act_pedit", "act_gact", "act_csum", "act_skbedit"),
    *("act_vlan", "act_police", "act_tunnel_key", "act_ct", "veth", "bridge", "tun"),
    # The kernel of the guest cannot load by itself what a tunnel port of Open vSwitch needs.
    *("geneve", "vxlan", "ip_gre", "vport-geneve", "vport-vxlan", "vport-gre"),
)


def prepare(kernel_root: str) -> None:
    """Mount file systems, set the loopback device up, load kernel modules."""
    run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"])
    run(["mount", "-t", "devpts", "-o", "mode=600,ptmxmode=666", "devpts", _made("/dev/pts")])
    run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", _made("/dev/shm")])  # noqa: S108 (the place of shm_overview(7))
    _made("/run/netns")
    run(["ip", "link", "set", "lo", "up"])
    # Ports and cables send nothing by themselves; namespaces made later have IPv6 again.
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    # No gre0 and the like in every namespace (sysctl/net.rst of the kernel).
    Path("/proc/sys/net/core/fb_tunnels_only_for_init_net").write_text("2")
    run(["modprobe", "-d", kernel_root, "-a", *_MODULES], timeout_s=120.0)
    # So that modprobe(8) finds further modules without -d.
    modules = Path(_made("/lib/modules"), os.uname().release)
    if not modules.exists():
        modules.symlink_to(f"{kernel_root}/lib/modules/{modules.name}")


def _made(directory: str) -> str:
    Path(directory).mkdir(exist_ok=True)
    return directory


_GC_THRESHOLD = 200_000
_PORTS = Path("/sys/class/virtio-ports")


def run_guest(kernel_root: str, *, modules: Sequence[str], commands: Commands) -> None:
    """Run commands forever: if its first process exits, the kernel panics and the machine stops. `modules`: those that
    commands import. None of them may start a thread, as forks would not have it."""
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
    """Start a process for each port. Return the devices of the ports by process id."""
    preparing = _fork(partial(prepare, kernel_root))
    for module in modules:
        importlib.import_module(module)
    # Commands are short: searching the imported modules for cycles would cost more than it frees.
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
