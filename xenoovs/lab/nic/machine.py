"""The virtual machine: starts in the background, ends with its process, keeps everything in one directory."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.nic.build import build_initrd
from xenoovs.lab.nic.debian import Kernel
from xenoovs.lab.nic.frames import PORT_NAME, PORTS
from xenoovs.lab.processes import environment_of, is_alive, kill_and_wait
from xenoovs.switch.process import run

_MEMORY_MIB = 2048
_LAST_LINES = 30
_SOCKET_PATH_BYTES = 107  # unix(7), sun_path less the closing zero
_STEP_S = 0.1

# One processor: emulated ones spend half of their time waiting for each other.
# Enough for numpy (x86-64-v2), and without what QEMU emulates at length: AVX in every memcpy, page tables of 5 levels.
_CPU = "Nehalem"
# Kernel parameters (kernel-parameters.txt): no checks that an emulated processor pays for, no long waits of RCU.
_CHEAPER = "mitigations=off apparmor=0 audit=0 init_on_alloc=0 nowatchdog rcupdate.rcu_expedited=1"

# Its value in the environment of QEMU is the machine's directory: process ids are used again.
MACHINE_MARK = "XENOOVS_MACHINE"


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine. `directory` holds its sockets, its process id and its console's text."""

    directory: Path

    @property
    def console(self) -> Path:
        """What the guest's kernel and its first process have written."""
        return self.directory / "console.log"

    @property
    def pid(self) -> int | None:
        """The process, when it is at work."""
        with suppress(FileNotFoundError, ValueError):
            pid = int((self.directory / "pid").read_text())
            if is_alive(pid) and environment_of(pid).get(MACHINE_MARK) == str(self.directory):
                return pid
        return None

    def socket(self, port: int) -> Path:
        """Where the guest can be talked to on that port."""
        return self.directory / f"{port}.sock"

    def last_words(self) -> str:
        """The end of the console's text, for a message."""
        try:
            lines = self.console.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        shown = [line for line in lines if line.strip()][-_LAST_LINES:]
        return "\n".join([f"its console ({self.console}) said last:", *shown]) if shown else "its console says nothing"

    def kill(self) -> None:
        """End it at once. Nothing where it does not run."""
        if (pid := self.pid) is not None:
            kill_and_wait([pid])

    def wait_for_end(self, *, timeout_s: float) -> bool:
        """Whether it has ended by itself."""
        deadline = time.monotonic() + timeout_s
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True


def boot(kernel: Kernel, directory: Path, *, start: str, marks: Mapping[str, str] | None = None) -> Machine:
    """Start a machine whose root is this machine's, read-only under a scratch layer; it boots when this returns.

    Everything about it is in `directory`, which must exist. `start`: text of the program with which the guest goes on
    once it has its root. `marks`: further environment of its process. Raises LabError when QEMU does not start.
    """
    machine = Machine(directory)
    if len(os.fsencode(machine.socket(0))) > _SOCKET_PATH_BYTES:
        raise LabError(f"{directory} is too long a name for sockets: choose a shorter one")
    initrd = build_initrd(kernel, directory, start=start)
    try:
        run(
            _argv(machine, kernel, initrd),
            timeout_s=60.0,
            env={**(marks or {}), MACHINE_MARK: str(directory)},
        )
    except CommandFailed as error:
        raise LabError(f"QEMU does not start: {error.stderr.strip() or error.stdout.strip()}") from None
    return machine


def start_module(module: str, kernel: Kernel) -> str:
    """For `boot`: run a Python module with the root of the kernel, in the Python and with the packages of now."""
    # A new root has no environment: PATH for the tools of Open vSwitch, and the Python that runs now.
    package, own = Path(__file__).parents[3], str(Path(sys.executable).parent)
    # The library below numpy starts threads, which forks do not have, unless it is told not to.
    agent = [sys.executable, "-P", "-m", module, str(kernel.root)]
    return (
        "#!/bin/sh\n"
        f"export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{shlex.quote(own)}\n"
        f"export HOME=/root PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH={shlex.quote(str(package))}\n"
        f"exec {shlex.join(agent)}\n"
    )


def _argv(machine: Machine, kernel: Kernel, initrd: Path) -> list[str]:
    here = machine.directory
    argv = ["qemu-system-x86_64", "-M", "q35", "-cpu", _CPU, "-smp", "1", "-m", str(_MEMORY_MIB), "-no-reboot"]
    # Always emulated: /dev/kvm exists on many machines where a guest then hangs in its first instructions.
    argv += ["-accel", "tcg,thread=multi", "-nodefaults", "-display", "none"]
    argv += ["-daemonize", "-pidfile", str(here / "pid"), "-serial", f"file:{machine.console}"]
    argv += ["-kernel", str(kernel.image), "-initrd", str(initrd)]
    argv += ["-append", f"console=ttyS0 quiet panic=-1 {_CHEAPER}"]
    argv += ["-virtfs", "local,path=/,mount_tag=host,readonly=on,security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-serial-pci"]
    for port in range(PORTS):
        argv += ["-chardev", f"socket,id=port{port},path={machine.socket(port)},server=on,wait=off"]
        argv += ["-device", f"virtserialport,chardev=port{port},name={PORT_NAME}{port}"]
    return argv
