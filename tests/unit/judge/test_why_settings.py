"""Settings and ports that keep megaflows out of the NIC, each with evidence and fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.judged import assert_shown
from tests.unit.judge.why_cases import OFF, WHOLE, case, device, host, megaflow, shown
from xenoovs.datapath.database import Database
from xenoovs.datapath.host import Daemon, Device, Feature, HostFacts
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import Case, shape_of
from xenoovs.judge.why.settings import setting_reasons

IN_TC, IN_SOFTWARE = megaflow(), megaflow("dp:ovs")
NO_QDISC = Device("p0", True, 1500, switch_id="65737769746368", ingress=False)
NO_ESWITCH = (device("p0", switch_id=None), device("p1"))
GENEVE = replace(device("genev_sys_6081", switch_id=None), hw_tc_offload=Feature(False, is_fixed=True))
"""As ethtool and sysfs show it, also where the NIC forwards by its rules."""
WITH_GENEVE = host(devices=(device("p0"), device("p1"), GENEVE))
FROM_TUNNEL = megaflow(keys="tunnel(tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,flags(+key))", in_port=GENEVE.name)
INTO_TUNNEL = megaflow(actions=f"set(tunnel(tun_id=0x1,dst=192.0.2.2,ttl=64,tp_dst=6081,flags(key))),{GENEVE.name}")
FAILURE = "failed adding ingress qdisc required for offloading on p0: No such device"


def _with_policy(policy: str) -> HostFacts:
    """The policy in use."""
    return host(history=replace(WHOLE, tc_policy=policy))


def _without_p0(*, is_complete: bool = True, **failures: str) -> HostFacts:
    """Only p1 has a provider, as far as the log goes back."""
    return host(history=replace(WHOLE, providers={"p1": "linux_tc"}, failures=failures, is_complete=is_complete))


def _of_3_7(priority: str | None, *, version: str = "3.7.0", port: str = "p0", lacks: str | None = "p0") -> HostFacts:
    """A host with the hw-offload-priority of an interface, whose provider has all ports but `lacks`."""
    history = replace(WHOLE, tc_policy=None, providers={name: "tc" for name in ("p0", "p1") if name != lacks})
    seen = host(history=history)
    assert isinstance(seen.database, Database)
    assert isinstance(seen.daemon, Daemon)
    (bridge,) = seen.database.bridges
    ports = tuple(replace(each, offload_priority=priority) if each.name == port else each for each in bridge.ports)
    database = replace(seen.database, bridges=(replace(bridge, ports=ports),))
    return replace(seen, database=database, daemon=replace(seen.daemon, version=version))


RESTART = "systemctl restart openvswitch-switch -> xenoovs apply FILE"
TURN_ON = f"-> ovs-vsctl set Open_vSwitch . other_config:hw-offload=true -> {RESTART}"
BY_INTERFACE = "ovs-vsctl remove Interface p0 other_config hw-offload-priority"
REASONS: dict[str, tuple[Case, str]] = {
    "hw-offload is not set": (
        case(IN_SOFTWARE, seen=host(offload=OFF, config={})),
        f"hw-offload-off, certain: ...[other_config:hw-offload is not set] {TURN_ON}",
    ),
    "hw-offload is false": (
        case(IN_SOFTWARE, seen=host(offload=OFF, config={"hw-offload": "false"})),
        f"hw-offload-off, certain: ...[other_config:hw-offload is 'false'] {TURN_ON}",
    ),
    "set, but not restarted": (
        case(IN_SOFTWARE, seen=host(offload=OFF)),
        f"not-restarted, certain: ...[other_config:hw-offload is 'true'; {OFF.evidence}] -> {RESTART}",
    ),
    "skip_hw in use, whatever is set": (
        case(seen=_with_policy("skip_hw")),
        "tc-policy-skip-hw, certain: ...[the log says: tc: Using policy 'skip_hw'] -> ...",
    ),
    "skip_sw: the driver may have refused": (
        case(IN_SOFTWARE, seen=_with_policy("skip_sw")),
        "refused-by-driver, likely: ...[the log says: tc: Using policy 'skip_sw'] -> xenoovs why FILE --reinstall",
    ),
    "no provider": (
        case(IN_SOFTWARE, seen=_without_p0(p0=FAILURE)),
        f"port-without-provider, certain: ...; {FAILURE}] -> ovs-vsctl get Interface p0 type error -> {RESTART}",
    ),
    "the device accepts no rules": (
        case(seen=host(devices=(device("p0", hw_tc_offload=False), device("p1")))),
        "hw-tc-offload-off, certain: the device p0 accepts no rules [ethtool -k p0: hw-tc-offload: off] -> "
        "ethtool -K p0 hw-tc-offload on -> ovs-appctl revalidator/purge",
    ),
    "no ingress qdisc": (
        case(IN_SOFTWARE, seen=host(devices=(NO_QDISC, device("p1")))),
        f"no-ingress-qdisc, certain: ...[tc qdisc show dev p0: no ingress or clsact] -> {RESTART}",
    ),
    "a veth": (
        case(seen=host(devices=NO_ESWITCH)),
        "port-not-on-eswitch, certain: ...[/sys/class/net/p0/phys_switch_id is empty]",
    ),
    **{
        f"egress by eSwitch {switch_id}": (
            case(seen=host(devices=(device("p0"), device("p1", switch_id=switch_id)))),
            f"egress-not-on-eswitch, {likelihood}: ...of p1 {switch_id or 'empty'}]",
        )
        for switch_id, likelihood in ((None, "certain"), ("70617274", "likely"))
    },
    # Open vSwitch puts mirrors first.
    "the copy of a mirror is a second output": (
        case(megaflow(actions="x0,p1"), seen=host(devices=(device("p0"), device("p1"), device("x0", switch_id=None)))),
        "egress-not-on-eswitch, certain: a copy of each packet leaves by x0, ...",
    ),
    **{
        f"a port of type {port_type} in a datapath {datapath}": (
            case(IN_SOFTWARE, seen=host(datapath=datapath, port_type=port_type, offload=OFF, config={})),
            f"software-datapath, certain: ...[bridge ovsbr1: datapath_type={datapath}; interface p0: type={port_type}]",
        )
        for datapath, port_type in (("netdev", "system"), ("dummy", "dummy"), ("netdev", "tap"))
    },
    **{
        f"hw-offload-priority={priority}": (
            case(IN_SOFTWARE, seen=_of_3_7(priority)),
            f"port-without-provider, certain: ...hw-offload-priority={priority}, ...] -> {BY_INTERFACE} -> {RESTART}",
        )
        for priority in ("none", "dpdk", "dpdk,none,tc")
    },
    "an output port that is set to none": (
        case(IN_SOFTWARE, seen=_of_3_7("none", port="p1", lacks="p1")),
        "egress-not-on-eswitch, certain: ...[Interface p1:...",
    ),
    "no provider in 3.7": (
        case(IN_SOFTWARE, seen=_of_3_7(None)),
        "port-without-provider, certain: Open vSwitch found no offload provider for port p0 [`dpif/offload/show`...",
    ),
    "3.6 does not read hw-offload-priority": (
        case(IN_SOFTWARE, seen=_of_3_7("none", version="3.6.1")),
        "port-without-provider, certain: Open vSwitch found no offload provider for port p0 [the log has no line...",
    ),
}


@pytest.mark.parametrize(("found", "wanted"), REASONS.values(), ids=REASONS)
def test_a_setting_that_is_the_reason(found: Case, wanted: str) -> None:
    assert_shown(shown(setting_reasons(found)), wanted)


NO_REASON = {
    "a host that offloads": case(IN_SOFTWARE),
    "it offloads to tc": case(IN_TC),
    "it still offloads, whatever is set": case(seen=host(config={"hw-offload": "false"})),
    "skip_hw not in use yet": case(seen=host(config={"hw-offload": "true", "tc-policy": "skip_hw"})),
    "skip_sw with a rule in tc": case(seen=_with_policy("skip_sw")),
    "a log that does not reach back": case(IN_SOFTWARE, seen=_without_p0(is_complete=False)),
    "megaflows in hardware, whatever sysfs shows": case(
        evidence=Evidence(
            host(devices=NO_ESWITCH), in_hardware=frozenset((shape_of(megaflow("offloaded:yes, dp:tc")),))
        )
    ),
    # Bug: with OVN it was the first reason of each tunnel, marked as certain, and wrong.
    "a device of tunnels, whose rules drivers take": case(FROM_TUNNEL, seen=WITH_GENEVE),
    "into a tunnel": case(INTO_TUNNEL, seen=WITH_GENEVE),
    "dpdk": case(IN_SOFTWARE, seen=host(datapath="netdev", port_type="dpdk")),
    "doca": case(IN_SOFTWARE, seen=host(datapath="netdev", port_type="doca")),
    "hw-offload-priority not in effect yet": case(IN_SOFTWARE, seen=_of_3_7("none", lacks=None)),
}


@pytest.mark.parametrize("found", NO_REASON.values(), ids=NO_REASON)
def test_a_setting_that_is_no_reason(found: Case) -> None:
    assert list(setting_reasons(found)) == []
