"""Checks of ovs-vswitchd, of its settings, and of the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.host import BridgeState, Daemon, Unknown, Unresponsive
from xenoovs.errors import counted, worded
from xenoovs.verify.doctor.check import (
    PURGE,
    UNDO_LEFTOVERS,
    CheckResult,
    CheckState,
    DoctorCase,
    Fix,
    ForeignCost,
    ForeignFlows,
    set_config,
    unset_config,
    vsctl,
)

# Keys and defaults of settings: ovs-vswitchd.conf.db(5), table Open_vSwitch.


DEFAULT_MAX_IDLE_MS = 10_000
DEFAULT_MAX_REVALIDATOR_MS = 500
DEFAULT_FLOW_LIMIT = 200_000
DEFAULT_STATS_DELAY_MS = 2_000
"""other_config:offloaded-stats-delay (since 3.2; before, hardware counters had about the same delay)."""

RUNS = "Open vSwitch runs"
"""Name of the row on which all others depend."""

_UNANSWERED = "ovs-vswitchd does not answer"
_NO_TC = "skip_hw"
_RESTART = Fix(needs_restart=True)


def check_running(case: DoctorCase) -> Iterator[CheckResult]:
    why = "without it no flow forwards packets"
    host = case.host
    silent = [one for one in (host.daemon, host.database) if isinstance(one, Unresponsive)]
    start = Fix((("systemctl", "start", "openvswitch-switch"),))
    if silent:
        why = (
            "megaflows of the kernel and the NIC go on, a userspace datapath stops, and no new connection is forwarded"
        )
        commands = tuple(dict.fromkeys(command for one in silent for command in one.fix))
        yield CheckResult(RUNS, CheckState.WRONG, "; ".join(one.reason for one in silent), why, fix=Fix(commands))
    elif isinstance(host.database, Unknown):
        yield CheckResult(RUNS, CheckState.WRONG, host.database.reason, why, fix=start)
    elif not isinstance(host.daemon, Unknown):
        yield CheckResult(RUNS, CheckState.OK, f"version {host.daemon.version or 'unknown'}", why)
    elif host.is_local:
        yield CheckResult(RUNS, CheckState.WRONG, host.daemon.reason, why, fix=start)
    else:
        yield CheckResult(RUNS, CheckState.UNKNOWN, host.daemon.reason, why)


def check_settings(case: DoctorCase) -> Iterator[CheckResult]:
    """Report that settings could not be read, if the database does not answer."""
    if isinstance(case.host.database, Unresponsive):
        why = "it has the bridges, ports and settings"
        yield CheckResult("database", CheckState.UNKNOWN, "not read, as ovsdb-server does not answer", why)


def check_leftovers(case: DoctorCase) -> Iterator[CheckResult]:
    """Check for temporary changes that killed runs left behind; each run records them before it makes them."""
    if not case.host.is_local or case.database is None:
        return
    why = "raised log levels cost CPU, and a trial rule takes an entry of the NIC"
    fix = Fix((UNDO_LEFTOVERS,), is_safe=True)
    for leftover in case.host.leftovers:
        yield CheckResult("leftovers", CheckState.WRONG, leftover, why, fix=fix)
    if not case.host.leftovers:
        yield CheckResult("leftovers", CheckState.OK, "none of earlier runs of xenoovs", why)


def check_restore_wait(case: DoctorCase) -> Iterator[CheckResult]:
    """Report flow-restore-wait if it is set: a planned restart sets it for a second."""
    if case.database is None or case.database.config.get("flow-restore-wait") != "true":
        return
    yield CheckResult(
        "flow-restore-wait",
        CheckState.WRONG,
        "true, as a planned restart sets it until the flows are restored",
        "an ovs-vswitchd that starts with it forwards no new connections until it is removed",
        fix=Fix((unset_config("flow-restore-wait"),)),
    )


def check_fork(case: DoctorCase) -> Iterator[CheckResult]:
    """Report the build of Open vSwitch: versions of NVIDIA's fork are not those of upstream."""
    database = case.database
    if database is None:
        return
    why = "OVS-DOCA offloads other flows, with other settings, than upstream of the same version"
    if not database.has_doca:
        if isinstance(case.host.daemon, Unresponsive):
            yield CheckResult(
                "build", CheckState.UNKNOWN, "without DOCA; ovs-vswitchd does not answer which build it is", why
            )
            return
        version = case.daemon.version if case.daemon is not None else None
        fork = "NVIDIA's build of Open vSwitch" if "+nvidia" in (version or "") else "upstream Open vSwitch"
        yield CheckResult("build", CheckState.OK, f"{fork}, without DOCA", why)
        return
    is_requested = database.config.get("doca-init") == "true"
    if is_requested and not database.doca_initialized:
        yield CheckResult("build", CheckState.WRONG, "doca-init is set, but DOCA is not initialised", why, fix=_RESTART)
    elif database.doca_initialized:
        yield CheckResult(
            "build", CheckState.OK, f"OVS-DOCA {database.doca_version or ''}".strip() + ", initialised", why
        )
    else:
        yield CheckResult("build", CheckState.OK, "OVS-DOCA, DOCA not in use (doca-init is not set)", why)


