"""A machine of this host's files and kernel that systemd runs, with xenoovs in /opt/xenoovs as a user has it.

Its processes, mounts, network, names and control groups are its own, as systemd-nspawn(1) would make them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.machines import SYSTEMD
from tests.patience import eventually
from tests.systemd.install import DEPENDENCIES, Installed

AGENT, CONFIG = "xenoovs-agent", "/etc/xenoovs/config.yaml"
WATCHDOG_S = 20
"""Replaces the 120 s of the unit, for which the test would wait."""
FLOWS = "ovs-ofctl -O OpenFlow14 --no-names --sort dump-flows ovsbr1"
BRIDGE = (
    "ovs-vsctl add-br ovsbr1 -- add-port ovsbr1 p0 -- add-port ovsbr1 p1 "
    "-- set bridge ovsbr1 datapath_type=netdev fail_mode=secure"
)
NOTHING = (0, "", "")
"""What a command says that does what it has to."""

# Far longer than any step takes, as the machine shares its processors.
_TIMEOUT_S = 900.0
_BOOT = Path(__file__).with_name("boot.sh")
_NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")
_ENVIRONMENT = ("env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")


@dataclass(frozen=True, slots=True)
class Machine:
    """`pid`: the first process of the machine, as the host counts."""

    pid: int

    def run(self, script: str, *, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a script of sh(1) in the machine. Raises subprocess.TimeoutExpired."""
        argv = ["nsenter", "--all", f"--target={self.pid}", *_ENVIRONMENT, "sh", "-c", script]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)

    def say(self, script: str) -> tuple[int, str, str]:
        """Return the exit status, the output and the errors of a script."""
        done = self.run(script)
        return done.returncode, done.stdout, done.stderr

    def must(self, script: str, *, stdin: str = "") -> str:
        """Return the output of a script that ends well."""
        done = self.run(script, stdin=stdin)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str, *, mode: str = "0644") -> None:
        self.must(f"mkdir -p {Path(path).parent}; cat >{path}; chmod {mode} {path}", stdin=text)

    def shown(self, unit: str, *properties: str) -> dict[str, str]:
        """Return what `systemctl show` says of a unit."""
        lines = self.must(f"systemctl show -p {','.join(properties)} {unit}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def is_ready(self) -> bool:
        """Whether it has reached basic.target. Until systemd runs, its files are not its own."""
        with suppress(OSError):
            is_systemd = Path(f"/proc/{self.pid}/comm").read_text() == "systemd\n"
            return is_systemd and self.run("systemctl -q is-active basic.target").returncode == 0
        return False


def until(condition: str) -> str:
    """Return a script that waits for a condition."""
    return f"until {condition}; do sleep 0.1; done"


@contextmanager
def booted(directory: Path, installed: Installed) -> Iterator[Machine]:
    """Boot a machine that runs commands until the end of the block. `directory` is empty."""
    group = f"xenoovs-test-{os.getpid()}"
    places = (directory, group, installed.opt, installed.site_packages, DEPENDENCIES, SYSTEMD)
    # It ends with this process, also where that is killed.
    argv = ["setpriv", "--pdeathsig=KILL", "unshare", *_NAMESPACES, "--fork", "--kill-child", "sh", str(_BOOT)]
    with (directory / "console").open("w") as console:
        outer = subprocess.Popen([*argv, *map(str, places)], stdout=console, stderr=console)
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        eventually(lambda: outer.poll() is not None or bool(children.read_text()), "the machine has a first process")
        machine = Machine(int(children.read_text()))
        eventually(lambda: outer.poll() is not None or machine.is_ready, "systemd reaches basic.target")
        assert outer.poll() is None, (directory / "console").read_text()
        yield machine
    finally:
        outer.kill()
        outer.wait()
        _remove(group, directory)


def _remove(group: str, directory: Path) -> None:
    """Remove the control groups that the machine leaves, once its last process has ended."""
    script = f"mount -t cgroup2 cgroup2 {directory}; find {directory}/{group} -depth -type d -exec rmdir {{}} +"
    argv = ["unshare", "--mount", "sh", "-c", script]
    eventually(lambda: subprocess.run(argv, capture_output=True, check=False).returncode == 0, f"{group} is empty")
