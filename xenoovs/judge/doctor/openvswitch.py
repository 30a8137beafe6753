"""Checks of ovs-vswitchd, of its settings, and of the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xenoovs.datapath.database import BridgeState, Mirror
from xenoovs.datapath.fact import Unknown, Unresponsive
from xenoovs.datapath.ovn import OvnChassis
from xenoovs.errors import counted, first_names, worded
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import (
    PURGE,
    UNDO_LEFTOVERS,
    CheckResult,
    CheckState,
    DoctorCase,
    Fix,
    HostCheck,
    set_config,
    unset_config,
    vsctl,
)

if TYPE_CHECKING:
    from xenoovs.judge.doctor.foreign_flows import ForeignCost, ForeignFlows

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
    check = HostCheck(RUNS, "without it no flow forwards packets")
    host = case.host
    silent = [one for one in (host.daemon, host.database) if isinstance(one, Unresponsive)]
    start = Fix((("systemctl", "start", "openvswitch-switch"),))
    if silent:
        check = HostCheck(
            RUNS,
            "the kernel and the NIC forward by existing megaflows, a userspace datapath stops, new connections fail",
        )
        commands = tuple(dict.fromkeys(command for one in silent for command in one.fix))
        yield check.wrong("; ".join(one.reason for one in silent), fix=Fix(commands))
    elif isinstance(host.database, Unknown):
        yield check.wrong(host.database.reason, fix=start)
    elif not isinstance(host.daemon, Unknown):
        yield check.ok(f"version {host.daemon.version or 'unknown'}")
    elif host.is_local:
        yield check.wrong(host.daemon.reason, fix=start)
    else:
        yield check.unknown(host.daemon.reason)


def check_settings(case: DoctorCase) -> Iterator[CheckResult]:
    """Report that settings could not be read, if the database does not answer."""
    if isinstance(case.host.database, Unresponsive):
        check = HostCheck("database", "it has the bridges, ports and settings")
        yield check.unknown("not read, as ovsdb-server does not answer")


def check_leftovers(case: DoctorCase) -> Iterator[CheckResult]:
    """Check for temporary changes that killed runs left behind; each run records them before it makes them."""
    check = HostCheck("leftovers", "they cost CPU or a hardware entry, or are a half-finished change")
    if not (case.host.is_local and case.has_database):
        return
    fix = Fix((UNDO_LEFTOVERS,), is_safe=True)
    for leftover in case.host.leftovers:
        yield check.wrong(leftover, fix=fix)
    if not case.host.leftovers:
        yield check.ok("none of earlier runs of xenoovs")


def check_restore_wait(case: DoctorCase) -> Iterator[CheckResult]:
    """Report flow-restore-wait if it is set: a planned restart sets it for a second."""
    check = HostCheck(
        "flow-restore-wait", "an ovs-vswitchd that starts with it forwards no new connections until it is removed"
    )
    if case.database.config.get("flow-restore-wait") == "true":
        seen = "true, as a planned restart sets it until the flows are restored"
        yield check.wrong(seen, fix=Fix((unset_config("flow-restore-wait"),)))


def check_vlan_limit(case: DoctorCase) -> Iterator[CheckResult]:
    """Report vlan-limit if Open vSwitch reads more than one tag: flows match and write the outer one alone."""
    check = HostCheck("vlan-limit", "above 1, or 0, services get frames with two tags, whose inner tag stays")
    limit = case.database.config.get("vlan-limit", "1")
    if limit != "1":
        yield check.wrong(f"{limit}: two tags are not supported", fix=Fix((unset_config("vlan-limit"),)))


def check_fork(case: DoctorCase) -> Iterator[CheckResult]:
    """Report the build of Open vSwitch: versions of NVIDIA's fork are not those of upstream."""
    check = HostCheck("build", "OVS-DOCA offloads other flows, with other settings, than upstream of the same version")
    if not case.has_database:
        return
    database = case.database
    if not database.has_doca:
        if isinstance(case.host.daemon, Unresponsive):
            yield check.unknown("without DOCA; ovs-vswitchd does not answer which build it is")
            return
        version = case.daemon.version if case.daemon is not None else None
        fork = "NVIDIA's build of Open vSwitch" if "+nvidia" in (version or "") else "upstream Open vSwitch"
        yield check.ok(f"{fork}, without DOCA")
        return
    is_requested = database.config.get("doca-init") == "true"
    if is_requested and not database.doca_initialized:
        yield check.wrong("doca-init is set, but DOCA is not initialised", fix=_RESTART)
    elif database.doca_initialized:
        yield check.ok(f"OVS-DOCA {database.doca_version or ''}".strip() + ", initialised")
    else:
        yield check.ok("OVS-DOCA, DOCA not in use (doca-init is not set)")


