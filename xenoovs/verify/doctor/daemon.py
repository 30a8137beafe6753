"""Checks of ovs-vswitchd and of its settings. Keys and defaults: ovs-vswitchd.conf.db(5), table Open_vSwitch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.host import Daemon, Silent, Unknown
from xenoovs.errors.words import counted
from xenoovs.verify.doctor.case import Case
from xenoovs.verify.doctor.check import PURGE, PUT_BACK, Check, Fix, State, set_config, unset_config

DEFAULT_MAX_IDLE_MS = 10_000
DEFAULT_MAX_REVALIDATOR_MS = 500
DEFAULT_FLOW_LIMIT = 200_000
DEFAULT_STATS_DELAY_MS = 2_000
"""other_config:offloaded-stats-delay (3.2 and later; before that hardware counters were about as old)."""

RUNS = "Open vSwitch runs"
"""The row on which all others depend."""

_UNANSWERED = "ovs-vswitchd does not answer"
_NO_TC = "skip_hw"
_RESTART = Fix(needs_restart=True)


def check_running(case: Case) -> Iterator[Check]:
    why = "nothing is forwarded by flows without it"
    host = case.host
    silent = [one for one in (host.daemon, host.database) if isinstance(one, Silent)]
    start = Fix((("systemctl", "start", "openvswitch-switch"),))
    if silent:
        why = "what the kernel or the NIC has goes on, a userspace datapath stands still, and nothing new is forwarded"
        mend = tuple(dict.fromkeys(command for one in silent for command in one.mend))
        yield Check(RUNS, State.WRONG, "; ".join(one.reason for one in silent), why, fix=Fix(mend))
    elif isinstance(host.database, Unknown):
        yield Check(RUNS, State.WRONG, host.database.reason, why, fix=start)
    elif not isinstance(host.daemon, Unknown):
        yield Check(RUNS, State.OK, f"version {host.daemon.version or 'not told'}", why)
    elif host.is_here:
        yield Check(RUNS, State.WRONG, host.daemon.reason, why, fix=start)
    else:
        yield Check(RUNS, State.UNKNOWN, host.daemon.reason, why)


def check_settings(case: Case) -> Iterator[Check]:
    """Only where the database hangs: of what it holds nothing can be told."""
    if isinstance(case.host.database, Silent):
        why = "bridges, ports and settings are in it"
        yield Check("database", State.UNKNOWN, "not read, as ovsdb-server does not answer", why)


def check_leftovers(case: Case) -> Iterator[Check]:
    """What is changed for a moment is noted, so that whoever finds the note of a killed run can undo it."""
    if not case.host.is_here or case.database is None:
        return
    why = "what is raised or added for a moment costs ovs-vswitchd time, or an entry of the NIC"
    fix = Fix((PUT_BACK,), is_safe=True)
    for told in case.host.leftovers:
        yield Check("left behind", State.WRONG, told, why, fix=fix)
    if not case.host.leftovers:
        yield Check("left behind", State.OK, "nothing by earlier runs of xenoovs", why)


def check_restore_wait(case: Case) -> Iterator[Check]:
    """Only where it is set: a restart sets it for a second."""
    if case.database is None or case.database.config.get("flow-restore-wait") != "true":
        return
    yield Check(
        "flow-restore-wait",
        State.WRONG,
        "true, as a restart of Open vSwitch sets it until its flows are back",
        "an ovs-vswitchd that starts with it forwards nothing new until it is taken away",
        fix=Fix((unset_config("flow-restore-wait"),)),
    )


def check_fork(case: Case) -> Iterator[Check]:
    """Which Open vSwitch this is: version numbers of NVIDIA's fork are not those of upstream."""
    database = case.database
    if database is None:
        return
    why = "OVS-DOCA offloads other flows, with other settings, than Open vSwitch of the same number"
    if not database.has_doca:
        if isinstance(case.host.daemon, Silent):
            yield Check("flavour", State.UNKNOWN, "without DOCA; ovs-vswitchd does not tell which build it is", why)
            return
        version = case.daemon.version if case.daemon is not None else None
        fork = "NVIDIA's build of Open vSwitch" if "+nvidia" in (version or "") else "upstream Open vSwitch"
        yield Check("flavour", State.OK, f"{fork}, without DOCA", why)
        return
    asked = database.config.get("doca-init") == "true"
    if asked and not database.doca_initialized:
        yield Check("flavour", State.WRONG, "doca-init is set, but DOCA is not initialised", why, fix=_RESTART)
    elif database.doca_initialized:
        yield Check("flavour", State.OK, f"OVS-DOCA {database.doca_version or ''}".strip() + ", initialised", why)
    else:
        yield Check("flavour", State.OK, "OVS-DOCA, DOCA not in use (doca-init is not set)", why)


