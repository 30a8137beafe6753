"""A private Open vSwitch with its own directory, database and daemons, separate from that of the host."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from math import ceil
from pathlib import Path

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import LabError
from xenoovs.lab.host import environment_of, kill_and_wait
from xenoovs.switch.process import run

# Emulated machines are slow.
_START_TIMEOUT_S = 120.0
_LOCK_PATIENCE_S, _LOCK_STEP_S = 20.0, 0.02
_ORPHANED_S = 5
_STARTED = "started.json"


class Datapath(Enum):
    """DUMMY: without root and devices, packets by `netdev-dummy/receive`. USERSPACE: real packets on veth pairs, as
    root. KERNEL: that of Linux, one in each network namespace."""

    DUMMY = "dummy"
    USERSPACE = "netdev"
    KERNEL = "system"


@dataclass(frozen=True, slots=True)
class PrivateOvs:
    """A private Open vSwitch. `directory` has its sockets, pid files, logs and database. `marks`: environment variables
    of its daemons, by which `marked_processes` finds them."""

    directory: Path
    marks: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def db(self) -> str:
        """Return the argument for `--db` of ovs-vsctl(8)."""
        return f"unix:{self.directory / 'db.sock'}"

    @property
    def env(self) -> dict[str, str]:
        """Return the environment with which the OVS tools use this Open vSwitch (ovs-appctl(8), "ENVIRONMENT")."""
        here = str(self.directory)
        return {"OVS_RUNDIR": here, "OVS_LOGDIR": here, "OVS_DBDIR": here}

    @property
    def datapath(self) -> Datapath:
        """Return the datapath with which ovs-vswitchd was last started."""
        return Datapath(json.loads((self.directory / _STARTED).read_text())["datapath"])

    def vsctl(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """Run ovs-vsctl(8). Raises LabError if it writes an error to stderr, even if it exits with 0."""
        # Without --timeout, ovs-vsctl waits for ovs-vswitchd forever, even after its parent was killed.
        patience = f"--timeout={ceil(timeout_s) + _ORPHANED_S}"
        argv = ["ovs-vsctl", patience, f"--db={self.db}", *arguments]
        done = run(argv, timeout_s=timeout_s, env={**self.env, **self.marks})
        if "rror" in done.stderr:
            raise LabError(
                f"ovs-vsctl {' '.join(arguments)}: {done.stderr.strip()}; see {self.directory}/ovs-vswitchd.log"
            )
        return done.stdout.strip()

    def appctl(self, *arguments: str, timeout_s: float = 30.0) -> str:
        return run(["ovs-appctl", *arguments], timeout_s=timeout_s, env=self.env).stdout

    def add_flows(self, bridge: str, flows: Iterable[str]) -> None:
        argv = ["ovs-ofctl", "--names", "add-flows", bridge, "-"]
        run(argv, stdin="".join(f"{flow}\n" for flow in flows), env={**self.env, **self.marks})

    def add_bridge(self, name: str, ports: Iterable[str], *, datapath: Datapath, secure: bool = True) -> None:
        """Add a bridge with `ports` as OpenFlow ports 1, 2, ...; `secure`: whether it drops packets without flows."""
        mode = "secure" if secure else "standalone"
        argv = ["add-br", name, "--", "set", "bridge", name, f"datapath_type={datapath.value}", f"fail_mode={mode}"]
        for ofport, port in enumerate(ports, start=1):
            argv += ["--", "add-port", name, port, "--", "set", "interface", port, f"ofport_request={ofport}"]
        self.vsctl(*argv, timeout_s=_START_TIMEOUT_S)

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the running daemons: ovs-vswitchd, then ovsdb-server."""
        found = []
        for daemon in ("ovs-vswitchd", "ovsdb-server"):
            with suppress(FileNotFoundError, ValueError):
                pid = int((self.directory / f"{daemon}.pid").read_text())
                # After a crash the pid file remains, and the pid may belong to another process.
                if environment_of(pid).get("OVS_RUNDIR") == str(self.directory):
                    found.append(pid)
        return tuple(found)


