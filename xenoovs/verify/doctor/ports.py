"""Checks of each port: is it there, does it work, and would the kernel offer its packets to the NIC?"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Bridge, Silent, Unknown
from xenoovs.verify.doctor.case import Case
from xenoovs.verify.doctor.check import PURGE, Check, Fix, State, vsctl

_PROVIDERS = {"linux_tc": "tc", "dpdk_flow_api": "dpdk"}
"""Names of offload providers before and since Open vSwitch 3.7."""


def check_on_bridge(case: Case) -> Iterator[Check]:
    """With a config: each port is on its bridge. Images of BlueField put p0 and p1 on two bridges."""
    if case.database is None or case.wanted is None:
        return
    bridge, why = case.wanted.bridge, "packets cross between ports of one bridge only"
    for port in case.ports:
        home = case.database.home_of(port)
        if home is not None and home.name == bridge:
            yield Check("port on bridge", State.OK, f"on {bridge}", why, subject=port)
            continue
        seen = "on no bridge" if home is None else f"on bridge {home.name}, not on {bridge}"
        yield Check("port on bridge", State.WRONG, seen, why, subject=port, fix=_move(port, home, bridge))


def _move(port: str, home: Bridge | None, bridge: str) -> Fix:
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
    if isinstance(case.host.daemon, Silent):
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
        elif history.is_whole:
            reason = history.failures.get(port, "none was assigned")
            yield Check("offload provider", State.WRONG, reason, why, subject=port)
        else:
            seen = "the log does not reach back to the start of ovs-vswitchd"
            yield Check("offload provider", State.UNKNOWN, seen, why, subject=port)


def _provider(case: Case, port: str, provider: str) -> tuple[State, str]:
    """That of dummy ports only pretends, and traffic control is given flows of the kernel's datapath alone."""
    home = None if case.database is None else case.database.home_of(port)
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
        rules = Unknown("ovs-vswitchd does not answer") if isinstance(case.host.daemon, Silent) else device.rules
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