def check_hw_offload(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None:
        return
    value = database.config.get("hw-offload")
    state = State.OK if value == "true" else State.WRONG
    yield Check(
        "hw-offload",
        state,
        "not set, which means false" if value is None else value,
        "without it Open vSwitch never asks the NIC",
        fix=Fix((set_config("hw-offload", "true"), PURGE), is_safe=True),
    )


def check_offload_in_effect(case: Case) -> Iterator[Check]:
    """Whether the daemon that runs does what the database says: hw-offload is not read anew in every case."""
    database, daemon = case.database, case.daemon
    name, why = "hw-offload in effect", "a setting that came after the start of ovs-vswitchd may wait for a restart"
    if isinstance(case.host.daemon, Silent):
        yield Check(name, State.UNKNOWN, _UNANSWERED, why)
    if database is None or daemon is None:
        return
    state, asked = daemon.offload, database.config.get("hw-offload") == "true"
    if isinstance(state, Unknown):
        yield Check(name, State.UNKNOWN, state.reason, why)
    elif asked and state.is_on and _is_late(daemon):
        seen = "on, but since ovs-vswitchd had ports already: megaflows of before stay in software until idle"
        yield Check(name, State.UNKNOWN, seen, why, fix=Fix((PURGE,)))
    elif state.is_on == asked:
        yield Check(name, State.OK, f"{'on' if state.is_on else 'off, as set'}: {state.evidence}", why)
    elif asked:
        yield Check(name, State.WRONG, f"set, but the daemon runs without: {state.evidence}", why, fix=_RESTART)
    else:
        yield Check(name, State.WRONG, f"on until the next restart, then off: {state.evidence}", why)


def _is_late(daemon: Daemon) -> bool:
    return not isinstance(daemon.history, Unknown) and daemon.history.is_late


def check_tc_policy(case: Case) -> Iterator[Check]:
    """Read once, when offload begins (netdev_set_flow_api_enabled, lib/netdev-offload.c)."""
    database = case.database
    if database is None or not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    value = database.config.get("tc-policy", "none")
    state, seen, needs_restart = _tc_policy(value, case.daemon)
    yield Check(
        "tc-policy",
        state,
        seen,
        "skip_hw keeps every rule out of the NIC; none lets the driver decide; skip_sw makes its refusals visible",
        fix=Fix((unset_config("tc-policy"),) if value == _NO_TC else (), is_safe=True, needs_restart=needs_restart),
    )


def _tc_policy(value: str, daemon: Daemon | None) -> tuple[State, str, bool]:
    """State, what was seen, and whether a restart is needed for the setting to take effect."""
    history = Unknown("") if daemon is None else daemon.history
    used = None if isinstance(history, Unknown) else history.tc_policy
    is_off = daemon is not None and not isinstance(daemon.offload, Unknown) and not daemon.offload.is_on
    if used is not None and used != value:
        state = State.WRONG if _NO_TC in (used, value) else State.OK
        return state, f"{value}, but the daemon started with {used}", True
    if value == _NO_TC:
        return State.WRONG, value, not is_off
    if used is None and not is_off:
        return State.UNKNOWN, f"{value}; which one the daemon started with is not in its log", False
    return State.OK, value, False


def check_max_idle(case: Case) -> Iterator[Check]:
    """Hardware counters reach Open vSwitch late: a megaflow whose time is shorter goes although it is used."""
    database = case.database
    if database is None:
        return
    idle = _number(database.config, "max-idle", DEFAULT_MAX_IDLE_MS)
    delay = _number(database.config, "offloaded-stats-delay", DEFAULT_STATS_DELAY_MS)
    late = delay + _number(database.config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    yield Check(
        "max-idle",
        State.OK if idle > late else State.WRONG,
        f"{idle} ms; counters of the NIC are up to {late} ms old",
        "a megaflow idle for this long leaves the NIC, and the next packet is forwarded in software",
        fix=Fix((unset_config("max-idle"),), is_safe=True),
    )


def check_max_revalidator(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None:
        return
    value = _number(database.config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    idle = _number(database.config, "max-idle", DEFAULT_MAX_IDLE_MS)
    yield Check(
        "max-revalidator",
        State.OK if value < idle else State.WRONG,
        f"{value} ms",
        "the counters of flows and the removal of idle megaflows follow at this pace",
        fix=Fix((unset_config("max-revalidator"),), is_safe=True),
    )


def check_flow_limit(case: Case) -> Iterator[Check]:
    """What is allowed at a moment begins at 10,000, grows with the flows and falls while revalidators are slow."""
    database, daemon = case.database, case.daemon
    if database is None or case.wanted is None:
        return
    limit, entries = _number(database.config, "flow-limit", DEFAULT_FLOW_LIMIT), case.wanted.entries
    now = daemon.flow_limit if daemon is not None else Unknown("")
    today = "" if isinstance(now, Unknown) else f" ({now} at this moment)"
    yield Check(
        "flow-limit",
        State.OK if entries < limit else State.WRONG,
        f"{counted(limit, 'megaflow')}{today}, {entries} needed by the config",
        "above it Open vSwitch installs no further megaflow and forwards in software",
        fix=Fix((set_config("flow-limit", str(max(DEFAULT_FLOW_LIMIT, 4 * entries))),)),
    )


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    """A number; what Open vSwitch cannot read counts as not set (smap_get_int, lib/smap.c)."""
    text = config.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else default
