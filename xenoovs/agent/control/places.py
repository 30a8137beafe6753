"""Where an agent has its socket, its lock and its run-time state: one set for each bridge of each Open vSwitch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from xenoovs.errors import ListenError
from xenoovs.switch.endpoint import Endpoint, find_endpoint

_SYSTEM_RUN, _SYSTEM_STATE = Path("/run/xenoovs"), Path("/var/lib/xenoovs")
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Places:
    """Files of the agents of one Open vSwitch.

    run:   directory of sockets and locks, gone after a reboot. state: directory of what outlives one.
    """

    run: Path
    state: Path

    def socket(self, bridge: str) -> Path:
        return self.run / f"{bridge}.sock"

    def lock(self, bridge: str) -> Path:
        return self.run / f"{bridge}.lock"

    def waiting(self, bridge: str) -> Path:
        """The socket of an `apply --confirm` that waits."""
        return self.run / f"{bridge}.apply"

    def runtime(self, bridge: str) -> Path:
        return self.state / f"{bridge}.json"

    def sockets(self) -> tuple[Path, ...]:
        """Of all agents, also of those that were killed."""
        return tuple(sorted(self.run.glob("*.sock")))


def places_of(endpoint: Endpoint, *, env: Mapping[str, str], is_root: bool) -> Places:
    """For root below /run and /var/lib (file-hierarchy(7)), else where the XDG base directories say.

    An Open vSwitch that is not the one of the host, as in a lab, has all of it in its own run directory; one whose run
    directory is not known has a directory of its own below ours. Raises ListenError where there is none.
    """
    is_system = _resolved(endpoint.db) == _resolved(find_endpoint(db=None, env={}).db)
    if not is_system and endpoint.rundir is not None:
        return Places(endpoint.rundir / "xenoovs", endpoint.rundir / "xenoovs")
    if is_root:
        run, state = _SYSTEM_RUN, _SYSTEM_STATE
    elif runtime := env.get("XDG_RUNTIME_DIR"):
        home = env.get("XDG_STATE_HOME") or f"{env.get('HOME', '')}/.local/state"
        run, state = Path(runtime) / "xenoovs", Path(home) / "xenoovs"
    else:
        raise ListenError("there is no directory for sockets: set XDG_RUNTIME_DIR, run as root, or use --control PATH")
    # What systemd made for the unit (RuntimeDirectory=, StateDirectory= of systemd.exec(5)).
    run, state = Path(env.get("RUNTIME_DIRECTORY") or run), Path(env.get("STATE_DIRECTORY") or state)
    if is_system:
        return Places(run, state)
    own = run / f"ovs-{sha256(endpoint.db.encode()).hexdigest()[:_DIGITS]}"
    return Places(own, own)


def _resolved(db: str) -> str:
    """One name for one socket: /var/run is a link to /run, and two agents of one bridge must find one lock."""
    kind, _, path = db.partition(":")
    return f"{kind}:{Path(path).resolve()}" if kind == "unix" else db
