"""Checks of ovs-vswitchd, of its settings, and of the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.host import Daemon, OvsBridge, Unknown, Unresponsive
from xenoovs.errors import counted, worded
from xenoovs.verify.doctor.check import (
    PURGE,
    PUT_BACK,
    Case,
    Check,
    Cost,
    Fix,
    ForeignFlows,
    State,
    set_config,
    unset_config,
    vsctl,
)

# Checks of ovs-vswitchd and of its settings. Keys and defaults: ovs-vswitchd.conf.db(5), table Open_vSwitch.


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
    silent = [one for one in (host.daemon, host.database) if isinstance(one, Unresponsive)]
    start = Fix((("systemctl", "start", "openvswitch-switch"),))
    if silent:
        why = "what the kernel or the NIC has goes on, a userspace datapath stands still, and nothing new is forwarded"
        mend = tuple(dict.fromkeys(command for one in silent for command in one.fix))
        yield Check(RUNS, State.WRONG, "; ".join(one.reason for one in silent), why, fix=Fix(mend))
    elif isinstance(host.database, Unknown):
        yield Check(RUNS, State.WRONG, host.database.reason, why, fix=start)
    elif not isinstance(host.daemon, Unknown):
        yield Check(RUNS, State.OK, f"version {host.daemon.version or 'not told'}", why)
    elif host.is_local:
        yield Check(RUNS, State.WRONG, host.daemon.reason, why, fix=start)
    else:
        yield Check(RUNS, State.UNKNOWN, host.daemon.reason, why)


def check_settings(case: Case) -> Iterator[Check]:
    """Only where the database hangs: of what it holds nothing can be told."""
    if isinstance(case.host.database, Unresponsive):
        why = "bridges, ports and settings are in it"
        yield Check("database", State.UNKNOWN, "not read, as ovsdb-server does not answer", why)


def check_leftovers(case: Case) -> Iterator[Check]:
    """What is changed for a moment is noted, so that whoever finds the note of a killed run can undo it."""
    if not case.host.is_local or case.database is None:
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
        if isinstance(case.host.daemon, Unresponsive):
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
    if isinstance(case.host.daemon, Unresponsive):
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
    return not isinstance(daemon.history, Unknown) and daemon.history.had_ports_before


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


# Checks of the bridge: datapath, who else commands it, and whose flows our packets pass.


_SHOWN = 3


def check_bridge(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or case.wanted is None:
        return
    name, why = case.wanted.bridge, "flows live on a bridge"
    if database.bridge(name) is not None:
        yield Check("bridge", State.OK, "exists", why, subject=name)
        return
    present = ", ".join(bridge.name for bridge in database.bridges) or "none"
    fix = Fix((vsctl("add-br", name),))
    yield Check("bridge", State.WRONG, f"does not exist; bridges here: {present}", why, subject=name, fix=fix)


def check_datapath_type(case: Case) -> Iterator[Check]:
    why = "the kernel's datapath offloads by TC, the userspace one by DPDK or DOCA ports, others not at all"
    for bridge in case.bridges:
        state, seen = _datapath(bridge, frozenset(case.ports))
        yield Check("datapath", state, seen, why, subject=bridge.name)


def _datapath(bridge: OvsBridge, ports: frozenset[str]) -> tuple[State, str]:
    kind = bridge.datapath_type
    if kind == "system":
        return State.OK, "system: the kernel's, offload by TC"
    if kind not in ("netdev", "doca"):
        return State.WRONG, f"{kind}: no NIC takes part"
    fast = ("dpdk", "doca", "dpdkvhostuserclient")
    slow = sorted(i.name for i in bridge.interfaces if i.name in ports and i.type not in fast)
    if slow:
        names = ", ".join(slow)
        what = f"{names} is no DPDK or DOCA port" if len(slow) == 1 else f"{names} are no DPDK or DOCA ports"
        return State.WRONG, f"{kind}: userspace, but {what}; all of it is software"
    return State.OK, f"{kind}: userspace, ports of DPDK or DOCA"


def check_controllers(case: Case) -> Iterator[Check]:
    why = "two that both write flows undo each other's work, and ours"
    for bridge in case.bridges:
        targets = ", ".join(controller.target for controller in bridge.controllers)
        writers = [c for c in bridge.controllers if c.is_connected and c.role not in ("slave", "secondary")]
        if len(writers) > 1:
            state, seen = State.WRONG, f"{len(writers)} are connected and may write: {targets}"
        elif len(bridge.controllers) > 1:
            state, seen = State.UNKNOWN, f"{len(bridge.controllers)} are set, {len(writers)} may write now: {targets}"
        elif bridge.controllers:
            state, seen = State.OK, f"one: {targets}; it may change our flows"
        else:
            state, seen = State.OK, "none"
        if bridge.controllers and case.is_stale:
            state, seen = State.UNKNOWN, f"{seen}, as ovs-vswitchd last wrote"
        yield Check("controllers", state, seen, why, subject=bridge.name)


def check_fail_mode(case: Case) -> Iterator[Check]:
    """fail_mode of ovs-vswitchd.conf.db(5): standalone takes the bridge over when its controllers are silent."""
    why = "decides what happens to packets while no controller answers or, after a restart, no flow is there yet"
    for bridge in case.bridges:
        if bridge.fail_mode == "secure":
            yield Check("fail-mode", State.OK, "secure: without flows nothing is forwarded", why, subject=bridge.name)
        elif bridge.controllers:
            seen = "standalone, with a controller: when it is silent, our flows are bypassed by a learning switch"
            fix = Fix((vsctl("set-fail-mode", bridge.name, "secure"),))
            yield Check("fail-mode", State.WRONG, seen, why, subject=bridge.name, fix=fix)
        else:
            seen = "standalone, no controller: a learning switch after a restart, until flows are applied"
            yield Check("fail-mode", State.OK, seen, why, subject=bridge.name)


def check_foreign_flows(case: Case) -> Iterator[Check]:
    if case.wanted is None or not case.bridges:
        return
    name, why = "flows of others", "flows that our packets pass first add their masks to our megaflows, or take packets"
    foreign = case.wanted.foreign
    if isinstance(foreign, Unknown):
        yield Check(name, State.UNKNOWN, foreign.reason, why, subject=case.wanted.bridge)
        return
    state, seen = _foreign(foreign)
    yield Check(name, state, seen, why, subject=case.wanted.bridge, fix=_look(case.wanted.bridge, foreign))


def _foreign(foreign: ForeignFlows) -> tuple[State, str]:
    if not foreign.passed:
        return State.OK, f"none on the way of our packets, {foreign.others} elsewhere"
    shown = "; ".join(foreign.passed[:_SHOWN]) + ("; ..." if len(foreign.passed) > _SHOWN else "")
    told = f"{len(foreign.passed)} on the way of our packets: {shown}"
    if foreign.varying:
        fields = ", ".join(foreign.varying)
        return State.WRONG, f"{told}; each value of {fields} that clients send takes hardware entries of its own"
    if isinstance(foreign.cost, Unknown):
        return State.UNKNOWN, f"{told}; their cost is not known: {foreign.cost.reason}"
    return (State.OK if _is_harmless(foreign.cost) else State.WRONG), f"{told}; {_cost(foreign.cost)}"


def _is_harmless(cost: Cost) -> bool:
    return cost.beside <= cost.alone and not cost.taken


def _cost(cost: Cost) -> str:
    entries = f"{counted(cost.beside, 'hardware entry', 'hardware entries')} instead of {cost.alone}"
    alone = counted(cost.alone, "hardware entry", "hardware entries")
    go = worded(cost.taken, "goes", "go")
    taken = f", {cost.taken} of {counted(cost.packets, 'packet')} {go} elsewhere" if cost.taken else ""
    return (entries if cost.beside != cost.alone else f"{alone}, none more") + taken


def _look(bridge: str, foreign: ForeignFlows) -> Fix | None:
    # Whether they may go is their owner's to say: the command only shows them.
    return Fix((("ovs-ofctl", "--names", "dump-flows", bridge),)) if foreign.passed else None