def check_hw_offload(case: DoctorCase) -> Iterator[CheckResult]:
    """Check hw-offload in the database."""
    database = case.database
    if database is None:
        return
    value = database.config.get("hw-offload")
    state = CheckState.OK if value == "true" else CheckState.WRONG
    yield CheckResult(
        "hw-offload",
        state,
        "not set, which means false" if value is None else value,
        "without it Open vSwitch offers no flow to the NIC",
        fix=Fix((set_config("hw-offload", "true"), PURGE), is_safe=True),
    )


def check_offload_in_effect(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the running daemon does what the database says: it does not always read hw-offload again."""
    database, daemon = case.database, case.daemon
    name, why = "hw-offload in effect", "a setting that changed after the start of ovs-vswitchd may need a restart"
    if isinstance(case.host.daemon, Unresponsive):
        yield CheckResult(name, CheckState.UNKNOWN, _UNANSWERED, why)
    if database is None or daemon is None:
        return
    state, is_set = daemon.offload, database.config.get("hw-offload") == "true"
    if isinstance(state, Unknown):
        yield CheckResult(name, CheckState.UNKNOWN, state.reason, why)
    elif is_set and state.is_on and _had_ports_before(daemon):
        seen = "on, but turned on while ports existed: older megaflows stay in software until they are idle"
        yield CheckResult(name, CheckState.UNKNOWN, seen, why, fix=Fix((PURGE,)))
    elif state.is_on == is_set:
        yield CheckResult(name, CheckState.OK, f"{'on' if state.is_on else 'off, as set'}: {state.evidence}", why)
    elif is_set:
        yield CheckResult(
            name, CheckState.WRONG, f"set, but the running daemon does not offload: {state.evidence}", why, fix=_RESTART
        )
    else:
        yield CheckResult(name, CheckState.WRONG, f"on until the next restart, then off: {state.evidence}", why)


def _had_ports_before(daemon: Daemon) -> bool:
    return not isinstance(daemon.history, Unknown) and daemon.history.had_ports_before


def check_tc_policy(case: DoctorCase) -> Iterator[CheckResult]:
    """Check tc-policy, which is read once, when offload begins (netdev_set_flow_api_enabled, lib/netdev-offload.c)."""
    database = case.database
    if database is None or not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    value = database.config.get("tc-policy", "none")
    state, seen, needs_restart = _tc_policy(value, case.daemon)
    yield CheckResult(
        "tc-policy",
        state,
        seen,
        "skip_hw keeps every rule out of the NIC; none lets the driver decide; skip_sw makes refusals visible",
        fix=Fix((unset_config("tc-policy"),) if value == _NO_TC else (), is_safe=True, needs_restart=needs_restart),
    )


def _tc_policy(value: str, daemon: Daemon | None) -> tuple[CheckState, str, bool]:
    """Return the state, what was found, and whether the setting needs a restart."""
    history = Unknown("") if daemon is None else daemon.history
    used = None if isinstance(history, Unknown) else history.tc_policy
    is_off = daemon is not None and not isinstance(daemon.offload, Unknown) and not daemon.offload.is_on
    if used is not None and used != value:
        state = CheckState.WRONG if _NO_TC in (used, value) else CheckState.OK
        return state, f"{value}, but the daemon started with {used}", True
    if value == _NO_TC:
        return CheckState.WRONG, value, not is_off
    if used is None and not is_off:
        return CheckState.UNKNOWN, f"{value}; the log does not show which one the daemon started with", False
    return CheckState.OK, value, False


def check_max_idle(case: DoctorCase) -> Iterator[CheckResult]:
    """Check max-idle: hardware counters are delayed, so with a shorter max-idle used megaflows expire."""
    database = case.database
    if database is None:
        return
    idle = _number(database.config, "max-idle", DEFAULT_MAX_IDLE_MS)
    delay = _number(database.config, "offloaded-stats-delay", DEFAULT_STATS_DELAY_MS)
    late = delay + _number(database.config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    yield CheckResult(
        "max-idle",
        CheckState.OK if idle > late else CheckState.WRONG,
        f"{idle} ms; counters of the NIC are up to {late} ms old",
        "a megaflow idle for this long leaves the NIC, and its next packet is forwarded in software",
        fix=Fix((unset_config("max-idle"),), is_safe=True),
    )


def check_max_revalidator(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that max-revalidator is shorter than max-idle."""
    database = case.database
    if database is None:
        return
    value = _number(database.config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    idle = _number(database.config, "max-idle", DEFAULT_MAX_IDLE_MS)
    yield CheckResult(
        "max-revalidator",
        CheckState.OK if value < idle else CheckState.WRONG,
        f"{value} ms",
        "counters of flows are updated, and idle megaflows removed, at this interval",
        fix=Fix((unset_config("max-revalidator"),), is_safe=True),
    )


def check_flow_limit(case: DoctorCase) -> Iterator[CheckResult]:
    """Check flow-limit. The limit starts at 10,000, grows with the flows and falls if revalidators are slow."""
    database, daemon = case.database, case.daemon
    if database is None or case.required is None:
        return
    limit, entries = _number(database.config, "flow-limit", DEFAULT_FLOW_LIMIT), case.required.entries
    now = daemon.flow_limit if daemon is not None else Unknown("")
    current = "" if isinstance(now, Unknown) else f" ({now} now)"
    yield CheckResult(
        "flow-limit",
        CheckState.OK if entries < limit else CheckState.WRONG,
        f"{counted(limit, 'megaflow')}{current}; the config needs {entries}",
        "above it Open vSwitch installs no megaflow and forwards in software",
        fix=Fix((set_config("flow-limit", str(max(DEFAULT_FLOW_LIMIT, 4 * entries))),)),
    )


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    """Return a number; an unreadable one counts as not set, as in Open vSwitch (smap_get_int, lib/smap.c)."""
    text = config.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else default


_SHOWN = 3


def check_bridge(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the bridge of the config exists."""
    database = case.database
    if database is None or case.required is None:
        return
    name, why = case.required.bridge, "flows are installed on a bridge"
    if database.bridge(name) is not None:
        yield CheckResult("bridge", CheckState.OK, "exists", why, subject=name)
        return
    present = ", ".join(bridge.name for bridge in database.bridges) or "none"
    fix = Fix((vsctl("add-br", name),))
    yield CheckResult(
        "bridge", CheckState.WRONG, f"does not exist; existing bridges: {present}", why, subject=name, fix=fix
    )


def check_datapath_type(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the datapath of each bridge can offload."""
    why = "the kernel's datapath offloads by TC, the userspace one by ports of DPDK or DOCA, others not at all"
    for bridge in case.bridges:
        state, seen = _datapath(bridge, frozenset(case.ports))
        yield CheckResult("datapath", state, seen, why, subject=bridge.name)


def _datapath(bridge: BridgeState, ports: frozenset[str]) -> tuple[CheckState, str]:
    kind = bridge.datapath_type
    if kind == "system":
        return CheckState.OK, "system: the kernel's, offload by TC"
    if kind not in ("netdev", "doca"):
        return CheckState.WRONG, f"{kind}: no offload to a NIC"
    fast = ("dpdk", "doca", "dpdkvhostuserclient")
    slow = sorted(i.name for i in bridge.ports if i.name in ports and i.type not in fast)
    if slow:
        names = ", ".join(slow)
        what = f"{names} is no DPDK or DOCA port" if len(slow) == 1 else f"{names} are no DPDK or DOCA ports"
        return CheckState.WRONG, f"{kind}: userspace, but {what}; software forwards all packets"
    return CheckState.OK, f"{kind}: userspace, ports of DPDK or DOCA"


def check_controllers(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that at most one controller may write flows."""
    why = "two controllers that write flows revert each other's changes, and those of xenoovs"
    for bridge in case.bridges:
        targets = ", ".join(controller.target for controller in bridge.controllers)
        writers = [c for c in bridge.controllers if c.is_connected and c.role not in ("slave", "secondary")]
        if len(writers) > 1:
            state, seen = CheckState.WRONG, f"{len(writers)} are connected and may write: {targets}"
        elif len(bridge.controllers) > 1:
            state, seen = (
                CheckState.UNKNOWN,
                f"{len(bridge.controllers)} are set, {len(writers)} may write now: {targets}",
            )
        elif bridge.controllers:
            state, seen = CheckState.OK, f"one: {targets}; it may change the flows of xenoovs"
        else:
            state, seen = CheckState.OK, "none"
        if bridge.controllers and case.is_stale:
            state, seen = CheckState.UNKNOWN, f"{seen}, as ovs-vswitchd last reported"
        yield CheckResult("controllers", state, seen, why, subject=bridge.name)


def check_fail_mode(case: DoctorCase) -> Iterator[CheckResult]:
    """Check fail_mode (ovs-vswitchd.conf.db(5)): with standalone a learning switch replaces silent controllers."""
    why = "it decides over packets while no controller answers, and after a restart before flows are installed"
    for bridge in case.bridges:
        if bridge.fail_mode == "secure":
            yield CheckResult(
                "fail-mode", CheckState.OK, "secure: without flows nothing is forwarded", why, subject=bridge.name
            )
        elif bridge.controllers:
            seen = "standalone, with a controller: if it is silent, a learning switch bypasses the flows of xenoovs"
            fix = Fix((vsctl("set-fail-mode", bridge.name, "secure"),))
            yield CheckResult("fail-mode", CheckState.WRONG, seen, why, subject=bridge.name, fix=fix)
        else:
            seen = "standalone, no controller: a learning switch after a restart, until flows are applied"
            yield CheckResult("fail-mode", CheckState.OK, seen, why, subject=bridge.name)


def check_foreign_flows(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the cost of foreign flows that our packets pass."""
    if case.required is None or not case.bridges:
        return
    name, why = (
        "foreign flows",
        "those that packets of services meet first un-wildcard bits of megaflows, or override blocks",
    )
    foreign = case.required.foreign
    if isinstance(foreign, Unknown):
        yield CheckResult(name, CheckState.UNKNOWN, foreign.reason, why, subject=case.required.bridge)
        return
    state, seen = _foreign(foreign)
    yield CheckResult(name, state, seen, why, subject=case.required.bridge, fix=_show(case.required.bridge, foreign))


def _foreign(foreign: ForeignFlows) -> tuple[CheckState, str]:
    if not foreign.passed:
        return CheckState.OK, f"packets of services meet none; {foreign.others} elsewhere"
    shown = "; ".join(foreign.passed[:_SHOWN]) + ("; ..." if len(foreign.passed) > _SHOWN else "")
    passed = f"packets of services meet {len(foreign.passed)}: {shown}"
    if foreign.varying:
        fields = ", ".join(foreign.varying)
        return CheckState.WRONG, f"{passed}; each value of {fields} that clients send takes hardware entries of its own"
    if isinstance(foreign.cost, Unknown):
        return CheckState.UNKNOWN, f"{passed}; their cost is unknown: {foreign.cost.reason}"
    return (CheckState.OK if _is_harmless(foreign.cost) else CheckState.WRONG), f"{passed}; {_cost(foreign.cost)}"


def _is_harmless(cost: ForeignCost) -> bool:
    return cost.entries_with_foreign <= cost.entries and not cost.overridden


def _cost(cost: ForeignCost) -> str:
    text = counted(cost.entries_with_foreign, "hardware entry", "hardware entries")
    text += f" instead of {cost.entries}" if cost.entries_with_foreign != cost.entries else ", no additional ones"
    if cost.overridden:
        are = worded(cost.overridden, "is", "are")
        text += f"; {cost.overridden} of {counted(cost.packets, 'packet')} {are} sent elsewhere"
    return text


def _show(bridge: str, foreign: ForeignFlows) -> Fix | None:
    # Their owner decides about them: the command only shows them.
    return Fix((("ovs-ofctl", "--names", "dump-flows", bridge),)) if foreign.passed else None