def check_hw_offload(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("hw-offload", "without it Open vSwitch offers no flow to the NIC")
    value = case.database.config.get("hw-offload")
    if case.has_database:
        fix = Fix((set_config("hw-offload", "true"), PURGE), is_safe=True)
        yield check.judge(value == "true", "not set, which means false" if value is None else value, fix=fix)


def check_offload_in_effect(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the running daemon uses the settings of the database: it does not always read hw-offload again."""
    check = HostCheck(
        "hw-offload in effect", "a setting that changed after the start of ovs-vswitchd may need a restart"
    )
    daemon = case.daemon
    if isinstance(case.host.daemon, Unresponsive):
        yield check.unknown(_UNANSWERED)
    if daemon is None or not case.has_database:
        return
    state, is_set = daemon.offload, case.database.config.get("hw-offload") == "true"
    if isinstance(state, Unknown):
        yield check.unknown(state.reason)
    elif is_set and state.is_on and not isinstance(daemon.history, Unknown) and daemon.history.had_ports_before:
        seen = "on, but turned on while ports existed: older megaflows stay in software until they are idle"
        yield check.unknown(seen, fix=Fix((PURGE,)))
    elif state.is_on == is_set:
        yield check.ok(f"{'on' if state.is_on else 'off, as set'}: {state.evidence}")
    elif is_set:
        yield check.wrong(f"set, but the running daemon does not offload: {state.evidence}", fix=_RESTART)
    else:
        yield check.wrong(f"on until the next restart, then off: {state.evidence}")


_OFFLOAD_PROVIDERS = ("tc", "dpdk", "doca", "dummy", "dummy_x")
"""base_dpif_offload_classes of lib/dpif-offload.c, and that of NVIDIA's fork."""


def check_offload_priority(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the order of offload providers (dpif_offload_set_global_cfg() of lib/dpif-offload.c, since 3.7)."""
    check = HostCheck("hw-offload-priority", "a port gets the first provider that takes it, in this order")
    value = case.database.config.get("hw-offload-priority")
    if value is None:
        return
    fix = Fix((unset_config("hw-offload-priority"),), needs_restart=True)
    if unknown := [name for name in value.split(",") if name not in _OFFLOAD_PROVIDERS]:
        yield check.wrong(f"{value}: Open vSwitch ignores {', '.join(unknown)}, which is no provider", fix=fix)
    elif case.daemon is not None and not case.has_priorities:
        yield check.wrong(f"{value}, which Open vSwitch {case.daemon.version} ignores: it is new in 3.7", fix=fix)
    else:
        yield check.ok(value)


def check_tc_policy(case: DoctorCase) -> Iterator[CheckResult]:
    """Check tc-policy, which is read once, when offload begins (netdev_set_flow_api_enabled, lib/netdev-offload.c)."""
    check = HostCheck(
        "tc-policy",
        "skip_hw keeps every rule out of the NIC; none lets the driver decide; skip_sw makes refusals visible",
    )
    if not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    value = case.database.config.get("tc-policy", "none")
    state, seen, needs_restart = _tc_policy(value, case.evidence)
    commands = (unset_config("tc-policy"),) if value == _NO_TC else ()
    fix = Fix(commands, is_safe=True, needs_restart=needs_restart) if commands or needs_restart else None
    yield check.row(state, seen, fix=fix)


def _tc_policy(value: str, evidence: Evidence) -> tuple[CheckState, str, bool]:
    """Return the state, what was found, and whether the setting needs a restart."""
    used = None if evidence.history is None else evidence.history.tc_policy
    is_off = evidence.offload is not None and not evidence.offload.is_on
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
    check = HostCheck(
        "max-idle", "a megaflow idle for this long leaves the NIC, and its next packet is forwarded in software"
    )
    config, fix = case.database.config, Fix((unset_config("max-idle"),), is_safe=True)
    idle = _number(config, "max-idle", DEFAULT_MAX_IDLE_MS)
    late = _number(config, "offloaded-stats-delay", DEFAULT_STATS_DELAY_MS)
    late += _number(config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    if case.has_database:
        yield check.judge(idle > late, f"{idle} ms; counters of the NIC are up to {late} ms old", fix=fix)


def check_max_revalidator(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that max-revalidator is shorter than max-idle."""
    check = HostCheck("max-revalidator", "counters of flows are updated, and idle megaflows removed, at this interval")
    value = _number(case.database.config, "max-revalidator", DEFAULT_MAX_REVALIDATOR_MS)
    idle = _number(case.database.config, "max-idle", DEFAULT_MAX_IDLE_MS)
    if case.has_database:
        yield check.judge(value < idle, f"{value} ms", fix=Fix((unset_config("max-revalidator"),), is_safe=True))


def check_flow_limit(case: DoctorCase) -> Iterator[CheckResult]:
    """Check flow-limit. The limit starts at 10,000, grows with the flows and falls if revalidators are slow."""
    check = HostCheck("flow-limit", "above it Open vSwitch installs no megaflow and forwards in software")
    if case.required is None or not case.has_database:
        return
    limit, entries = _number(case.database.config, "flow-limit", DEFAULT_FLOW_LIMIT), case.required.entries
    now = Unknown("") if case.daemon is None else case.daemon.flow_limit
    current = "" if isinstance(now, Unknown) else f" ({now} now)"
    yield check.judge(
        entries < limit,
        f"{counted(limit, 'megaflow')}{current}; the config needs {entries}",
        fix=Fix((set_config("flow-limit", str(max(DEFAULT_FLOW_LIMIT, 4 * entries))),)),
    )


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    """Return a number; an unreadable one counts as not set, as in Open vSwitch (smap_get_int, lib/smap.c)."""
    text = config.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else default


_SHOWN = 3


def check_bridge(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("bridge", "flows are installed on a bridge")
    if case.required is None or not case.has_database:
        return
    name, present = case.required.bridge, [bridge.name for bridge in case.database.bridges]
    if name in present:
        yield check.ok("exists", name)
    else:
        seen = f"does not exist; existing bridges: {', '.join(present) or 'none'}"
        yield check.wrong(seen, name, fix=Fix((vsctl("add-br", name),)))


def check_datapath_type(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the datapath of each bridge can offload."""
    check = HostCheck(
        "datapath",
        "the kernel's datapath offloads by TC, the userspace one by ports of DPDK or DOCA, others not at all",
    )
    for bridge in case.bridges:
        state, seen = _datapath(bridge, frozenset(case.ports))
        yield check.row(state, seen, bridge.name)


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
    check = HostCheck(
        "controllers", "two controllers that write flows revert each other's changes, and those of xenoovs"
    )
    for bridge in case.bridges:
        targets = ", ".join(controller.target for controller in bridge.controllers)
        writers = [c for c in bridge.controllers if c.is_connected and c.role not in ("slave", "secondary")]
        count = len(bridge.controllers)
        if len(writers) > 1:
            state, seen = CheckState.WRONG, f"{len(writers)} are connected and may write: {targets}"
        elif count > 1:
            state, seen = CheckState.UNKNOWN, f"{count} are set, {len(writers)} may write now: {targets}"
        elif bridge.controllers:
            state, seen = CheckState.OK, f"one: {targets}; it may change the flows of xenoovs"
        elif bridge.ovn is not None and bridge.ovn.is_owner:
            state, seen = CheckState.OK, f"none in the database; ovn-controller writes by {bridge.name}.mgmt"
        else:
            state, seen = CheckState.OK, "none"
        if bridge.controllers and case.is_stale:
            state, seen = CheckState.UNKNOWN, f"{seen}, as ovs-vswitchd last reported"
        yield check.row(state, seen, bridge.name)


_EXPORTERS = {
    "sflow": "sFlow: every megaflow samples packets, which no NIC does by TC, so all are in software",
    "ipfix": "IPFIX: every megaflow samples packets, which no NIC does by TC, so all are in software",
    "netflow": "NetFlow: every connection has a megaflow of its own, with its DSCP, instead of one for each block",
}
"""Column of table Bridge -> its effect on megaflows (compose_sflow_action() and compose_ipfix_action() of
ofproto/ofproto-dpif-xlate.c; netflow_mask_wc() of ofproto/netflow.c)."""


def check_exporters(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that no bridge exports flows. A bridge without sFlow, IPFIX and NetFlow has no row."""
    check = HostCheck(
        "flow export", "sFlow and IPFIX keep all megaflows of a bridge out of the NIC, NetFlow multiplies them"
    )
    for bridge in case.bridges:
        for column in bridge.exporters:
            # Another program needs the export: `--fix` does not run the command.
            fix = Fix((vsctl("clear", "Bridge", bridge.name, column), PURGE))
            yield check.wrong(_EXPORTERS[column], bridge.name, fix)


def check_mirrors(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that copies for mirrors can be made by the NIC. A bridge without mirrors has no row."""
    check = HostCheck(
        "mirrors", "a mirror adds an output to megaflows; where the NIC cannot make the copy, software forwards all"
    )
    for bridge in case.bridges:
        for mirror in bridge.mirrors:
            state, seen = _mirror(case, mirror)
            get = ("--", "--id=@m", "get", "Mirror", mirror.name)
            fix = Fix((vsctl(*get, "--", "remove", "Bridge", bridge.name, "mirrors", "@m"), PURGE))
            yield check.row(state, f"{mirror.name}: {seen}", bridge.name, fix)


def _mirror(case: DoctorCase, mirror: Mirror) -> tuple[CheckState, str]:
    if mirror.snaplen is not None:
        return CheckState.WRONG, f"copies are shortened to {mirror.snaplen} bytes, which traffic control cannot do"
    if mirror.output is None:
        seen = f"copies go to VLAN {mirror.output_vlan}; many drivers cannot add a tag only to copies"
        return CheckState.UNKNOWN, seen
    device = case.device(mirror.output)
    switches = {one.switch_id for one in case.known_devices if one.switch_id is not None}
    if isinstance(device, Unknown):
        return CheckState.UNKNOWN, f"copies leave by {mirror.output}: {device.reason}"
    if device.switch_id is None or device.switch_id not in switches:
        return CheckState.WRONG, f"copies leave by {mirror.output}, a second output, which is not on the eSwitch"
    return CheckState.OK, f"copies leave by {mirror.output}, which is on the eSwitch; each takes bandwidth of the NIC"


def check_fail_mode(case: DoctorCase) -> Iterator[CheckResult]:
    """Check fail_mode (ovs-vswitchd.conf.db(5)): with standalone a learning switch replaces silent controllers."""
    check = HostCheck(
        "fail-mode",
        "it decides about packets while no controller answers, and after a restart until flows are installed",
    )
    for bridge in case.bridges:
        if bridge.fail_mode == "secure":
            yield check.ok("secure: without flows nothing is forwarded", bridge.name)
        elif bridge.controllers:
            seen = "standalone, with a controller: if it is silent, a learning switch bypasses the flows of xenoovs"
            fix = Fix((vsctl("set-fail-mode", bridge.name, "secure"),))
            yield check.wrong(seen, bridge.name, fix=fix)
        else:
            seen = "standalone, no controller: a learning switch after a restart, until flows are applied"
            yield check.ok(seen, bridge.name)


def check_foreign_flows(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the cost of foreign flows that our packets pass."""
    check = HostCheck(
        "foreign flows", "flows that packets meet before ours un-wildcard bits of megaflows, or override blocks"
    )
    if case.required is None or not case.bridges:
        return
    foreign = case.required.foreign
    if isinstance(foreign, Unknown):
        yield check.unknown(foreign.reason, case.required.bridge)
        return
    state, seen = _foreign(foreign)
    # They belong to other programs: the command only shows them.
    fix = Fix((("ovs-ofctl", "--names", "dump-flows", case.required.bridge),)) if foreign.passed else None
    yield check.row(state, seen, case.required.bridge, fix)


def _foreign(foreign: ForeignFlows) -> tuple[CheckState, str]:
    if not foreign.passed:
        return CheckState.OK, f"packets of services meet none; {foreign.others} elsewhere"
    shown = "; ".join(foreign.passed[:_SHOWN]) + ("; ..." if len(foreign.passed) > _SHOWN else "")
    passed = f"packets of services meet {len(foreign.passed)}: {shown}"
    if foreign.varying:
        fields = ", ".join(foreign.varying)
        return CheckState.WRONG, f"{passed}; each value of {fields} that clients send takes hardware entries of its own"
    if foreign.taken:
        services = first_names(foreign.taken, most=_SHOWN)
        return CheckState.WRONG, f"{passed}; they take every packet of {services} before the flows of xenoovs"
    if isinstance(foreign.cost, Unknown):
        return CheckState.UNKNOWN, f"{passed}; their cost is unknown: {foreign.cost.reason}"
    is_harmless = foreign.cost.entries_with_foreign <= foreign.cost.entries and not foreign.cost.overridden
    return (CheckState.OK if is_harmless else CheckState.WRONG), f"{passed}; {_cost(foreign.cost)}"


def _cost(cost: ForeignCost) -> str:
    text = counted(cost.entries_with_foreign, "hardware entry", "hardware entries")
    text += f" instead of {cost.entries}" if cost.entries_with_foreign != cost.entries else ", no additional ones"
    if cost.overridden:
        are = worded(cost.overridden, "is", "are")
        text += f"; {cost.overridden} of {counted(cost.packets, 'packet')} {are} sent elsewhere"
    return text


# OVN on the same Open vSwitch.


def check_ovn(case: DoctorCase) -> Iterator[CheckResult]:
    """Report the bridges of OVN; the config must not name one of them. A host without OVN has no row."""
    check = HostCheck("OVN here", "ovn-controller deletes flows of other programs from its bridge")
    for bridge in case.database.bridges:
        is_wanted = bridge.name == case.wanted.bridge
        if bridge.ovn is None:
            continue
        if not bridge.ovn.is_owner:
            seen = f"shared with OVN: {bridge.ovn.evidence}; give no service an address of its networks"
            yield check.row(CheckState.UNKNOWN if is_wanted else CheckState.OK, seen, bridge.name)
        elif is_wanted:
            yield check.wrong(
                f"the config names it, but {_owner(bridge, bridge.ovn.evidence, case.database.chassis)}", bridge.name
            )
        else:
            yield check.ok(f"{_owner(bridge, bridge.ovn.evidence, case.database.chassis)}; not touched", bridge.name)


def _owner(bridge: BridgeState, evidence: str, chassis: tuple[OvnChassis, ...]) -> str:
    """Return a clause that names the owner of the bridge."""
    owner = next((each for each in chassis if each.bridge == bridge.name), None)
    if owner is None:
        return f"it belongs to OVN ({evidence})"
    name = owner.name or "without system-id"
    return f"it belongs to OVN ({', '.join((f'chassis {name}', *owner.encap))})"
