"""What a lab uses of its host: network namespaces, processes and required programs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import LabError
from xenoovs.lab.topology import is_namespace_of
from xenoovs.switch.process import Completed, missing_programs, run, try_run

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of steps done, and the number of steps in all."""


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


_TOOLS = ("ip", "ethtool", "tee", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl")
_TUN = Path("/dev/net/tun")
_IPV6 = Path("/proc/sys/net/ipv6")


def has_ipv6() -> bool:
    """Return whether the kernel has IPv6 enabled."""
    return _IPV6.exists()


def check_root() -> None:
    """Raise LabError unless this process is root."""
    if os.geteuid() != 0:
        raise LabError("a lab is made of network namespaces, which takes root: run the same command with `sudo`")


def check_host(*, needs_ipv6: bool) -> None:
    """Raise LabError with the first missing requirement and the command that adds it."""
    check_root()
    if missing := missing_programs(_TOOLS):
        packages = " ".join(sorted(set(missing.values())))
        raise LabError(f"{', '.join(missing)} not found; on Debian: `apt-get install {packages}`")
    if not os.access(_TUN, os.R_OK | os.W_OK):
        raise LabError(
            f"{_TUN} cannot be opened, which Open vSwitch needs for its userspace datapath: `modprobe tun`, "
            f"or give the container that device (`--device {_TUN}`)"
        )
    if needs_ipv6 and not has_ipv6():
        raise LabError("the config has IPv6 services and the kernel's IPv6 is off: boot without `ipv6.disable=1`")


_STOP_TIMEOUT_S = 30.0
_STEP_S = 0.005

_PROC = Path("/proc")


def environment_of(pid: int) -> Mapping[str, str]:
    """Return the environment with which a process was started; empty if it has exited or cannot be read."""
    with suppress(OSError):
        pairs = (_PROC / str(pid) / "environ").read_bytes().decode(errors="surrogateescape").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {}


def marked_processes(name: str, value: str) -> tuple[int, ...]:
    """Return the ids of all other processes whose environment has `name=value`, sorted."""
    pids = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return tuple(pid for pid in pids if pid != os.getpid() and environment_of(pid).get(name) == value)


def is_alive(pid: int) -> bool:
    """Return whether a process has a thread that has not exited. A zombie counts as exited."""
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    return True
    return False


def kill_and_wait(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal that ends processes. Return False if some still run, or hang in the kernel, after 30 s."""
    left = list(pids)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while (left := [pid for pid in left if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    return not left


@dataclass(frozen=True, slots=True)
class LabNetns:
    """Runs ip(8) with the marks of a lab in the environment, so that `down` also finds processes left by a crash."""

    marks: Mapping[str, str] = field(default_factory=dict, hash=False)

    def batch(self, lines: Iterable[str], *, namespace: str | None = None, is_ipv6: bool = False) -> None:
        """Run commands of ip(8) in one process (`ip -6` if `is_ipv6`). Raises CommandFailed at the first that fails."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            options = [*(["-6"] if is_ipv6 else []), *(["-n", namespace] if namespace else [])]
            run(["ip", *options, "-batch", "-"], stdin=text, env=self.marks)

    def execute(self, namespace: str, argv: Iterable[str], *, stdin: str | None = None) -> Completed:
        return run(["ip", "netns", "exec", namespace, *argv], stdin=stdin, env=self.marks)

    def write_sysctls(self, namespace: str, paths: Iterable[str], *, value: int) -> None:
        """Set kernel parameters below /proc/sys/net of a namespace, without sysctl(8)."""
        self.execute(namespace, ["tee", *(f"/proc/sys/net/{path}" for path in paths)], stdin=f"{value}\n")


def namespaces_of(name: str) -> tuple[str, ...]:
    """Return the namespaces of lab `name` that exist, complete or not, sorted."""
    listed = run(["ip", "netns", "list"]).stdout.splitlines()
    names = (line.split()[0] for line in listed if line.split())
    return tuple(sorted(namespace for namespace in names if is_namespace_of(namespace, name)))


def processes_in(namespace: str) -> tuple[int, ...]:
    """Return the ids of the processes in a namespace; empty if it is missing or incomplete."""
    return tuple(int(word) for word in try_run(["ip", "netns", "pids", namespace]).stdout.split())


def delete_namespace(namespace: str) -> None:
    """Remove a namespace, with every device in it, if it exists."""
    try_run(["ip", "netns", "del", namespace])
