"""A whole Open vSwitch of our own: its directories, its database, its daemon; the host's one is never touched."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from xenoovs.errors import LabError
from xenoovs.switch.process import run

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_STOP_TIMEOUT_S = 5.0


class Datapath(Enum):
    """DUMMY: no root, no devices, packets by `netdev-dummy/receive`. USERSPACE: real packets on veth ends, as root."""

    DUMMY = "dummy"
    USERSPACE = "netdev"


@dataclass(frozen=True, slots=True)
class PrivateOvs:
    """Where a private Open vSwitch lives. `directory` holds sockets, pid files, logs and the database."""

    directory: Path

    @property
    def db(self) -> str:
        """The `--db` of ovs-vsctl(8)."""
        return f"unix:{self.directory / 'db.sock'}"

    @property
    def env(self) -> dict[str, str]:
        """What makes the OVS tools find this one (ovs-appctl(8), "ENVIRONMENT")."""
        here = str(self.directory)
        return {"OVS_RUNDIR": here, "OVS_LOGDIR": here, "OVS_DBDIR": here}

    def vsctl(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """ovs-vsctl(8). Raises LabError when it only complains on stderr: it may still exit with 0."""
        done = run(["ovs-vsctl", f"--db={self.db}", *arguments], timeout_s=timeout_s, env=self.env)
        if "rror" in done.stderr:
            raise LabError(
                f"ovs-vsctl {' '.join(arguments)}: {done.stderr.strip()}; see {self.directory}/ovs-vswitchd.log"
            )
        return done.stdout.strip()

    def appctl(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """ovs-appctl(8) to this ovs-vswitchd."""
        return run(["ovs-appctl", *arguments], timeout_s=timeout_s, env=self.env).stdout

    def pids(self) -> tuple[int, ...]:
        """Process ids of the daemons that run: ovs-vswitchd, then ovsdb-server."""
        found = (_read_pid(self.directory / f"{daemon}.pid") for daemon in ("ovs-vswitchd", "ovsdb-server"))
        return tuple(pid for pid in found if pid is not None and _alive(pid))


def start_private_ovs(directory: Path, *, datapath: Datapath, netns: str | None = None) -> PrivateOvs:
    """Start ovsdb-server and ovs-vswitchd in `directory` (made anew, mode 0700), inside network namespace `netns`.

    Raises LabError when Open vSwitch is not installed or does not start; nothing stays running then.
    """
    if not _SCHEMA.exists():
        raise LabError(f"{_SCHEMA} is missing: install Open vSwitch (Debian: `apt-get install openvswitch-switch`)")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ovs = PrivateOvs(directory)
    try:
        start_database(ovs)
        start_vswitchd(ovs, datapath=datapath, netns=netns)
    except BaseException:
        stop_private_ovs(ovs)
        raise
    return ovs


def start_database(ovs: PrivateOvs) -> None:
    """Start ovsdb-server; an existing database is used on."""
    conf = ovs.directory / "conf.db"
    if not conf.exists():
        run(["ovsdb-tool", "create", str(conf), str(_SCHEMA)], env=ovs.env)
    run(["ovsdb-server", str(conf), f"--remote=p{ovs.db}", *_daemon_options(ovs, "ovsdb-server")], env=ovs.env)
    ovs.vsctl("--no-wait", "init")


def start_vswitchd(ovs: PrivateOvs, *, datapath: Datapath, netns: str | None = None) -> None:
    """Start ovs-vswitchd. The userspace datapath needs its own namespace: each has room for one tap `ovs-netdev`."""
    inside = ["ip", "netns", "exec", netns] if netns else []
    dummy = ["--enable-dummy=override"] if datapath is Datapath.DUMMY else []
    options = ["--disable-system", *dummy, *_daemon_options(ovs, "ovs-vswitchd")]
    run([*inside, "ovs-vswitchd", ovs.db, *options], env=ovs.env)


def stop_private_ovs(ovs: PrivateOvs) -> None:
    """Stop the daemons and remove the directory. Does nothing where nothing is."""
    for pid in ovs.pids():
        stop_process(pid)
    shutil.rmtree(ovs.directory, ignore_errors=True)


def stop_process(pid: int) -> None:
    """SIGTERM, and SIGKILL after some seconds."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while _alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)


def _daemon_options(ovs: PrivateOvs, daemon: str) -> list[str]:
    here = ovs.directory
    return [
        f"--pidfile={here / daemon}.pid",
        f"--log-file={here / daemon}.log",
        "-vconsole:off",
        "--detach",
        "--no-chdir",
    ]


def _read_pid(path: Path) -> int | None:
    with suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return None


def _alive(pid: int) -> bool:
    # A zombie is no longer at work; its parent merely has not read its status yet.
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
