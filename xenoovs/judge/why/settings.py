"""Reasons for every megaflow of a host, a bridge or a port: settings and kinds of ports.

Options: ovs-vswitchd.conf.db(5), column other_config of table Open_vSwitch.
"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.compile.offloadable.table import PRIORITY_SINCE, SOURCES
from xenoovs.datapath.database import BridgeState
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
    if case.is_kernel:
        yield from _policy(case)
        yield from _provider(case)
        yield from _device(case)
        yield from _egress(case)


def not_offered(case: Case) -> Reason | None:
    """Return the reason for a megaflow that nothing keeps out of the hardware now."""
    history = case.evidence.history
    is_offered = case.verdict is not Verdict.SW or history is None or case.in_port not in history.providers
    if is_offered or case.evidence.offload is None or not case.evidence.offload.is_on:
        return None
    return Reason(
        Cause.NOT_RETRIED,
        Likelihood.LIKELY,
        "nothing keeps it out of the hardware now: it was installed earlier, as before hw-offload was turned on, and "
        "Open vSwitch does not offer it a second time",
        (case.evidence.offload.evidence, f"{case.in_port} has an offload provider"),
        ("xenoovs why FILE --reinstall",),
    )


def likely_off(case: Case) -> Reason | None:
    """Return that hw-offload is probably off, if the dump is all there is and nothing in it is offloaded."""
    layers, evidence = case.evidence.layers, case.evidence
    if evidence.database is not None or evidence.offload is not None or case.is_userspace or case.refusals:
        return None
    if layers != {"ovs"} or case.verdict is not Verdict.SW:
        return None
    return Reason(
        Cause.HW_OFFLOAD_OFF,
        Likelihood.LIKELY,
        "Open vSwitch seems not to offload at all: hw-offload is off, or was set without a restart of ovs-vswitchd",
        ("every megaflow of the dump is dp:ovs, and Open vSwitch could translate this one",),
        ("ovs-vsctl get Open_vSwitch . other_config:hw-offload", _HW_OFFLOAD, *evidence.target.restart),
    )


def _datapath(case: Case) -> Iterator[Reason]:
    bridge, port, is_told = case.bridge, case.interface, any(name == OFFLOAD_INFO for name, _ in case.megaflow.extra)
    is_told = is_told or DOCA_LAYER in case.evidence.layers
    is_software = case.is_userspace and not is_told and case.verdict is Verdict.SW
    if bridge is None and is_software and not case.is_port_offered:
        yield Reason(
            Cause.SOFTWARE_DATAPATH,
            Likelihood.LIKELY,
            "userspace datapath: a NIC forwards only for ports of type dpdk or doca",
            (f"the dump has {MINIFLOW}, which the kernel's datapath never writes",),
        )
    if bridge is None or bridge.datapath_type == "system" or (port is not None and port.type in _NIC_TYPES):
        return
    if port is None:
        # A tunnel, whose packets arrive by a port of the same datapath.
        yield from _tunnel_datapath(case, bridge)
        return
    yield Reason(
        Cause.SOFTWARE_DATAPATH,
        Likelihood.CERTAIN,
        f"software datapath: no NIC forwards for a port of type {port.type} on a bridge of datapath "
        f"{bridge.datapath_type}; use datapath system with ports of a NIC, or ports of type dpdk or doca",
        (f"bridge {bridge.name}: datapath_type={bridge.datapath_type}", f"interface {port.name}: type={port.type}"),
    )


def _tunnel_datapath(case: Case, bridge: BridgeState) -> Iterator[Reason]:
    bridges = () if case.evidence.database is None else case.evidence.database.bridges
    types = {port.type for each in bridges if each.datapath_type == bridge.datapath_type for port in each.ports}
    if not types & _NIC_TYPES:
        yield Reason(
            Cause.SOFTWARE_DATAPATH,
            Likelihood.CERTAIN,
            f"software datapath: {case.in_port} is a tunnel of datapath {bridge.datapath_type}, in which no port is of "
            "type dpdk or doca",
            (f"bridge {bridge.name}: datapath_type={bridge.datapath_type}",),
        )


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
        fix = (_HW_OFFLOAD, *case.evidence.target.restart)
        text = "Open vSwitch does not offload at all"
        yield Reason(Cause.HW_OFFLOAD_OFF, Likelihood.CERTAIN, text, (evidence,), fix)
    elif running is not None:
        yield Reason(
            Cause.NOT_RESTARTED,
            Likelihood.CERTAIN,
            "hw-offload is set, but the running ovs-vswitchd does not offload: it was not restarted since",
            ("other_config:hw-offload is 'true'", running.evidence),
            case.evidence.target.restart,
        )


def _policy(case: Case) -> Iterator[Reason]:
    database, history = case.evidence.database, case.evidence.history
    in_use, policy = history.tc_policy if history is not None else None, case.evidence.tc_policy
    configured = database.config.get("tc-policy") if database is not None else None
    evidence = f"the log says: tc: Using policy '{in_use}'" if in_use else f"other_config:tc-policy is {configured!r}"
    if policy == "skip_sw" and case.verdict is Verdict.SW:
        text = "the driver refused the rule, and tc-policy=skip_sw keeps refused rules out of traffic control"
        fix = ("xenoovs why FILE --reinstall",)
        yield Reason(Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY, text, (evidence,), fix)
    if policy != "skip_hw":
        return
    yield Reason(
        Cause.TC_POLICY_SKIP_HW,
        Likelihood.CERTAIN,
        "tc-policy=skip_hw keeps every rule out of the hardware",
        (evidence,),
        ("ovs-vsctl remove Open_vSwitch . other_config tc-policy", *case.evidence.target.restart),
    )


def _excluding(case: Case, port: str) -> str | None:
    """Return the hw-offload-priority by which Open vSwitch added a port without a provider; None: there is none."""
    history, database = case.evidence.history, case.evidence.database
    home = None if database is None else database.bridge_of(port)
    state = None if home is None else home.port(port)
    if state is None or history is None or not history.is_complete or port in history.providers:
        return None
    return state.offload_priority if case.version >= PRIORITY_SINCE else None


def _excluded(case: Case) -> Iterator[Reason]:
    """Yield that a setting of the ingress port, or of an output port, keeps it from the hardware."""
    ports = (case.in_port,) if case.in_port and case.verdict is Verdict.SW else ()
    for port in dict.fromkeys((*ports, *case.egress)):
        priority = _excluding(case, port)
        if priority is None:
            continue
        what = "offers flows of {} to no provider" if port == case.in_port else "lets no provider send packets by {}"
        yield Reason(
            Cause.NO_PROVIDER if port == case.in_port else Cause.EGRESS_NOT_ON_ESWITCH,
            Likelihood.CERTAIN,
            f"Open vSwitch {what.format(port)}, as its interface is set",
            (f"Interface {port}: other_config:hw-offload-priority={priority}, and `dpif/offload/show` lacks the port",),
            (f"ovs-vsctl remove Interface {port} other_config hw-offload-priority", *case.evidence.target.restart),
            source=SOURCES["offload-port"],
        )


def _provider(case: Case) -> Iterator[Reason]:
    history, port = case.evidence.history, case.in_port
    if history is None or port is None or case.verdict is not Verdict.SW or _excluding(case, port):
        return
    if not (history.is_complete and history.providers) or port in history.providers:
        return
    place = "the log has no line `{}: Assigned flow API`, but has it for"
    place = "`dpif/offload/show` has no port {}, but has" if case.version >= PRIORITY_SINCE else place
    others = f"{place.format(port)} {', '.join(sorted(history.providers))}"
    failure = history.failures.get(port)
    yield Reason(
        Cause.NO_PROVIDER,
        Likelihood.CERTAIN,
        f"Open vSwitch found no offload provider for port {port}",
        (others,) if failure is None else (others, failure),
        (f"ovs-vsctl get Interface {port} type error", *case.evidence.target.restart),
        source=None if failure is None else SOURCES["tc-init"],
    )


def _device(case: Case) -> Iterator[Reason]:
    device = case.evidence.device(case.in_port)
    if device is None:
        return
    # Drivers take the rules of a tunnel device although it has no offload of its own (flow_indr_dev_register()).
    is_of_tunnels = is_tunnel_device(device.name)
    feature = device.hw_tc_offload
    if isinstance(feature, Feature) and not feature.is_on and not is_of_tunnels:
        fixed = " [fixed]" if feature.is_fixed else ""
        yield Reason(
            Cause.HW_TC_OFFLOAD_OFF,
            Likelihood.CERTAIN,
            f"the device {device.name} accepts no rules" + (": its driver cannot" if feature.is_fixed else ""),
            (f"ethtool -k {device.name}: hw-tc-offload: off{fixed}",),
            () if feature.is_fixed else (f"ethtool -K {device.name} hw-tc-offload on", REVALIDATOR_PURGE),
        )
    if device.ingress is False and case.verdict is Verdict.SW:
        yield Reason(
            Cause.NO_INGRESS_QDISC,
            Likelihood.CERTAIN,
            f"{device.name} has no ingress qdisc, to which Open vSwitch attaches its rules",
            (f"tc qdisc show dev {device.name}: no ingress or clsact",),
            case.evidence.target.restart,
        )
    offloads = any(port == case.in_port for port, _, _ in case.evidence.in_hardware)
    if device.switch_id is None and not offloads and not is_of_tunnels:
        yield Reason(
            Cause.NOT_ON_ESWITCH,
            Likelihood.CERTAIN if case.verdict is Verdict.TC_SW else Likelihood.LIKELY,
            f"{device.name} is no port of an eSwitch",
            (f"/sys/class/net/{device.name}/phys_switch_id is empty",),
            (f"devlink dev eswitch set pci/{device.pci} mode switchdev",) if device.pci else (),
        )


def _main_output(case: Case) -> str:
    """Return the output that the block names; without a block the last one, as Open vSwitch puts mirrors first."""
    hops = () if case.block is None else tuple(port for hop in case.block.hops for port in hop.ports)
    return next((name for name in case.egress if name in hops), case.egress[-1])


def _egress(case: Case) -> Iterator[Reason]:
    ingress, bridge = case.evidence.device(case.in_port), case.bridge
    # The offload table covers the bridge's own port.
    for name in (port for port in case.egress if bridge is None or port != bridge.name):
        device = case.evidence.device(name)
        if device is None or ingress is None or ingress.switch_id is None or device.switch_id == ingress.switch_id:
            continue
        if is_tunnel_device(name):
            # The NIC encapsulates, and the packet leaves by the device of its route.
            continue
        is_copy = len(case.egress) > 1 and name != _main_output(case)
        what = f"a copy of each packet leaves by {name}, a second output (a mirror, or a flow with several outputs)"
        yield Reason(
            Cause.EGRESS_NOT_ON_ESWITCH,
            Likelihood.CERTAIN if device.switch_id is None else Likelihood.LIKELY,
            f"{what if is_copy else f'packets leave by {name}'}, which is not on the eSwitch of {ingress.name}",
            (f"phys_switch_id of {ingress.name} is {ingress.switch_id}, of {name} {device.switch_id or 'empty'}",),
        )
