"""Checks of the kernel, of the NIC's switch and of each port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.host import Device, OvsBridge, Unknown, Unresponsive
from xenoovs.verify.doctor.check import PURGE, Case, Check, Fix, State, set_config, vsctl

# Checks of the kernel: the parts of traffic control that Open vSwitch needs, and memory for DPDK and DOCA.


TC_MODULES = ("cls_flower", "act_mirred", "act_pedit", "act_csum", "sch_ingress")
"""Match, output, rewritten MACs and addresses with their checksums, and the qdisc they hang on."""

DOCA_HUGEPAGES_BYTES = 3072 * (2 << 20)
"""The least that deployment guides of NVIDIA's DPF reserve: 3072 pages of 2 MiB."""


def check_modules(case: Case) -> Iterator[Check]:
    kernel = case.host.kernel
    if not any(bridge.datapath_type == "system" for bridge in case.bridges):
        return
    name, why = "kernel modules", "Open vSwitch offloads by TC rules, which these parts of the kernel make up"
    if isinstance(kernel, Unknown) or isinstance(kernel.modules, Unknown):
        reason = kernel.reason if isinstance(kernel, Unknown) else _reason(kernel.modules)
        yield Check(name, State.UNKNOWN, reason, why)
        return
    missing = [module for module in TC_MODULES if kernel.modules.get(module) is False]
    untold = [module for module in TC_MODULES if module not in kernel.modules]
    if missing:
        fix = Fix((("apt-get", "install", f"linux-modules-extra-{kernel.release}"),))
        yield Check(name, State.WRONG, f"kernel {kernel.release} lacks {', '.join(missing)}", why, fix=fix)
    elif untold:
        yield Check(name, State.UNKNOWN, f"nothing tells whether there is {', '.join(untold)}", why)
    else:
        yield Check(name, State.OK, ", ".join(TC_MODULES), why)


def _reason(fact: object) -> str:
    return fact.reason if isinstance(fact, Unknown) else ""


