"""Checks of the kernel, of the NIC's switch and of each port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.fact import Unknown, Unresponsive
from xenoovs.datapath.host import Device, OffloadHistory
from xenoovs.judge.doctor.check import PURGE, CheckResult, CheckState, DoctorCase, Fix, HostCheck, vsctl
from xenoovs.regex import regex

TC_MODULES = ("cls_flower", "act_mirred", "act_pedit", "act_csum", "sch_ingress")
"""Modules for match, output, rewritten MACs and addresses, their checksums, and the qdisc."""

_FLAVOUR = regex(
    r"-(?:(?P<ubuntu>generic|lowlatency|aws|azure|gcp|ibm|kvm|oracle)|(?P<cloud>cloud-)?(?:rt-)?(?P<arch>amd64|arm64))\Z"
)


def check_modules(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the kernel has the parts of traffic control that Open vSwitch needs."""
    check = HostCheck("kernel modules", "Open vSwitch offloads by TC rules, which need these modules")
    kernel = case.host.kernel
    if not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    if isinstance(kernel, Unknown):
        yield check.unknown(kernel.reason)
    elif isinstance(kernel.modules, Unknown):
        yield check.unknown(kernel.modules.reason)
    elif missing := [module for module in TC_MODULES if kernel.modules.get(module) is False]:
        yield check.wrong(f"kernel {kernel.release} lacks {', '.join(missing)}", fix=_modules_fix(kernel.release))
    elif unknown := [module for module in TC_MODULES if module not in kernel.modules]:
        yield check.unknown(f"unknown whether the kernel has {', '.join(unknown)}")
    else:
        yield check.ok(", ".join(TC_MODULES))


def _modules_fix(release: str) -> Fix | None:
    """Return the fix that installs modules, by the flavour of a kernel's release; None for other distributions.

    Ubuntu has them in linux-modules-extra of each release, Debian in all of its kernels but those for clouds
    (packages.ubuntu.com and packages.debian.org, linux-image).
    """
    flavour = _FLAVOUR.search(release)
    if flavour is None:
        return None
    if flavour["ubuntu"]:
        return Fix((("apt-get", "install", f"linux-modules-extra-{release}"),))
    if flavour["cloud"]:
        return Fix((("apt-get", "install", f"linux-image-{flavour['arch']}"), ("reboot",)))
    return Fix((("apt-get", "install", "--reinstall", f"linux-image-{release}"),))


