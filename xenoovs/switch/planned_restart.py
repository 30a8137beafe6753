"""A planned restart of Open vSwitch: save all flows, restart under flow-restore-wait, restore all flows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.database import BridgeState
from xenoovs.errors import FlowsNotRestored, ReadBackDiffers, SwitchError
from xenoovs.regex import regex
from xenoovs.switch.api import Switch, require_ports
from xenoovs.switch.endpoint import DEFAULT_RUNDIR, Endpoint
from xenoovs.switch.management import Ofctl
from xenoovs.switch.process import run, run_vsctl, try_run
from xenoovs.switch.watchdog import RollbackWatchdog, retry

RESTART_WARNING = """\
A restart removes all flows and restores them, foreign ones too; packets are
lost meanwhile, mostly for less than a second (`xenoovs doctor --help`).
Meters are not restored."""

# Open vSwitch as a service of the host, by systemctl(1).


_UNITS = ("openvswitch-switch", "openvswitch")
"""Services of Debian and Ubuntu, and of RPM systems."""

_RESTART_TIMEOUT_S = 120.0


def check_is_service(endpoint: Endpoint) -> None:
    """Raise SwitchError if systemd does not run this Open vSwitch: nothing was changed."""
    if endpoint.rundir is None or endpoint.rundir.resolve() != DEFAULT_RUNDIR.resolve():
        raise SwitchError(
            f"the Open vSwitch at {endpoint.rundir or endpoint.db} is no service of this host and was not restarted; "
            "restart it yourself, then run `xenoovs apply`"
        )
    _unit()


def restart_service() -> None:
    """Restart the service, and return when systemd has started it again. Raises SwitchError."""
    run(["systemctl", "restart", _unit()], timeout_s=_RESTART_TIMEOUT_S)


def _unit() -> str:
    for unit in _UNITS:
        if try_run(["systemctl", "cat", f"{unit}.service"]).exit_code == 0:
            return unit
    raise SwitchError(
        f"systemd knows neither {' nor '.join(_UNITS)}, so Open vSwitch was not restarted; restart it "
        "yourself, then run `xenoovs apply`"
    )


# `other_config:flow-restore-wait` (ovs-vswitchd.conf.db(5)): a new ovs-vswitchd leaves the datapath's flows alone and
# takes no packets from it until the flows are back. The setting must not stay, or Open vSwitch would wait for ever.


_WAIT = ("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
_FORGET = ("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
_VSCTL_TIMEOUT_S = 10


@contextmanager
def waiting_for_flows(db: str) -> Iterator[None]:
    """Open vSwitch waits for its flows when it starts, until the context ends for any reason.

    After a normal end ovs-vswitchd has read that it need not wait any more. Call it in a process without other threads.
    Raises SwitchError, also if the database does not answer for a minute, so that the setting stays.
    """
    # From here on the watchdog removes it, also when this process is killed.
    watchdog = RollbackWatchdog(lambda: run_vsctl(db, "--no-wait", *_FORGET, timeout_s=_VSCTL_TIMEOUT_S))
    try:
        run_vsctl(db, "--no-wait", *_WAIT, timeout_s=_VSCTL_TIMEOUT_S)
        yield
        with suppress(SwitchError):
            # Without --no-wait: returns when ovs-vswitchd has seen it (ovs-vsctl(8)).
            run_vsctl(db, *_FORGET, timeout_s=_VSCTL_TIMEOUT_S)
    finally:
        watchdog.undo()


# All flows and groups of a bridge, also foreign ones, as text that Open vSwitch reads as it was printed.


_TABLE_NAMED = regex(r"\btable=[^0-9]|resubmit\(,[^0-9]")


@dataclass(frozen=True, slots=True)
class SavedTables:
    """The lines of `ovs-ofctl dump-flows --no-stats` and `dump-groups` for one bridge. `ports`: its working ports at a
    planned restart; the flows are restored when these work."""

    flows: tuple[str, ...]
    groups: tuple[str, ...]
    ports: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        """Return a file for `ovs-ofctl bundle`: groups first, as flows refer to them."""
        groups = (f"group add {group}\n" for group in self.groups)
        return "".join((*groups, *(f"flow add {flow}\n" for flow in self.flows)))


def dump_tables(endpoint: Endpoint, bridge: str) -> SavedTables:
    """Read all flows and groups. Raises SwitchError.

    Ports have names, so that flows are right when ports get other numbers. If tables have names, everything has
    numbers, because names of tables end with the process.
    """
    ofctl = Ofctl(endpoint)
    flows = _lines(ofctl.run("dump-flows", bridge, options=("--names", "--no-stats")))
    if any(_TABLE_NAMED.search(line) for line in flows):
        flows = _lines(ofctl.run("dump-flows", bridge, options=("--no-names", "--no-stats")))
    return SavedTables(flows, _lines(ofctl.run("dump-groups", bridge)))


def restore_tables(endpoint: Endpoint, bridge: str, tables: SavedTables) -> None:
    """Restore everything in one atomic bundle and read it back. Other flows stay. Raises SwitchError; ReadBackDiffers
    with the number of missing lines."""
    there = dump_tables(endpoint, bridge)
    # A second `group add` of one number is refused.
    missing = SavedTables(tables.flows, tuple(group for group in tables.groups if group not in there.groups))
    if missing.flows or missing.groups:
        Ofctl(endpoint).run("bundle", bridge, "-", options=("--bundle",), stdin=missing.bundle)
    now = dump_tables(endpoint, bridge)
    lost = len({*tables.flows} - {*now.flows}) + len({*tables.groups} - {*now.groups})
    if lost:
        raise ReadBackDiffers(bridge=bridge, flows=lost)


def _lines(text: str) -> tuple[str, ...]:
    # Headers such as `OFPST_GROUP_DESC reply (OF1.4) (xid=0x2):` start at the margin, what was asked for does not.
    return tuple(line.strip() for line in text.splitlines() if line.startswith(" "))


DEFAULT_TIMEOUT_S = 60.0
"""Time limit for the return of all flows after the restart."""
_STEP_S = 0.05
_SLOWER = 10
"""The limit is at least this many times the duration of the restart."""


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """The result of a restart. `gap_s`: from the order to restart until all flows were back. `flows`, `groups`: number
    restored, by bridge. `of_ovn`: bridges of OVN, which were left to ovn-controller."""

    gap_s: float
    flows: Mapping[str, int]
    groups: Mapping[str, int]
    of_ovn: tuple[str, ...] = ()


def planned_restart(
    switch: Switch,
    endpoint: Endpoint,
    restart: Callable[[], None],
    *,
    directory: Path,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> PlannedRestart:
    """Restart by `restart`, and restore all flows and groups of all bridges. Meters are lost.

    Bridges of OVN are left to ovn-controller, which installs its flows again when it has reconnected.

    `directory` has a file for each bridge until its flows are back. If `restart` fails or is interrupted, the flows are
    restored too, and Open vSwitch stops waiting. Raises SwitchError, FlowsNotRestored.
    """
    states = switch.bridges()
    of_ovn = tuple(state.name for state in states if state.ovn is not None and state.ovn.is_owner)
    saved = _save(endpoint, directory, (state for state in states if state.name not in of_ovn))
    began = time.monotonic()
    with waiting_for_flows(endpoint.db):
        try:
            restart()
        finally:
            now = time.monotonic()
            _put_back(switch, endpoint, directory, saved, deadline=now + max(timeout_s, _SLOWER * (now - began)))
    return PlannedRestart(
        time.monotonic() - began,
        {bridge: len(each.flows) for bridge, each in saved.items()},
        {bridge: len(each.groups) for bridge, each in saved.items()},
        of_ovn,
    )


def _file(directory: Path, bridge: str) -> Path:
    return directory / f"xenoovs-restart-{bridge}.bundle"


def _save(endpoint: Endpoint, directory: Path, states: Iterable[BridgeState]) -> dict[str, SavedTables]:
    saved: dict[str, SavedTables] = {}
    for state in states:
        ports = tuple(port for port in state.ofports if port != state.name)
        saved[state.name] = replace(dump_tables(endpoint, state.name), ports=ports)
    for bridge, tables in saved.items():
        descriptor = os.open(_file(directory, bridge), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(tables.bundle)
    return saved


def _put_back(
    switch: Switch, endpoint: Endpoint, directory: Path, saved: Mapping[str, SavedTables], *, deadline: float
) -> None:
    failed: dict[str, str] = {}
    for bridge, tables in saved.items():
        try:
            # The bridge, its socket and its ports come back one after the other.
            retry(partial(_restore, switch, endpoint, bridge, tables), deadline=deadline, pause_s=_STEP_S)
            _file(directory, bridge).unlink(missing_ok=True)
        except SwitchError as error:
            failed[bridge] = str(error)
    if failed:
        raise FlowsNotRestored(reasons=failed, files={name: str(_file(directory, name)) for name in failed})


def _restore(switch: Switch, endpoint: Endpoint, bridge: str, saved: SavedTables) -> None:
    require_ports(switch, bridge, saved.ports)
    restore_tables(endpoint, bridge, saved)
