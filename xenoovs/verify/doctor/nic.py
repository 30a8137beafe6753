"""Checks of the NIC's switch: one for all ports, in the right mode, wide enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xenoovs.datapath.host import Device, Unknown
from xenoovs.verify.doctor.case import Case
from xenoovs.verify.doctor.check import Check, Fix, State, vsctl


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
