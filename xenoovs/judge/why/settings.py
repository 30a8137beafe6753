"""Reasons for every megaflow of a host, a bridge or a port: settings and kinds of ports.

Options: ovs-vswitchd.conf.db(5), column other_config of table Open_vSwitch.
"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.compile.offloadable.table import PRIORITY_SINCE, SOURCES
from xenoovs.datapath.host import Feature
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.judge.why.case import DOCA_LAYER, MINIFLOW, OFFLOAD_INFO, Case
from xenoovs.judge.why.reason import REVALIDATOR_PURGE, Cause, Likelihood, Reason

_HW_OFFLOAD = "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true"
_NIC_TYPES = frozenset(("dpdk", "doca"))
"""Interface types of the userspace datapath with offload (DPDK's rte_flow, NVIDIA's DOCA Flow)."""


def setting_reasons(case: Case) -> Iterator[Reason]:
    """Yield reasons in settings of Open vSwitch, of the ingress port, then of the output ports."""
    software = tuple(_datapath(case))
    if software:
        # Such a datapath offloads nothing, whatever else is set.
        yield from software
        return
    off = tuple(_offload(case))
    yield from off
    if off:
        # Without offload, ports have neither providers nor qdiscs.
        return
    yield from _excluded(case)
    if case.is_in_kernel:
        yield from _policy(case)
        yield from _provider(case)
        yield from _device(case)
        yield from _egress(case)


def not_offered(case: Case) -> Reason | None:
    """Return the reason for a megaflow that nothing keeps out of the hardware now; None for others."""
    history = case.evidence.history
    is_offered = case.verdict is not Verdict.SW or history is None or case.in_port not in history.providers
    if is_offered or case.evidence.offload is None or not case.evidence.offload.is_on:
        return None
    text = (
        "nothing keeps it out of the hardware now: it was installed earlier, as before hw-offload was turned on, and "
        "Open vSwitch does not offer it a second time"
    )
    seen = case.evidence.offload.evidence, f"{case.in_port} has an offload provider"
    return Reason(Cause.NOT_RETRIED, Likelihood.LIKELY, text, seen, ("xenoovs why FILE --reinstall",))


def likely_off(case: Case) -> Reason | None:
    """Return that hw-offload is probably off, if there is only a dump and nothing in it is offloaded; else None."""
    layers, evidence = case.evidence.layers, case.evidence
    if evidence.database is not None or evidence.offload is not None or case.is_userspace or case.refusals:
        return None
    if layers != {"ovs"} or case.verdict is not Verdict.SW:
        return None
    text = "Open vSwitch seems not to offload at all: hw-offload is off, or was set without a restart of ovs-vswitchd"
    seen = ("every megaflow of the dump is dp:ovs, and Open vSwitch could translate this one",)
    fix = ("ovs-vsctl get Open_vSwitch . other_config:hw-offload", _HW_OFFLOAD, *evidence.target.restart)
    return Reason(Cause.HW_OFFLOAD_OFF, Likelihood.LIKELY, text, seen, fix)


def _datapath(case: Case) -> Iterator[Reason]:
    bridge, port, is_doca = case.bridge, case.interface, any(name == OFFLOAD_INFO for name, _ in case.megaflow.extra)
    is_doca = is_doca or DOCA_LAYER in case.evidence.layers
    is_software = case.is_userspace and not is_doca and case.verdict is Verdict.SW
    if bridge is None and is_software and not case.is_port_offered:
        text = "userspace datapath: a NIC forwards only for ports of type dpdk or doca"
        seen = (f"the dump has {MINIFLOW}, which the kernel's datapath never writes",)
        yield Reason(Cause.SOFTWARE_DATAPATH, Likelihood.LIKELY, text, seen)
    if bridge is None or bridge.datapath_type == "system" or (port is not None and port.type in _NIC_TYPES):
        return
    kind, seen = bridge.datapath_type, (f"bridge {bridge.name}: datapath_type={bridge.datapath_type}",)
    if port is not None:
        text = (
            f"software datapath: no NIC forwards for a port of type {port.type} on a bridge of datapath {kind}; use "
            "datapath system with ports of a NIC, or ports of type dpdk or doca"
        )
        of_port = f"interface {port.name}: type={port.type}"
        yield Reason(Cause.SOFTWARE_DATAPATH, Likelihood.CERTAIN, text, (*seen, of_port))
        return
    # Packets of a tunnel arrive by another port of the same datapath.
    bridges = () if case.evidence.database is None else case.evidence.database.bridges
    if not _NIC_TYPES & {port.type for each in bridges if each.datapath_type == kind for port in each.ports}:
        why = f"is a tunnel of datapath {kind}, in which no port is of type dpdk or doca"
        text = f"software datapath: {case.in_port} {why}"
        yield Reason(Cause.SOFTWARE_DATAPATH, Likelihood.CERTAIN, text, seen)


def _offload(case: Case) -> Iterator[Reason]:
    database, running = case.evidence.database, case.evidence.offload
    if running is not None and running.is_on:
        return
    value = None if database is None else database.config.get("hw-offload")
    if database is None and running is None:
        return
    if value != "true":
        setting = "is not set" if value is None else f"is {value!r}"
        evidence = running.evidence if database is None and running else f"other_config:hw-offload {setting}"
        fix = _HW_OFFLOAD, *case.evidence.target.restart
        text = "Open vSwitch does not offload at all"
        yield Reason(Cause.HW_OFFLOAD_OFF, Likelihood.CERTAIN, text, (evidence,), fix)
    elif running is not None:
        text = "hw-offload is set, but the running ovs-vswitchd does not offload: it was not restarted since"
        seen = "other_config:hw-offload is 'true'", running.evidence
        yield Reason(Cause.NOT_RESTARTED, Likelihood.CERTAIN, text, seen, case.evidence.target.restart)


def _policy(case: Case) -> Iterator[Reason]:
    database, history = case.evidence.database, case.evidence.history
    in_use, policy = history.tc_policy if history is not None else None, case.evidence.tc_policy
    configured = database.config.get("tc-policy") if database is not None else None
    evidence = f"the log says: tc: Using policy '{in_use}'" if in_use else f"other_config:tc-policy is {configured!r}"
    if policy == "skip_sw" and case.verdict is Verdict.SW:
        text = "the driver refused the rule, and tc-policy=skip_sw keeps refused rules out of traffic control"
        yield Reason(Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY, text, (evidence,), ("xenoovs why FILE --reinstall",))
    if policy == "skip_hw":
        text = "tc-policy=skip_hw keeps every rule out of the hardware"
        fix = ("ovs-vsctl remove Open_vSwitch . other_config tc-policy", *case.evidence.target.restart)
        yield Reason(Cause.TC_POLICY_SKIP_HW, Likelihood.CERTAIN, text, (evidence,), fix)


def _excluding(case: Case, port: str) -> str | None:
    """Return the hw-offload-priority that leaves a port without a provider; None if it has another reason or none."""
    history, database = case.evidence.history, case.evidence.database
    home = None if database is None else database.bridge_of(port)
    state = None if home is None else home.port(port)
    if state is None or history is None or not history.is_complete or port in history.providers:
        return None
    return state.offload_priority if case.version >= PRIORITY_SINCE else None


def _excluded(case: Case) -> Iterator[Reason]:
    """Yield a reason for each ingress or output port that its hw-offload-priority keeps from the hardware."""
    ports = (case.in_port,) if case.in_port and case.verdict is Verdict.SW else ()
    for port in dict.fromkeys((*ports, *case.egress)):
        priority = _excluding(case, port)
        if priority is None:
            continue
        what, cause = f"lets no provider send packets by {port}", Cause.EGRESS_NOT_ON_ESWITCH
        if port == case.in_port:
            what, cause = f"offers flows of {port} to no provider", Cause.NO_PROVIDER
        text = f"Open vSwitch {what}, as its interface is set"
        seen = f"Interface {port}: other_config:hw-offload-priority={priority}, and `dpif/offload/show` lacks the port"
        fix = (f"ovs-vsctl remove Interface {port} other_config hw-offload-priority", *case.evidence.target.restart)
        yield Reason(cause, Likelihood.CERTAIN, text, (seen,), fix, SOURCES["offload-port"])


def _provider(case: Case) -> Iterator[Reason]:
    history, port = case.evidence.history, case.in_port
    if history is None or port is None or case.verdict is not Verdict.SW or _excluding(case, port):
        return
    if not (history.is_complete and history.providers) or port in history.providers:
        return
    place = "the log has no line `{}: Assigned flow API`, but has it for"
    place = "`dpif/offload/show` has no port {}, but has" if case.version >= PRIORITY_SINCE else place
    others = f"{place.format(port)} {', '.join(sorted(history.providers))}"
    failure, text = history.failures.get(port), f"Open vSwitch found no offload provider for port {port}"
    seen, source = (others,) if failure is None else (others, failure), None if failure is None else SOURCES["tc-init"]
    fix = (f"ovs-vsctl get Interface {port} type error", *case.evidence.target.restart)
    yield Reason(Cause.NO_PROVIDER, Likelihood.CERTAIN, text, seen, fix, source)


def _device(case: Case) -> Iterator[Reason]:
    device = case.evidence.device(case.in_port)
    if device is None:
        return
    # Drivers take the rules of a tunnel device although it has no offload of its own (flow_indr_dev_register()).
    is_of_tunnels = is_tunnel_device(device.name)
    feature = device.hw_tc_offload
    if isinstance(feature, Feature) and not feature.is_on and not is_of_tunnels:
        text, seen = f"the device {device.name} accepts no rules", f"ethtool -k {device.name}: hw-tc-offload: off"
        fix: tuple[str, ...] = (f"ethtool -K {device.name} hw-tc-offload on", REVALIDATOR_PURGE)
        if feature.is_fixed:
            text, seen, fix = f"{text}: its driver cannot", f"{seen} [fixed]", ()
        yield Reason(Cause.HW_TC_OFFLOAD_OFF, Likelihood.CERTAIN, text, (seen,), fix)
    if device.ingress is False and case.verdict is Verdict.SW:
        text = f"{device.name} has no ingress qdisc, to which Open vSwitch attaches its rules"
        seen = f"tc qdisc show dev {device.name}: no ingress or clsact"
        yield Reason(Cause.NO_INGRESS_QDISC, Likelihood.CERTAIN, text, (seen,), case.evidence.target.restart)
    offloads = any(port == case.in_port for port, _, _ in case.evidence.in_hardware)
    if device.switch_id is None and not offloads and not is_of_tunnels:
        likelihood = Likelihood.CERTAIN if case.verdict is Verdict.TC_SW else Likelihood.LIKELY
        seen = f"/sys/class/net/{device.name}/phys_switch_id is empty"
        fix = (f"devlink dev eswitch set pci/{device.pci} mode switchdev",) if device.pci else ()
        yield Reason(Cause.NOT_ON_ESWITCH, likelihood, f"{device.name} is no port of an eSwitch", (seen,), fix)


def _main_output(case: Case) -> str:
    """Return the output that the block names; without a block the last one, as Open vSwitch puts mirrors first."""
    ports = () if case.block is None else {hop.port for hop in case.block.hops}
    return next((name for name in case.egress if name in ports), case.egress[-1])


def _egress(case: Case) -> Iterator[Reason]:
    ingress, bridge = case.evidence.device(case.in_port), case.bridge
    # The offload table has a reason for the bridge's own port.
    for name in (port for port in case.egress if bridge is None or port != bridge.name):
        device = case.evidence.device(name)
        if device is None or ingress is None or ingress.switch_id is None or device.switch_id == ingress.switch_id:
            continue
        if is_tunnel_device(name):
            # The NIC encapsulates, and the packet leaves by the device of its route.
            continue
        is_copy = len(case.egress) > 1 and name != _main_output(case)
        what = f"a copy of each packet leaves by {name}, a second output (a mirror, or a flow with several outputs)"
        likelihood = Likelihood.CERTAIN if device.switch_id is None else Likelihood.LIKELY
        text = f"{what if is_copy else f'packets leave by {name}'}, which is not on the eSwitch of {ingress.name}"
        seen = f"phys_switch_id of {ingress.name} is {ingress.switch_id}, of {name} {device.switch_id or 'empty'}"
        yield Reason(Cause.EGRESS_NOT_ON_ESWITCH, likelihood, text, (seen,))
