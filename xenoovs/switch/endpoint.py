"""Where the Open vSwitch of this host is: its database and its run directory. Whether its processes answer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Unresponsive
from xenoovs.display import span
from xenoovs.errors import BridgeMissing, SwitchError, SwitchUnreachable, SwitchUnresponsive
from xenoovs.regex import regex
from xenoovs.switch.tape import asked, list_files, number_of, read_file

DEFAULT_RUNDIR = Path("/var/run/openvswitch")
"""Run directory of Debian, Ubuntu, RHEL and BlueField packages (ovs-vswitchd(8), FILES)."""

_REMOTE = regex(r"unix:/.+|tcp:(?:[^:]+|\[[^]]+\]):[0-9]+")


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
        """Return the environment by which the OVS tools use this Open vSwitch (ovs-appctl(8), "ENVIRONMENT")."""
        return {"OVS_RUNDIR": str(self.local_rundir)}

    @property
    def local_rundir(self) -> Path:
        """Return `rundir`. Raises SwitchUnreachable if it is not known."""
        if self.rundir is None:
            raise SwitchUnreachable(
                target=self.db,
                reason="flows are read and written at the sockets of ovs-vswitchd, which a remote database does not "
                "name; run xenoovs on the host of the switch and set OVS_RUNDIR to its run directory",
            )
        return self.rundir

    @property
    def is_split(self) -> bool:
        """Return whether database and run directory were given separately, and so may belong to two Open vSwitches."""
        return self.rundir is not None and self.db != f"unix:{self.rundir / 'db.sock'}"

    def management(self, bridge: str) -> str:
        """Return the OpenFlow socket of a bridge in this run directory, in the form of ovs-ofctl(8). Raises
        BridgeMissing for a name that no bridge can have (bridge_check_reconfigure of vswitchd/bridge.c)."""
        if not bridge or "/" in bridge:
            raise BridgeMissing(bridge=bridge, present=self.bridges_with_socket())
        return f"unix:{self.local_rundir / bridge}.mgmt"

    def incarnation(self, bridge: str) -> str | None:
        """Return an identity of the bridge's OpenFlow socket, new for each new bridge and each new ovs-vswitchd.

        None if there is no socket, or no process listens there. Raises BridgeMissing.
        """
        path = Path(self.management(bridge).removeprefix("unix:"))
        try:
            seen = path.stat()
        except OSError:
            return None
        return None if _is_abandoned(path) else f"{seen.st_ino}-{seen.st_ctime_ns}"

    def bridges_with_socket(self) -> tuple[str, ...]:
        """Return the bridges that have an OpenFlow socket here; none if the directory cannot be read."""
        return tuple(sorted(name.removesuffix(".mgmt") for name in list_files(self.local_rundir, "*.mgmt")))


def _is_abandoned(path: Path) -> bool:
    """Return whether the process that made this socket has exited, as after a kill, when the file stays (unix(7)).

    A listener does not notice the check: its socket has the wrong type for a datagram socket (EPROTOTYPE).
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
    """Return the Open vSwitch of option `--db` and of OVS_RUNDIR in the environment.

    Without both, return that of the host. `--db unix:/x/db.sock` alone implies the run directory /x. Raises SwitchError
    for a `db` of another form.
    """
    given = env.get("OVS_RUNDIR")
    if db is None:
        rundir = Path(given) if given else DEFAULT_RUNDIR
        return Endpoint(f"unix:{rundir / 'db.sock'}", rundir)
    for remote in db.split(","):
        if not _REMOTE.fullmatch(remote):
            raise SwitchError(f"--db {remote}: expected unix:/path/db.sock or tcp:ADDRESS:PORT (ssl is not supported)")
    if given:
        return Endpoint(db, Path(given))
    is_local = db.startswith("unix:") and "," not in db
    return Endpoint(db, Path(db.removeprefix("unix:")).parent if is_local else None)


# Whether the processes of Open vSwitch answer: one cheap request to each, with a time limit.


ANSWER_S = 10.0
"""Time limit of an answer. Open vSwitch gives up a silent controller after as long (inactivity_probe of
ovs-vswitchd.conf.db(5), twice), and a large change may occupy it for some seconds on a small machine."""

_VERSION = b'{"id":0,"method":"version","params":[]}'
"""JSON-RPC 1.0 of ovs-appctl(8), which the main loop of ovs-vswitchd answers (lib/unixctl.c)."""
_ECHO = b'{"id":0,"method":"echo","params":[]}'
"""RFC 7047, 4.1.11."""
_AGAIN_S = 0.05
MAX_PATH_BYTES = 107
"""sun_path of unix(7), without its final zero."""
_TCP = regex(r"tcp:(?:\[([^]]+)\]|([^:]+)):([0-9]+)")

_STATES = {
    "T": "it is stopped, as by SIGSTOP",
    "t": "a debugger holds it",
    "D": "it waits in the kernel",
    "Z": "it is a zombie: its parent has not collected it",
}
"""Field 3 of /proc/PID/stat (proc(5))."""


def ask_vswitchd(endpoint: Endpoint, *, patience_s: float = ANSWER_S) -> Unresponsive | None:
    """Return how ovs-vswitchd fails to answer; None if it answers, or if no process listens there."""
    pid = pid_of(endpoint, "ovs-vswitchd")
    if pid is None:
        return None
    path = str(endpoint.local_rundir / f"ovs-vswitchd.{pid}.ctl")
    if _is_answered(path, _VERSION, patience_s=patience_s) is not False:
        return None
    return _silent(pid, "ovs-vswitchd", patience_s)