def check_hugepages(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or not _uses_hugepages(case):
        return
    kernel, why = case.host.kernel, "DPDK and DOCA keep packets and rules in huge pages and do not start without"
    if isinstance(kernel, Unknown) or isinstance(kernel.hugepages_bytes, Unknown):
        reason = kernel.reason if isinstance(kernel, Unknown) else _reason(kernel.hugepages_bytes)
        yield Check("huge pages", State.UNKNOWN, reason, why)
        return
    needed = DOCA_HUGEPAGES_BYTES if database.has_doca else 1
    has = kernel.hugepages_bytes
    yield Check(
        "huge pages",
        State.OK if has >= needed else State.WRONG,
        f"{has >> 20} MiB reserved" + (f", guides of OVS-DOCA ask for {needed >> 20}" if has < needed > 1 else ""),
        why,
        fix=Fix((("sysctl", "-w", "vm.nr_hugepages=4096"),)),
    )


def check_doca_init(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or not database.has_doca:
        return
    userspace = any(bridge.datapath_type in ("netdev", "doca") for bridge in case.bridges)
    if not userspace:
        return
    is_set = database.config.get("doca-init") == "true"
    yield Check(
        "doca-init",
        State.OK if is_set else State.WRONG,
        "true" if is_set else "not set",
        "bridges of the userspace datapath use the NIC by DOCA only with it",
        fix=Fix((set_config("doca-init", "true"),), needs_restart=True),
    )


def _uses_hugepages(case: Case) -> bool:
    types = {interface.type for bridge in case.bridges for interface in bridge.interfaces}
    config = case.database.config if case.database is not None else {}
    return bool(types & {"dpdk", "doca"}) or "true" in (config.get("doca-init"), config.get("dpdk-init"))


def check_same_eswitch(case: Case) -> Iterator[Check]:
    ports = case.kernel_ports
    if not ports:
        return
    name, why = "same eSwitch", "a NIC forwards between its own ports only"
    devices = {port: case.device(port) for port in ports}
    unknown = [f"{port}: {device.reason}" for port, device in devices.items() if isinstance(device, Unknown)]
    known = [device for device in devices.values() if not isinstance(device, Unknown)]
    for device in known:
        if device.switch_id is None:
            seen = "a port of no eSwitch: no NIC in switchdev mode is behind it"
            yield Check(name, State.WRONG, seen, why, subject=device.name)
    switches = sorted({device.switch_id for device in known if device.switch_id is not None})
    if len(switches) > 1:
        groups = ("/".join(device.name for device in known if device.switch_id == switch) for switch in switches)
        yield Check(name, State.WRONG, f"{len(switches)} different ones: {', '.join(groups)}", why)
    elif unknown:
        yield Check(name, State.UNKNOWN, "; ".join(unknown), why)
    elif switches and len(known) == sum(device.switch_id is not None for device in known):
        yield Check(name, State.OK, f"all ports on {switches[0]}", why)


def check_eswitch_mode(case: Case) -> Iterator[Check]:
    why = "in legacy mode the NIC forwards by MAC and VLAN alone and takes no flows"
    for pci in _functions(case):
        eswitch = case.host.eswitch(pci)
        mode = eswitch.mode if eswitch is not None else Unknown("devlink does not know it")
        if isinstance(mode, Unknown):
            yield Check("eSwitch mode", State.UNKNOWN, mode.reason, why, subject=pci)
        else:
            # Changing it unbinds representors: never done by --fix.
            fix = Fix((("devlink", "dev", "eswitch", "set", f"pci/{pci}", "mode", "switchdev"),))
            state = State.OK if mode == "switchdev" else State.WRONG
            yield Check("eSwitch mode", state, mode, why, subject=pci, fix=fix)


def check_steering(case: Case) -> Iterator[Check]:
    """Reported, not judged: every mode offloads (kernel documentation, networking/devlink/mlx5.rst)."""
    why = "smfs and hmfs insert rules faster than dmfs; the rules are the same"
    for pci in _functions(case):
        eswitch = case.host.eswitch(pci)
        if eswitch is None:
            continue
        if isinstance(eswitch.steering, Unknown):
            yield Check("steering mode", State.UNKNOWN, eswitch.steering.reason, why, subject=pci)
        else:
            yield Check("steering mode", State.OK, eswitch.steering, why, subject=pci)


def check_multiport(case: Case) -> Iterator[Check]:
    """From wire to wire: mlx5 forwards between two uplinks only with one switch for all ports of the NIC.

    Parameter esw_multiport (kernel documentation, networking/devlink/mlx5.rst); without it the driver says `devices are
    not the same uplink, can't offload forwarding`.
    """
    if case.wanted is None:
        return
    ingress, egress = (_uplinks(case, ports) for ports in (case.wanted.ingress, case.wanted.egress))
    if not any(a.name != b.name for a in ingress for b in egress):
        return
    why = "from one uplink to another the NIC forwards only with one switch for all its ports"
    for pci in dict.fromkeys(device.pci for device in (*ingress, *egress)):
        eswitch = case.host.eswitch(pci)
        multiport = eswitch.multiport if eswitch is not None else Unknown("devlink does not know the device")
        if isinstance(multiport, Unknown):
            yield Check("multiport eSwitch", State.UNKNOWN, multiport.reason, why, subject=pci)
        elif multiport:
            yield Check("multiport eSwitch", State.OK, "on", why, subject=pci)
        else:
            command = ("devlink", "dev", "param", "set", f"pci/{pci}", "name", "esw_multiport")
            fix = Fix(((*command, "value", "1", "cmode", "runtime"),))
            yield Check("multiport eSwitch", State.WRONG, "off", why, subject=pci, fix=fix)


def check_subfunction(case: Case) -> Iterator[Check]:
    """Both ends of a scalable function: its representor is in Open vSwitch, its own device has to be there too."""
    why = "a representor whose function is not active leads nowhere"
    for device in case.known_devices:
        function = device.subfunction
        if function is None:
            continue
        state = State.OK if (function.state, function.opstate) == ("active", "attached") else State.WRONG
        fix = Fix((("devlink", "port", "function", "set", function.handle, "state", "active"),))
        seen = f"{function.state}, {function.opstate}"
        yield Check("subfunction", state, seen, why, subject=device.name, fix=fix)


def check_mtu(case: Case) -> Iterator[Check]:
    """Largest packets: every way out is at least as wide as the ways in, and representors as the widest uplink."""
    why = "the NIC and the kernel drop packets that are larger than the MTU of the port they leave by"
    sizes = {port: size for port in case.ports if (size := _mtu(case, port)) is not None}
    needed = _needed_mtu(case, sizes)
    for port, size in sizes.items():
        need = needed.get(port)
        if need is None:
            yield Check("MTU", State.OK, str(size), why, subject=port)
        elif size >= need:
            yield Check("MTU", State.OK, f"{size}, at least {need}", why, subject=port)
        else:
            fix = Fix((_set_mtu(case, port, need),))
            yield Check("MTU", State.WRONG, f"{size}, below {need}", why, subject=port, fix=fix)


def _mtu(case: Case, port: str) -> int | None:
    """That of the kernel's device; ports of DPDK and DOCA have none, and Open vSwitch tells it."""
    device = case.device(port)
    if not isinstance(device, Unknown):
        return device.mtu
    interface = case.interface(port)
    return None if interface is None else interface.mtu


def _set_mtu(case: Case, port: str, mtu: int) -> tuple[str, ...]:
    if isinstance(case.device(port), Unknown):
        return vsctl("set", "Interface", port, f"mtu_request={mtu}")
    return ("ip", "link", "set", "dev", port, "mtu", str(mtu))


def _needed_mtu(case: Case, sizes: Mapping[str, int]) -> dict[str, int]:
    devices = {device.name: device for device in case.known_devices}
    wanted = case.wanted
    sources = {name for name, d in devices.items() if d.is_uplink} if wanted is None else set(wanted.ingress)
    widest = max((size for name, size in sizes.items() if name in sources), default=None)
    if widest is None:
        return {}
    representors = {name for name, device in devices.items() if device.is_representor}
    egress = frozenset(wanted.egress) if wanted is not None else frozenset()
    return dict.fromkeys(sorted(representors | egress), widest)


def _functions(case: Case) -> tuple[str, ...]:
    """PCI devices behind the ports, of those that are or could be switches."""
    return tuple(dict.fromkeys(device.pci for device in case.known_devices if device.pci is not None))


def _uplinks(case: Case, ports: tuple[str, ...]) -> list[Device]:
    found = (case.device(port) for port in ports)
    return [device for device in found if not isinstance(device, Unknown) and device.is_uplink and device.pci]


# Checks of each port: is it there, does it work, and would the kernel offer its packets to the NIC?


_PROVIDERS = {"linux_tc": "tc", "dpdk_flow_api": "dpdk"}
"""Names of offload providers before and since Open vSwitch 3.7."""


def check_on_bridge(case: Case) -> Iterator[Check]:
    """With a config: each port is on its bridge. Images of BlueField put p0 and p1 on two bridges."""
    if case.database is None or case.wanted is None:
        return
    bridge, why = case.wanted.bridge, "packets cross between ports of one bridge only"
    for port in case.ports:
        home = case.database.bridge_of(port)
        if home is not None and home.name == bridge:
            yield Check("port on bridge", State.OK, f"on {bridge}", why, subject=port)
            continue
        seen = "on no bridge" if home is None else f"on bridge {home.name}, not on {bridge}"
        yield Check("port on bridge", State.WRONG, seen, why, subject=port, fix=_move(port, home, bridge))


def _move(port: str, home: OvsBridge | None, bridge: str) -> Fix:
    found = home.interface(port) if home is not None else None
    kind = found.type if found is not None else "system"
    leave = ("del-port", home.name, port, "--") if home is not None else ()
    keep_type = () if kind == "system" else ("--", "set", "Interface", port, f"type={kind}")
    return Fix((vsctl(*leave, "add-port", bridge, port, *keep_type),))


def check_works(case: Case) -> Iterator[Check]:
    for port in case.ports:
        found = case.interface(port)
        if found is None:
            continue
        working = found.ofport is not None and found.error is None
        seen = f"OpenFlow port {found.ofport}" if working else found.error or "has no OpenFlow number"
        state = State.OK if working else State.WRONG
        if case.is_stale:
            state, seen = State.UNKNOWN, f"{seen}, as ovs-vswitchd last wrote"
        yield Check("port works", state, seen, "a flow cannot name a port without a number", subject=port)


def check_up(case: Case) -> Iterator[Check]:
    why = "a port that is down sends and receives nothing"
    for port in case.ports:
        found, device = case.interface(port), case.device(port)
        link = None if found is None else found.link_up
        if not isinstance(device, Unknown) and not device.is_up:
            fix = Fix((("ip", "link", "set", "dev", port, "up"),))
            yield Check("port up", State.WRONG, "set down", why, subject=port, fix=fix)
        elif link is not None and case.is_stale:
            seen = f"{'link up' if link else 'no link'}, as ovs-vswitchd last wrote"
            yield Check("port up", State.UNKNOWN, seen, why, subject=port)
        elif link is False:
            yield Check("port up", State.WRONG, "no link: is a cable there, is the far end up?", why, subject=port)
        elif link is True:
            yield Check("port up", State.OK, "link up", why, subject=port)
        elif found is not None:
            yield Check("port up", State.UNKNOWN, "Open vSwitch does not say whether it has a link", why, subject=port)


def check_provider(case: Case) -> Iterator[Check]:
    """Which part of Open vSwitch offers the flows of a port to hardware."""
    daemon, why = case.daemon, "flows of a port without an offload provider stay in software"
    if isinstance(case.host.daemon, Unresponsive):
        for port in case.ports:
            yield Check("offload provider", State.UNKNOWN, "ovs-vswitchd does not answer", why, subject=port)
    if daemon is None or isinstance(daemon.offload, Unknown) or not daemon.offload.is_on:
        return
    history = daemon.history
    for port in case.ports:
        if isinstance(history, Unknown):
            yield Check("offload provider", State.UNKNOWN, history.reason, why, subject=port)
        elif (provider := history.providers.get(port)) is not None:
            state, seen = _provider(case, port, _PROVIDERS.get(provider, provider))
            yield Check("offload provider", state, seen, why, subject=port)
        elif history.is_complete:
            reason = history.failures.get(port, "none was assigned")
            yield Check("offload provider", State.WRONG, reason, why, subject=port)
        else:
            seen = "the log does not reach back to the start of ovs-vswitchd"
            yield Check("offload provider", State.UNKNOWN, seen, why, subject=port)


def _provider(case: Case, port: str, provider: str) -> tuple[State, str]:
    """That of dummy ports only pretends, and traffic control is given flows of the kernel's datapath alone."""
    home = None if case.database is None else case.database.bridge_of(port)
    if provider == "dummy":
        return State.WRONG, "dummy: it pretends, for tests; there is no hardware behind it"
    if provider == "tc" and home is not None and home.datapath_type != "system":
        return State.WRONG, f"tc, which gets no flow of a bridge of datapath {home.datapath_type}"
    return State.OK, provider


def check_hw_tc_offload(case: Case) -> Iterator[Check]:
    why = "the driver refuses every TC rule of a device without it"
    for port in case.kernel_ports:
        device = case.device(port)
        feature = device if isinstance(device, Unknown) else device.hw_tc_offload
        if isinstance(feature, Unknown):
            yield Check("hw-tc-offload", State.UNKNOWN, feature.reason, why, subject=port)
        elif feature.is_on:
            yield Check("hw-tc-offload", State.OK, "on", why, subject=port)
        elif feature.is_fixed:
            seen = "off, and the device cannot: it is no port of a NIC with TC offload, or not in switchdev mode"
            yield Check("hw-tc-offload", State.WRONG, seen, why, subject=port)
        else:
            fix = Fix((("ethtool", "-K", port, "hw-tc-offload", "on"), PURGE), is_safe=True)
            yield Check("hw-tc-offload", State.WRONG, "off", why, subject=port, fix=fix)


def check_ingress_qdisc(case: Case) -> Iterator[Check]:
    """Open vSwitch makes the qdisc when offload begins on a port, and never again (netdev_tc_init_flow_api)."""
    daemon = case.daemon
    why = "Open vSwitch hangs its TC rules on it; without it every flow stays in software"
    for port in case.kernel_ports:
        device = case.device(port)
        ingress = device if isinstance(device, Unknown) else device.ingress
        if isinstance(device, Unknown) or isinstance(ingress, Unknown):
            reason = ingress.reason if isinstance(ingress, Unknown) else "not read"
            yield Check("ingress qdisc", State.UNKNOWN, reason, why, subject=port)
        elif ingress:
            yield Check("ingress qdisc", State.OK, "there", why, subject=port)
        elif daemon is None or isinstance(daemon.offload, Unknown) or not daemon.offload.is_on:
            seen = "not there; Open vSwitch makes it when offload begins"
            yield Check("ingress qdisc", State.UNKNOWN, seen, why, subject=port)
        else:
            fix = _new_qdisc(port, is_member=device.master not in (None, "ovs-system"))
            yield Check("ingress qdisc", State.WRONG, "somebody has removed it", why, subject=port, fix=fix)


def check_tc_rules(case: Case) -> Iterator[Check]:
    """Every rule there belongs to a megaflow of now."""
    why = "the kernel and the NIC obey these rules before Open vSwitch sees a packet"
    for port in case.kernel_ports:
        device = case.device(port)
        if isinstance(device, Unknown) or device.ingress is not True:
            continue
        look = Fix((("tc", "-s", "filter", "show", "dev", port, "ingress"),))
        rules = Unknown("ovs-vswitchd does not answer") if isinstance(case.host.daemon, Unresponsive) else device.rules
        if isinstance(rules, Unknown):
            yield Check("TC rules", State.UNKNOWN, rules.reason, why, subject=port)
        elif rules.stale:
            seen = f"{rules.stale} of {rules.total} are Open vSwitch's, but of no megaflow"
            yield Check("TC rules", State.WRONG, seen, why, subject=port, fix=look)
        elif rules.foreign:
            seen = f"{rules.foreign} of {rules.total} are of other programs"
            yield Check("TC rules", State.UNKNOWN, seen, why, subject=port, fix=look)
        else:
            yield Check("TC rules", State.OK, f"{rules.total}, each of a megaflow", why, subject=port)


def _new_qdisc(port: str, *, is_member: bool) -> Fix:
    # Members of a bond share a block, which only Open vSwitch can set up again. For others a plain qdisc is what it
    # makes itself.
    if is_member:
        return Fix(needs_restart=True)
    return Fix((("tc", "qdisc", "add", "dev", port, "ingress"), PURGE), is_safe=True)