def check_same_eswitch(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("same eSwitch", "a NIC forwards between its own ports only")
    ports = case.kernel_ports
    if not ports:
        return
    devices = {port: case.device(port) for port in ports}
    unknown = [f"{port}: {device.reason}" for port, device in devices.items() if isinstance(device, Unknown)]
    known = [device for device in devices.values() if not isinstance(device, Unknown)]
    for device in known:
        if device.switch_id is None:
            yield check.wrong("not on an eSwitch: no NIC in switchdev mode has it", device.name)
    switches = sorted({device.switch_id for device in known if device.switch_id is not None})
    if len(switches) > 1:
        groups = ("/".join(device.name for device in known if device.switch_id == switch) for switch in switches)
        yield check.wrong(f"{len(switches)} different ones: {', '.join(groups)}")
    elif unknown:
        yield check.unknown("; ".join(unknown))
    elif switches and len(known) == sum(device.switch_id is not None for device in known):
        yield check.ok(f"all ports on {switches[0]}")


def check_eswitch_mode(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("eSwitch mode", "in legacy mode the NIC forwards only by MAC and VLAN and accepts no flows")
    for pci in _functions(case):
        eswitch = case.host.eswitch(pci)
        mode = eswitch.mode if eswitch is not None else Unknown("devlink does not know it")
        if isinstance(mode, Unknown):
            yield check.unknown(mode.reason, pci)
        else:
            # Changing the mode unbinds representors, so --fix never does it.
            busy = _busy_ports(case, pci) if mode != "switchdev" else ()
            rules = f"; rules at {', '.join(busy)} are in the way: `E-Switch is busy`" if busy else ""
            first = (_STOP, *(("tc", "filter", "del", "dev", port, "ingress") for port in busy)) if busy else ()
            fix = Fix((*first, ("devlink", "dev", "eswitch", "set", f"pci/{pci}", "mode", "switchdev")))
            yield check.judge(mode == "switchdev", f"{mode}{rules}", pci, fix=fix)


_STOP = ("systemctl", "stop", "openvswitch-switch")
"""Keeps Open vSwitch from adding its rules again."""


def _busy_ports(case: DoctorCase, pci: str) -> tuple[str, ...]:
    """Return the ports with rules of traffic control, which an eSwitch counts as users.

    While it has users, its mode cannot change (mlx5_esw_try_lock() of Linux; mlnx-tools, commit d7b3813).
    """
    devices = (device for device in case.known_devices if device.pci == pci)
    return tuple(each.name for each in devices if not isinstance(each.rules, Unknown) and each.rules.total)


def check_steering(case: DoctorCase) -> Iterator[CheckResult]:
    """Report the steering mode: every mode offloads (kernel documentation, networking/devlink/mlx5.rst)."""
    check = HostCheck("steering mode", "smfs and hmfs insert rules faster than dmfs; the rules are the same")
    for pci in _functions(case):
        eswitch = case.host.eswitch(pci)
        if eswitch is None:
            continue
        if isinstance(eswitch.steering, Unknown):
            yield check.unknown(eswitch.steering.reason, pci)
        else:
            yield check.ok(eswitch.steering, pci)


def check_multiport(case: DoctorCase) -> Iterator[CheckResult]:
    """Check esw_multiport, if a service forwards from one uplink to another.

    mlx5 offloads that only with one eSwitch for all ports (kernel documentation, networking/devlink/mlx5.rst). Without
    it the driver reports `devices are not the same uplink, can't offload forwarding`.
    """
    check = HostCheck(
        "multiport eSwitch", "the NIC forwards from one uplink to another only with one eSwitch for all its ports"
    )
    if case.required is None:
        return
    ingress, egress = (uplinks_of(case, ports) for ports in (case.required.ingress, case.required.egress))
    if not any(a.name != b.name for a in ingress for b in egress):
        return
    for pci in dict.fromkeys(device.pci for device in (*ingress, *egress)):
        eswitch = case.host.eswitch(pci)
        multiport = eswitch.multiport if eswitch is not None else Unknown("devlink does not know the device")
        if isinstance(multiport, Unknown):
            yield check.unknown(multiport.reason, pci)
        elif multiport:
            yield check.ok("on", pci)
        else:
            command = ("devlink", "dev", "param", "set", f"pci/{pci}", "name", "esw_multiport")
            fix = Fix(((*command, "value", "1", "cmode", "runtime"),))
            yield check.wrong("off", pci, fix=fix)


def check_subfunction(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the scalable function behind each representor is active and attached."""
    check = HostCheck("subfunction", "packets to a representor without an active function are lost")
    for device in case.known_devices:
        function = device.subfunction
        if function is None:
            continue
        fix = Fix((("devlink", "port", "function", "set", function.handle, "state", "active"),))
        seen = f"{function.state}, {function.opstate}"
        yield check.judge((function.state, function.opstate) == ("active", "attached"), seen, device.name, fix=fix)


def check_mtu(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that egress ports and representors have at least the MTU of the ingress ports."""
    check = HostCheck("MTU", "the NIC and the kernel drop packets that are larger than the MTU of the output port")
    sizes = {port: size for port in case.ports if (size := _mtu(case, port)) is not None}
    needed = _needed_mtu(case, sizes)
    for port, size in sizes.items():
        need = needed.get(port)
        if need is None:
            yield check.ok(str(size), port)
        elif size >= need:
            yield check.ok(f"{size}, at least {need}", port)
        else:
            command: tuple[str, ...] = ("ip", "link", "set", "dev", port, "mtu", str(need))
            if isinstance(case.device(port), Unknown):
                command = vsctl("set", "Interface", port, f"mtu_request={need}")
            yield check.wrong(f"{size}, below {need}", port, fix=Fix((command,)))


def _mtu(case: DoctorCase, port: str) -> int | None:
    """Return the MTU of the kernel device, or that in OVSDB for ports of DPDK and DOCA."""
    device = case.device(port)
    if not isinstance(device, Unknown):
        return device.mtu
    interface = case.interface(port)
    return None if interface is None else interface.mtu


def _needed_mtu(case: DoctorCase, sizes: Mapping[str, int]) -> dict[str, int]:
    devices = {device.name: device for device in case.known_devices}
    wanted = case.required
    sources = {name for name, d in devices.items() if d.is_uplink} if wanted is None else set(wanted.ingress)
    widest = max((size for name, size in sizes.items() if name in sources), default=None)
    if widest is None:
        return {}
    representors = {name for name, device in devices.items() if device.is_representor}
    return dict.fromkeys(sorted(representors | frozenset(case.wanted.egress)), widest)


def _functions(case: DoctorCase) -> tuple[str, ...]:
    """Return the PCI devices of the ports."""
    return tuple(dict.fromkeys(device.pci for device in case.known_devices if device.pci is not None))


def uplinks_of(case: DoctorCase, ports: tuple[str, ...]) -> list[Device]:
    found = (case.device(port) for port in ports)
    return [device for device in found if not isinstance(device, Unknown) and device.is_uplink and device.pci]


_PROVIDERS = {"linux_tc": "tc", "dpdk_flow_api": "dpdk"}
"""Names of offload providers before and since Open vSwitch 3.7."""


def check_on_bridge(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that each port of the config is on its bridge. Images of BlueField put p0 and p1 on two bridges."""
    check = HostCheck("port on bridge", "a bridge forwards only between its own ports")
    if case.required is None or not case.has_database:
        return
    bridge = case.required.bridge
    for port in case.ports:
        home = case.database.bridge_of(port)
        if home is not None and home.name == bridge:
            yield check.ok(f"on {bridge}", port)
            continue
        seen = "on no bridge" if home is None else f"on bridge {home.name}, not on {bridge}"
        fix: Fix | None = _move(port, home, bridge)
        if home is None and not isinstance(case.host.devices, Unknown) and port not in case.host.devices:
            # Probably mistyped: `ovs-vsctl add-port` would leave a port that does not work.
            fix, seen = None, f"{seen}, and this host has no such device; {_ports_of(case, bridge)}"
        yield check.wrong(seen, port, fix=fix)


def _ports_of(case: DoctorCase, bridge: str) -> str:
    state = case.database.bridge(bridge)
    names = [port.name for port in state.ports if port.name != bridge] if state is not None else []
    return f"{bridge} has {', '.join(names) or 'no ports'}"


def _move(port: str, home: BridgeState | None, bridge: str) -> Fix:
    found = home.port(port) if home is not None else None
    kind = found.type if found is not None else "system"
    leave = ("del-port", home.name, port, "--") if home is not None else ()
    keep_type = () if kind == "system" else ("--", "set", "Interface", port, f"type={kind}")
    return Fix((vsctl(*leave, "add-port", bridge, port, *keep_type),))


def check_works(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that each port has an OpenFlow number."""
    check = HostCheck("port works", "a flow cannot name a port without a number")
    for port in case.ports:
        found = case.interface(port)
        if found is None:
            continue
        working = found.ofport is not None and found.error is None
        seen = f"OpenFlow port {found.ofport}" if working else found.error or "has no OpenFlow number"
        state = CheckState.OK if working else CheckState.WRONG
        if case.is_stale:
            state, seen = CheckState.UNKNOWN, f"{seen}, as ovs-vswitchd last reported"
        yield check.row(state, seen, port)


def check_up(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("port up", "a port that is down sends and receives nothing")
    for port in case.ports:
        found, device = case.interface(port), case.device(port)
        link = None if found is None else found.link_up
        if not isinstance(device, Unknown) and not device.is_up:
            fix = Fix((("ip", "link", "set", "dev", port, "up"),))
            yield check.wrong("set down", port, fix=fix)
        elif link is not None and case.is_stale:
            yield check.unknown(f"{'link up' if link else 'no link'}, as ovs-vswitchd last reported", port)
        elif link is False:
            yield check.wrong("no link: check the cable and the other end", port)
        elif link is True:
            yield check.ok("link up", port)
        elif found is not None:
            yield check.unknown("Open vSwitch reports no link state", port)


def check_provider(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that each port has an offload provider: the part of Open vSwitch that offers its flows to hardware."""
    check = HostCheck("offload provider", "flows of a port without an offload provider stay in software")
    daemon = case.daemon
    if isinstance(case.host.daemon, Unresponsive):
        for port in case.ports:
            yield check.unknown("ovs-vswitchd does not answer", port)
    if daemon is None or isinstance(daemon.offload, Unknown) or not daemon.offload.is_on:
        return
    history = daemon.history
    for port in case.ports:
        if isinstance(history, Unknown):
            yield check.unknown(history.reason, port)
        elif (provider := history.providers.get(port)) is not None:
            state, seen = _provider(case, port, _PROVIDERS.get(provider, provider))
            found = case.interface(port)
            tried = None if found is None or not case.has_priorities else found.offload_providers
            if tried is not None and found is not None and provider not in tried:
                state, seen = CheckState.WRONG, f"{seen}; after a restart none: {_priority(found)}"
            yield check.row(state, seen, port, _every_provider(port) if tried is not None else None)
        elif (other := _sharing(case, history, port)) is not None:
            yield check.ok(f"that of {other}, with which it shares a device", port)
        elif history.is_complete:
            found = case.interface(port)
            is_set = found is not None and case.has_priorities and found.offload_priority is not None
            seen = f"none: {_priority(found)}" if found is not None and is_set else "none was assigned"
            yield check.wrong(history.failures.get(port, seen), port, _every_provider(port) if is_set else None)
        else:
            yield check.unknown("the log does not reach back to the start of ovs-vswitchd", port)


def _priority(port: PortState) -> str:
    return f"other_config:hw-offload-priority of the interface is {port.offload_priority}"


def _every_provider(port: str) -> Fix:
    command = vsctl("remove", "Interface", port, "other_config", "hw-offload-priority")
    return Fix((command,), needs_restart=True)


def _sharing(case: DoctorCase, history: OffloadHistory, port: str) -> str | None:
    """Return a tunnel port with a provider that has the same device in the kernel's datapath; None if there is none.

    Only the first port of a device gets one (netdev_ports_insert() of lib/netdev-offload.c).
    """
    ends = () if case.host.tunnels is None else case.host.tunnels.ends
    devices = {end.port: end.device for end in ends if not end.is_userspace}
    alike = (other for other, device in devices.items() if device == devices.get(port))
    return next((other for other in alike if other in history.providers), None)


def _provider(case: DoctorCase, port: str, provider: str) -> tuple[CheckState, str]:
    """Judge a provider: dummy is no hardware, and tc gets only flows of the kernel's datapath."""
    home = case.database.bridge_of(port)
    if provider == "dummy":
        return CheckState.WRONG, "dummy: for tests, without hardware"
    if provider == "tc" and home is not None and home.datapath_type != "system":
        return CheckState.WRONG, f"tc, which gets no flows of a bridge with datapath {home.datapath_type}"
    return CheckState.OK, provider


def check_hw_tc_offload(case: DoctorCase) -> Iterator[CheckResult]:
    check = HostCheck("hw-tc-offload", "without it the driver refuses every TC rule of the device")
    for port in case.kernel_ports:
        device = case.device(port)
        feature = device if isinstance(device, Unknown) else device.hw_tc_offload
        if isinstance(feature, Unknown):
            yield check.unknown(feature.reason, port)
        elif feature.is_on:
            yield check.ok("on", port)
        elif feature.is_fixed:
            seen = "off, and fixed: the device is no port of a NIC with TC offload, or not in switchdev mode"
            yield check.wrong(seen, port)
        else:
            fix = Fix((("ethtool", "-K", port, "hw-tc-offload", "on"), PURGE), is_safe=True)
            yield check.wrong("off", port, fix=fix)


def check_ingress_qdisc(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the ingress qdisc, which Open vSwitch creates once, when offload begins (netdev_tc_init_flow_api)."""
    check = HostCheck(
        "ingress qdisc", "Open vSwitch attaches its TC rules to it; without it every flow stays in software"
    )
    return (judge_ingress(check, case, port) for port in case.kernel_ports)


def judge_ingress(check: HostCheck, case: DoctorCase, name: str) -> CheckResult:
    """Return whether a device has the qdisc to which Open vSwitch attaches rules."""
    device = case.device(name)
    ingress = device if isinstance(device, Unknown) else device.ingress
    if isinstance(device, Unknown) or isinstance(ingress, Unknown):
        return check.unknown(ingress.reason if isinstance(ingress, Unknown) else "not read", name)
    if ingress:
        return check.ok("present", name)
    if not case.offloads:
        return check.unknown("missing; Open vSwitch creates it when offload begins", name)
    # Members of a bond share a block, which only Open vSwitch can create. For other ports it creates a plain qdisc.
    fix = Fix((("tc", "qdisc", "add", "dev", name, "ingress"), PURGE), is_safe=True)
    if device.master not in (None, "ovs-system"):
        fix = Fix(needs_restart=True)
    return check.wrong("missing: another program removed it", name, fix=fix)


def check_tc_rules(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that every TC rule belongs to a current megaflow."""
    check = HostCheck("TC rules", "the kernel and the NIC apply these rules before Open vSwitch sees a packet")
    for port in case.kernel_ports:
        device = case.device(port)
        if isinstance(device, Unknown) or device.ingress is not True:
            continue
        show = Fix((("tc", "-s", "filter", "show", "dev", port, "ingress"),))
        rules = Unknown("ovs-vswitchd does not answer") if isinstance(case.host.daemon, Unresponsive) else device.rules
        if isinstance(rules, Unknown):
            yield check.unknown(rules.reason, port)
        elif rules.stale:
            yield check.wrong(f"{rules.stale} of {rules.total} are of Open vSwitch, but of no megaflow", port, show)
        elif met := [rule for rule in case.wanted.preempting if rule.device == port]:
            # They belong to other programs: the command only shows them.
            state = CheckState.WRONG if any(rule.is_effective for rule in met) else CheckState.UNKNOWN
            more = f"; and {len(met) - _SHOWN} more" if len(met) > _SHOWN else ""
            yield check.row(state, "; ".join(rule.describe() for rule in met[:_SHOWN]) + more, port, show)
        elif rules.foreign:
            yield check.unknown(f"{rules.foreign} of {rules.total} are of other programs", port, show)
        else:
            yield check.ok(f"{rules.total}, each of a megaflow", port)


_SHOWN = 3
