"""The first program of the guest after `init.sh`: prepares it, then runs what the host asks for, until the power goes.

Emulated, a new Python takes seconds to start and to import; so commands of the program that calls this, and Python
modules, run in forks of this process, which has imported what they need.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from xenoovs.lab.nic.frames import PORT_NAME, PORTS
from xenoovs.lab.nic.guest.command import Commands
from xenoovs.lab.nic.guest.prepare import prepare
from xenoovs.lab.nic.guest.serve import serve

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
