"""The first program of the guest after `init.sh`: prepares it, then runs what the host asks for, until the power goes.

`python -m xenoovs.lab.nic.guest.agent KERNEL_ROOT`. Emulated, a new Python takes seconds to start and to import; so
commands of xenoovs and Python modules run in forks of this process, which has imported what they need.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from xenoovs.lab.nic.frames import PORT_NAME, PORTS
from xenoovs.lab.nic.guest.prepare import prepare
from xenoovs.lab.nic.guest.serve import serve

# What commands import sooner or later. Nothing here may start a thread: forks would lose it.
PRELOADED = (
    *("xenoovs.cli.main", "xenoovs.cli.apply", "xenoovs.cli.verify_offload", "xenoovs.cli.why", "xenoovs.cli.doctor"),
    *("xenoovs.cli.lab", "xenoovs.cli.status", "xenoovs.cli.planning", "xenoovs.cli.offload_look"),
    *("xenoovs.lab.nic.guest.lab", "xenoovs.lab.traffic", "xenoovs.lab.status", "xenoovs.config.load"),
    *("xenoovs.config.emit", "xenoovs.switch.live", "xenoovs.cli.doctor_case", "xenoovs.cli.why_witnesses"),
    *("xenoovs.cli.show_offload", "xenoovs.cli.show_traffic", "xenoovs.cli.show_why", "xenoovs.cli.show_plan"),
)
_GC_THRESHOLD = 200_000
_PORTS = Path("/sys/class/virtio-ports")


def main() -> None:
    """Never returns: the kernel panics when its first process ends, and the machine stops."""
    try:
        serving = _start(sys.argv[1])
    except Exception:  # noqa: BLE001 (the host shows the console when the machine stops)
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    while True:
        pid, _ = os.wait()
        if device := serving.pop(pid, None):
            serving[_fork(partial(serve, device))] = device


def _start(kernel_root: str) -> dict[int, Path]:
    """The processes that serve a port each, and its device."""
    preparing = _fork(partial(prepare, kernel_root))
    for module in PRELOADED:
        importlib.import_module(module)
    # Commands are short; looking for cycles among what was imported would cost them more than it brings.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    if os.waitpid(preparing, 0)[1] != 0:
        raise RuntimeError("the guest could not be prepared")
    devices = [_device(f"{PORT_NAME}{port}") for port in range(PORTS)]
    serving = {_fork(partial(serve, device)): device for device in devices}
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


if __name__ == "__main__":
    main()
