"""The files of an agent: its socket, its lock and its run-time state, for each bridge of each Open vSwitch."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shlex import quote

from xenoovs.dataclass import dataclass
from xenoovs.errors import AgentRuns, ListenError
from xenoovs.switch.endpoint import MAX_PATH_BYTES, Endpoint, answers, bind_unix, find_endpoint

_SYSTEM_RUN, _SYSTEM_STATE = Path("/run/xenoovs"), Path("/var/lib/xenoovs")
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class AgentPaths:
    """Directories of the agents of one Open vSwitch: a reboot removes `run` and keeps `state`."""

    run: Path
    state: Path

    def socket(self, bridge: str) -> Path:
        return self.run / f"{bridge}.sock"

    def lock(self, bridge: str) -> Path:
        return self.run / f"{bridge}.lock"

    def waiting(self, bridge: str) -> Path:
        """Return the socket of an `apply --confirm` that waits for confirmation."""
        return self.run / f"{bridge}.apply"

    def runtime(self, bridge: str) -> Path:
        return self.state / f"{bridge}.json"

    def fleet(self, bridge: str) -> Path:
        """Return the file with the last view of the store of a fleet."""
        return self.state / f"{bridge}.fleet"

    def history(self, bridge: str) -> Path:
        """Return the directory with the history of changes that commands have applied."""
        return self.state / f"{bridge}.history"

    def running(self, bridge: str) -> Path | None:
        """Return the socket at which the agent of a bridge answers (--control may have moved it); None if none does."""
        return next(
            (path for path in (self.socket(bridge), _named_in(self.lock(bridge))) if path and answers(path)), None
        )

    def sockets(self) -> tuple[Path, ...]:
        """Return the sockets of all agents, also of killed ones."""
        return tuple(sorted(self.run.glob("*.sock")))


def command_options(socket: Path, places: AgentPaths | None, *, target: str = "") -> str:
    """Return the options that a command needs to reach an agent, after a space; empty if it needs none. `places`: None
    if --control has moved its socket. `target`: the options that name the Open vSwitch, after a space."""
    if places is None:
        return f" --control {quote(str(socket))}"
    return f" --bridge {quote(socket.stem)}{target}" if len(places.sockets()) > 1 else target


def agent_paths(endpoint: Endpoint, *, env: Mapping[str, str], is_root: bool) -> AgentPaths:
    """Return the files of the agents of an Open vSwitch.

    For root they are below /run and /var/lib (file-hierarchy(7)), else in the XDG base directories. For another Open
    vSwitch than the host's, as in a lab, they are in its run directory, or if that is unknown, in a separate one.

    Raises ListenError if there is no directory for sockets.
    """
    is_system = _resolved(endpoint.db) == _resolved(find_endpoint(db=None, env={}).db)
    if not is_system and endpoint.rundir is not None:
        return AgentPaths(endpoint.rundir / "xenoovs", endpoint.rundir / "xenoovs")
    if is_root:
        run, state = _SYSTEM_RUN, _SYSTEM_STATE
    elif runtime := env.get("XDG_RUNTIME_DIR"):
        home = env.get("XDG_STATE_HOME") or f"{env.get('HOME', '')}/.local/state"
        run, state = Path(runtime) / "xenoovs", Path(home) / "xenoovs"
    else:
        raise ListenError("there is no directory for sockets: set XDG_RUNTIME_DIR, run as root, or use --control PATH")
    # Directories that systemd made for the unit (RuntimeDirectory=, StateDirectory= of systemd.exec(5)).
    run, state = Path(env.get("RUNTIME_DIRECTORY") or run), Path(env.get("STATE_DIRECTORY") or state)
    if is_system:
        return AgentPaths(run, state)
    own = run / f"ovs-{sha256(endpoint.db.encode()).hexdigest()[:_DIGITS]}"
    return AgentPaths(own, own)


def _resolved(db: str) -> str:
    """Return the same name for the same socket: /var/run links to /run, and agents of one bridge must share a lock."""
    kind, _, path = db.partition(":")
    return f"{kind}:{Path(path).resolve()}" if kind == "unix" else db


# The unix socket, and the lock of a bridge, which only one agent can hold.


_BACKLOG = 64


class BridgeLocks:
    """The locks of one agent: that of its bridge, and for some time a second one if a config has another bridge. The
    kernel releases them however the process ends."""

    def __init__(self, places: AgentPaths, control: Path | None) -> None:
        """Hold no lock yet. `control`: the agent's socket; the files have its path, for commands."""
        self._places, self._control = places, control
        self._held: dict[str, ExitStack] = {}

    def hold(self, bridges: Collection[str]) -> None:
        """Take the locks of these bridges, then release all others. Raises ListenError, AgentRuns if another agent has
        one of them."""
        for bridge in bridges:
            if bridge not in self._held:
                self._held[bridge] = self._take(bridge)
        for bridge in self._held.keys() - set(bridges):
            self._held.pop(bridge).close()

    def close(self) -> None:
        self.hold(())

    def _take(self, bridge: str) -> ExitStack:
        path = self._places.lock(bridge)
        with ExitStack() as stack:
            stack.enter_context(_directory(path.parent))
            descriptor = _locked(path, bridge)
            stack.callback(os.close, descriptor)
            stack.callback(path.unlink, missing_ok=True)
            try:
                os.ftruncate(descriptor, 0)
                if self._control is not None:
                    os.write(descriptor, os.fsencode(self._control.absolute()))
            except OSError as error:
                raise ListenError(f"cannot write {path}: {error.strerror or error}") from None
            return stack.pop_all()


@contextmanager
def bound_socket(path: Path) -> Iterator[socket.socket]:
    """Listen at a socket of mode 0600 within a `with`. A stale socket of a killed process is replaced. Raises
    ListenError if the socket cannot be made, or if another process listens there."""
    with _directory(path.parent), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            bind_unix(sock, path)
            sock.listen(_BACKLOG)
            sock.settimeout(0)
        except OSError as error:
            raise ListenError(f"cannot listen at {path}: {error.strerror or error}") from None
        made = path.stat().st_ino
        try:
            yield sock
        finally:
            with suppress(OSError):
                # Not the socket of another process that has replaced this one.
                if path.stat().st_ino == made:
                    path.unlink()


def _locked(path: Path, bridge: str) -> int:
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise AgentRuns(bridge=bridge, holder=str(path)) from None
            # The holder may have ended and removed the file after it was opened here.
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            os.close(descriptor)
    except OSError as error:
        raise ListenError(f"cannot lock {path}: {error.strerror or error}") from None


def _named_in(lock: Path) -> Path | None:
    """Return the path of the socket in a lock file; None if it has none, or cannot be read."""
    try:
        name = os.fsdecode(lock.read_bytes()[: MAX_PATH_BYTES + 1])
    except OSError:
        return None
    return Path(name) if name and "\0" not in name else None


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Make a directory within a `with`, and remove it afterwards if it was made here. Raises ListenError."""
    was_there = path.exists()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ListenError(f"cannot make the directory {path}: {error.strerror or error}") from None
    try:
        yield
    finally:
        if not was_there:
            with suppress(OSError):
                path.rmdir()
