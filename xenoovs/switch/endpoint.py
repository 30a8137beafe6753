"""Where the Open vSwitch of this host is: its database and its run directory, found as the OVS tools find them."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import BridgeMissing, SwitchError, SwitchUnreachable

DEFAULT_RUNDIR = Path("/var/run/openvswitch")
"""Of Debian, Ubuntu, RHEL and BlueField packages (ovs-vswitchd(8), FILES)."""

_REMOTE = re.compile(r"unix:/.+|tcp:(?:[^:]+|\[[^]]+\]):[0-9]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Open vSwitch.

    db:     active connection methods of ovsdb(7): `unix:/var/run/openvswitch/db.sock`, `tcp:192.0.2.1:6640`, or
            several of a cluster, divided by commas.
    rundir: directory of the sockets of ovs-vswitchd; None where only the database is known.
    """

    db: str
    rundir: Path | None

    @property
    def env(self) -> dict[str, str]:
        """What makes the OVS tools use this one and no other (ovs-appctl(8), "ENVIRONMENT")."""
        return {"OVS_RUNDIR": str(self.local_rundir)}

    @property
    def local_rundir(self) -> Path:
        """`rundir`. Raises SwitchUnreachable where it is not known."""
        if self.rundir is None:
            raise SwitchUnreachable(
                target=self.db,
                reason="flows are read and written at the sockets of ovs-vswitchd, which a remote database does not "
                "tell; run xenoovs on the host of the switch and set OVS_RUNDIR to its run directory",
            )
        return self.rundir

    @property
    def is_split(self) -> bool:
        """Whether database and run directory were told apart, so that they might be of two different Open vSwitches."""
        return self.rundir is not None and self.db != f"unix:{self.rundir / 'db.sock'}"

    def management(self, bridge: str) -> str:
        """Return the OpenFlow socket of a bridge as ovs-ofctl(8) takes it, always the one in this run directory.

        Raises BridgeMissing for a name that no bridge can have (bridge_check_reconfigure of vswitchd/bridge.c).
        """
        if not bridge or "/" in bridge:
            raise BridgeMissing(bridge=bridge, present=self.bridges_with_socket())
        return f"unix:{self.local_rundir / bridge}.mgmt"

    def incarnation(self, bridge: str) -> str | None:
        """Which making of its OpenFlow socket this is: every new bridge and every new ovs-vswitchd makes another.

        None while there is no socket, or nobody listens there any more. Raises BridgeMissing.
        """
        path = Path(self.management(bridge).removeprefix("unix:"))
        try:
            seen = path.stat()
        except OSError:
            return None
        return None if _is_abandoned(path) else f"{seen.st_ino}-{seen.st_ctime_ns}"

    def bridges_with_socket(self) -> tuple[str, ...]:
        """Bridges that have an OpenFlow socket here; none where the directory cannot be read."""
        try:
            sockets = [path.stem for path in self.local_rundir.iterdir() if path.suffix == ".mgmt"]
        except OSError:
            return ()
        return tuple(sorted(sockets))


def _is_abandoned(path: Path) -> bool:
    """Whether whoever made this socket is gone, as after a kill: the file stays then (unix(7)).

    Whoever is there does not hear of the question: for a datagram socket theirs is of the wrong type (EPROTOTYPE).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def find_endpoint(*, db: str | None, env: Mapping[str, str]) -> Endpoint:
    """The Open vSwitch of option `--db` and of OVS_RUNDIR in the environment.

    Without either the one of the host. `--db unix:/x/db.sock` alone implies the run directory /x.
    Raises SwitchError for a `db` of another form.
    """
    told = env.get("OVS_RUNDIR")
    if db is None:
        rundir = Path(told) if told else DEFAULT_RUNDIR
        return Endpoint(f"unix:{rundir / 'db.sock'}", rundir)
    for remote in db.split(","):
        if not _REMOTE.fullmatch(remote):
            raise SwitchError(f"--db {remote}: expected unix:/path/db.sock or tcp:ADDRESS:PORT (ssl is not supported)")
    if told:
        return Endpoint(db, Path(told))
    is_local = db.startswith("unix:") and "," not in db
    return Endpoint(db, Path(db.removeprefix("unix:")).parent if is_local else None)