def ask_database(endpoint: Endpoint, *, patience_s: float = ANSWER_S) -> Unresponsive | None:
    """Return how the database fails to answer; None if it answers, or if no process listens there."""
    found = [_is_answered(address_of(target), _ECHO, patience_s=patience_s) for target in endpoint.db.split(",")]
    if True in found or False not in found:
        return None
    return _silent(pid_of(endpoint, "ovsdb-server"), "ovsdb-server", patience_s)


def require_answers(endpoint: Endpoint) -> None:
    """Raise SwitchUnresponsive if ovs-vswitchd or its database accepts requests and answers none."""
    for silent in (ask(endpoint, patience_s=ANSWER_S) for ask in (ask_vswitchd, ask_database)):
        if silent is not None:
            target = str(endpoint.rundir or endpoint.db)
            commands = tuple(" ".join(words) for words in silent.fix)
            raise SwitchUnresponsive(target=target, reason=silent.reason, commands=commands)


def _is_answered(address: str | tuple[str, int], question: bytes, *, patience_s: float) -> bool | None:
    """Return whether an answer comes; None if no process listens there, or if it closes the connection."""

    def ask() -> str | None:
        try:
            with connected_to(address, patience_s) as sock:
                sock.sendall(question)
                return "yes" if sock.recv(1) else None
        except TimeoutError:
            return "no"
        except OSError:
            return None

    answer = asked(("connect", str(address)), ask)
    return None if answer is None else answer == "yes"


def connected_to(address: str | tuple[str, int], timeout_s: float) -> socket.socket:
    """Return a connection to a unix socket or a TCP port, with this timeout. Raises OSError, such as TimeoutError."""
    if not isinstance(address, str):
        return socket.create_connection(address, timeout=timeout_s)
    deadline = time.monotonic() + timeout_s
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        while True:
            try:
                _connect(sock, Path(address))
            except BlockingIOError:
                # So many connections wait already that the kernel queues no more (unix(7), EAGAIN).
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(_AGAIN_S)
            else:
                return sock
    except BaseException:
        sock.close()
        raise


def answers(path: Path) -> bool:
    """Return whether a process listens at a unix socket, even if its queue of connections is full."""
    try:
        connected_to(str(path), 1.0).close()
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


def bind_unix(sock: socket.socket, path: Path) -> None:
    """Bind a unix socket, with mode 0600. A socket that a killed process left behind is replaced. Raises OSError."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(0, f"the path is longer than the {MAX_PATH_BYTES} bytes that a socket's name may have")
    if path.is_socket() and not answers(path):
        path.unlink()
    # Before bind(2), so that it never has another mode: a new socket file takes that of its descriptor (unix(7)).
    os.fchmod(sock.fileno(), 0o600)
    sock.bind(os.fspath(path))


def _connect(sock: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        sock.connect(str(path))
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def address_of(target: str) -> str | tuple[str, int]:
    """Return a connection method of ovsdb(7) in the form of the socket module."""
    found = _TCP.fullmatch(target)
    return (found[1] or found[2], int(found[3])) if found else target.removeprefix("unix:")


def pid_of(endpoint: Endpoint, daemon: str) -> int | None:
    """Return the number in the pid file of a daemon, where ovs-appctl(8) looks for it; None if there is none."""
    return None if endpoint.rundir is None else number_of(read_file(endpoint.rundir / f"{daemon}.pid"))


def stat_of(pid: int | None, program: str) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on (proc(5)); None if the process is not visible from here.

    By now the number may belong to another process, or be of another namespace: then the program has another name.
    """
    # The name of the program may hold blanks and parentheses; the fields behind it are numbers.
    name, _, fields = (read_file(Path("/proc") / str(pid) / "stat") or "").rpartition(")")
    return fields.split() if name.endswith(f"({program}") else None


def _silent(pid: int | None, process: str, patience_s: float) -> Unresponsive:
    stat = stat_of(pid, process)
    state = stat[0] if stat else ""
    name = f"{process} (process {pid})" if state else process
    reason = _STATES.get(state, "it hangs, or is very busy")
    fix = ("kill", "-CONT", str(pid)) if state == "T" else ("systemctl", "restart", "openvswitch-switch")
    return Unresponsive(f"{name} has not answered for {span(patience_s)}: {reason}", fix=(fix,))


_ADDRESS = regex(r"(?:\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\]|([^:,\[\]\s]+))(?::([0-9]{1,5}))?")


def parse_host_port(text: str, *, ports: range = range(65536), default: int = -1) -> tuple[str, int]:
    """Return host, without brackets, and port of `127.0.0.1:9090`, `[::1]:9090` or `localhost:9090`. `default`: the
    port of a text without one. Raises ValueError, also for a port not in `ports`."""
    found = _ADDRESS.fullmatch(text)
    port = default if found is None else int(found[3] or default)
    if found is None or port not in ports:
        form, allowed = "ADDRESS:PORT" if default < 0 else "ADDRESS or ADDRESS:PORT", f"{ports[0]} to {ports[-1]}"
        raise ValueError(f"{text!r} is not {form}, such as 127.0.0.1:9090 or [::1]:9090, with port {allowed}")
    return found[1] or found[2], port


def is_loopback(host: str) -> bool:
    """Return whether a `Host` header, or the host of a listen address, names only this machine."""
    found = _ADDRESS.fullmatch(host)
    name = host if found is None else found[1] or found[2]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