LAB_MAX_IDLE = "max-idle=300000"
"""Keeps megaflows until the user's next command. The default of 10 s is too short (ovs-vswitchd.conf.db(5))."""


def start_private_ovs(
    directory: Path,
    *,
    datapath: Datapath,
    netns: str | None = None,
    marks: Mapping[str, str] | None = None,
    settings: Iterable[str] = (),
) -> PrivateOvs:
    """Start ovsdb-server and ovs-vswitchd in `directory` (mode 0700) and network namespace `netns`. `settings`:
    other_config of Open_vSwitch, as `key=value`, set before ovs-vswitchd starts. Raises LabError if Open vSwitch is not
    installed or does not start; then no process is left."""
    if not (schema := _schema()).exists():
        raise LabError(f"{schema} is missing: install Open vSwitch (Debian: `apt-get install openvswitch-switch`)")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ovs = PrivateOvs(directory, marks or {})
    try:
        start_database(ovs, netns=netns)
        for setting in settings:
            ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", f"other_config:{setting}")
        start_vswitchd(ovs, datapath=datapath, netns=netns)
    except BaseException:
        stop_private_ovs(ovs)
        raise
    return ovs


def _schema() -> Path:
    return Path(os.environ.get("OVS_PKGDATADIR", "/usr/share/openvswitch")) / "vswitch.ovsschema"


def start_database(ovs: PrivateOvs, *, netns: str | None = None) -> None:
    """Start ovsdb-server, with the existing database if there is one."""
    conf = ovs.directory / "conf.db"
    if not conf.exists():
        create = ["ovsdb-tool", "create", str(conf), str(_schema())]
        run(create, env={**ovs.env, **ovs.marks}, timeout_s=_START_TIMEOUT_S)
    _start(ovs, ["ovsdb-server", str(conf), f"--remote=p{ovs.db}"], netns=netns)
    ovs.vsctl("--no-wait", "init")


def start_vswitchd(ovs: PrivateOvs, *, datapath: Datapath, netns: str | None = None) -> None:
    """Start ovs-vswitchd. Each userspace datapath needs its own namespace, because of its tap `ovs-netdev`."""
    dummy = ["--enable-dummy=system"] if datapath is Datapath.DUMMY else []
    system = [] if datapath is Datapath.KERNEL else ["--disable-system"]
    (ovs.directory / _STARTED).write_text(json.dumps({"datapath": datapath.value, "netns": netns}))
    _start(ovs, ["ovs-vswitchd", ovs.db, *system, *dummy], netns=netns)


def start_vswitchd_again(ovs: PrivateOvs) -> None:
    options = json.loads((ovs.directory / _STARTED).read_text())
    start_vswitchd(ovs, datapath=ovs.datapath, netns=options["netns"])


def stop_private_ovs(ovs: PrivateOvs) -> None:
    """Stop the daemons and remove the directory, if they exist."""
    for pid in ovs.pids():
        stop_process(pid)
    shutil.rmtree(ovs.directory, ignore_errors=True)


def stop_process(pid: int) -> None:
    """Send SIGTERM, and SIGKILL after 30 s."""
    if not kill_and_wait([pid], signal.SIGTERM):
        kill_and_wait([pid])


def _start(ovs: PrivateOvs, argv: list[str], *, netns: str | None) -> None:
    """Start a daemon in the background, once an earlier one has ended."""
    files = ovs.directory / argv[0]
    _wait_until_released(Path(f"{files}.pid"))
    inside = ["ip", "netns", "exec", netns] if netns else []
    options = [f"--pidfile={files}.pid", f"--log-file={files}.log", "-vconsole:off", "--detach", "--no-chdir"]
    run([*inside, *argv, *options], env={**ovs.env, **ovs.marks}, timeout_s=_START_TIMEOUT_S)


def _wait_until_released(pid_file: Path) -> None:
    """Wait until a killed daemon has released the lock on its pid file (ovs-vswitchd(8), --pidfile)."""
    deadline_s = time.monotonic() + _LOCK_PATIENCE_S
    with suppress(FileNotFoundError), pid_file.open("r+") as file:
        while time.monotonic() < deadline_s:
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(_LOCK_STEP_S)
