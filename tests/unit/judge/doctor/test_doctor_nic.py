"""Checks of the ports, of the NIC's switch and of the kernel: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import (
    BRIDGE,
    DAEMON,
    DATABASE,
    DEVICES,
    GOOD,
    HISTORY,
    HOST,
    PCI,
    Check,
    Table,
    as_params,
    assert_row,
    device,
    interface,
    states,
    with_bridge,
    with_daemon,
    with_database,
    with_device,
    with_facts,
    with_history,
    with_host,
    with_wanted,
)
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Device, Eswitch, Feature, KernelFacts, OffloadState, Subfunction, TcRules
from xenoovs.datapath.tunnel_facts import TunnelFacts, tunnel_ends
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import nic
from xenoovs.judge.doctor.check import CheckState, DoctorCase

SILENT = Unknown("devlink is not installed")
OFF = OffloadState(is_on=False, evidence="-")
STALE = with_host(daemon=Unknown("no process listens there"))
USERSPACE = with_bridge(datapath_type="netdev")
ALL = dict.fromkeys(nic.TC_MODULES, True)


def _bridges(*ports: PortState, other: tuple[PortState, ...] = ()) -> DoctorCase:
    """ovsbr1 with these ports, and ovsbr2: images of BlueField have one for each uplink."""
    return with_database(bridges=(replace(BRIDGE, ports=ports), BridgeState("ovsbr2", ports=other)))


def _mistyped() -> DoctorCase:
    """The config names p0, and the host has p9."""
    devices = {name: found for name, found in DEVICES.items() if name != "p0"}
    return with_facts(with_bridge(ports=(interface("p9", 9),)), devices=devices)


def _with_priority(value: str | None, providers: dict[str, str], version: str = "3.7.0") -> DoctorCase:
    ports = tuple(replace(port, offload_priority=value) if port.name == "p0" else port for port in BRIDGE.ports)
    daemon = replace(DAEMON, version=version, history=replace(HISTORY, providers=providers))
    return with_facts(with_bridge(ports=ports), daemon=daemon)


def _eswitch(mode: Any = "switchdev", steering: Any = "smfs", multiport: Any = True) -> DoctorCase:
    return with_host(eswitches=(Eswitch(PCI, mode, steering, multiport),))


def _busy() -> DoctorCase:
    """devlink answers `Can't change mode, E-Switch is busy`."""
    devices = {"p0": device("p0", "p0"), "p1": device("p1", "p1", rules=TcRules(total=0))}
    return with_facts(_eswitch("legacy"), devices=devices)


def _subfunction(state: str, opstate: str) -> DoctorCase:
    return with_device("p1", subfunction=Subfunction("pci/0000:03:00.0/229408", state, opstate))


def _dpdk_mtu() -> DoctorCase:
    """That of DPDK ports comes from Open vSwitch."""
    ports = (interface("p0", 1, type="dpdk", mtu=9000), interface("p1", 2, type="dpdk"))
    return with_facts(with_bridge(datapath_type="netdev", ports=ports), devices={})


def _kernel(modules: Any, release: str = "6.1") -> DoctorCase:
    return with_host(kernel=KernelFacts(release, modules, 0))


def _lacks_flower(release: str) -> DoctorCase:
    return _kernel(ALL | {"cls_flower": False}, release)


ROWS: Table = {
    (nic.check_works, "p0"): {
        "it works": (GOOD, "ok: OpenFlow port 1"),
        "an error": (with_bridge(ports=(interface("p0", None, error="could not open network device p0"),)), "wrong..."),
        "no number": (with_bridge(ports=(interface("p0", None),)), "wrong: has no OpenFlow number"),
        "ovs-vswitchd is dead": (STALE, "unknown: OpenFlow port 1, as ovs-vswitchd last reported"),
    },
    (nic.check_up, "p0"): {
        "up": (GOOD, "ok: link up"),
        "set down": (with_device("p0", is_up=False), "wrong: set down -> ip link set dev p0 up"),
        "no cable": (with_bridge(ports=(interface("p0", 1, link_up=False),)), "wrong: no link: check the cable..."),
        "unknown": (with_bridge(ports=(interface("p0", 1, link_up=None),)), "unknown: Open vSwitch reports no..."),
        "ovs-vswitchd is dead": (STALE, "unknown: link up, as ovs-vswitchd last reported"),
    },
    (nic.check_on_bridge, "p0"): {
        "it is there": (GOOD, "ok: on ovsbr1"),
        "on none": (with_bridge(ports=()), "wrong: on no bridge -> ovs-vsctl add-port ovsbr1 p0"),
        "mistyped": (_mistyped(), "wrong: on no bridge, and this host has no such device; ovsbr1 has p9"),
    },
    (nic.check_on_bridge, "p1"): {
        "on another": (
            _bridges(interface("p0", 1), other=(interface("p1", 1),)),
            "wrong: on bridge ovsbr2, not on ovsbr1 -> ovs-vsctl del-port ovsbr2 p1 -- add-port ovsbr1 p1",
        ),
        "with its type": (
            _bridges(other=(interface("p1", 1, type="dpdk"),)),
            "wrong: on...-> ovs-vsctl del-port ovsbr2 p1 -- add-port ovsbr1 p1 -- set Interface p1 type=dpdk",
        ),
    },
    (nic.check_provider, "p0"): {
        "tc": (GOOD, "ok: tc"),
        "none": (with_history(providers={}), "wrong: none was assigned"),
        "failed": (with_history(providers={}, failures={"p0": "no ifindex"}), "wrong: no ifindex"),
        "dummy": (with_history(providers={"p0": "dummy"}), "wrong: dummy: for tests, without hardware"),
        "short log": (
            with_history(providers={}, is_complete=False),
            "unknown: the log does not reach back to the start of ovs-vswitchd",
        ),
        "no log": (with_daemon(history=Unknown("it writes no log")), "unknown: it writes no log"),
        # A veth of a userspace bridge was reported as ok: it has the provider, which gets none of its flows.
        "userspace bridge": (USERSPACE, "wrong: tc, which gets no flows of a bridge with datapath netdev"),
        "set to none": (
            _with_priority("none", {"p1": "tc"}),
            "wrong: none:...-> ovs-vsctl remove Interface p0 other_config hw-offload-priority && "
            "xenoovs doctor --fix --restart-ovs",
        ),
        "none is the last": (_with_priority("tc,none", {"p0": "tc"}), "ok: tc"),
        "none after a restart": (
            _with_priority("dpdk", {"p0": "tc"}),
            "wrong: tc; after a...-> ovs-vsctl remove Interface p0 other_config hw-offload-priority && "
            "xenoovs doctor --fix --restart-ovs",
        ),
        "set too early": (_with_priority("none", {"p0": "linux_tc"}, "3.6.1"), "ok: tc"),
    },
    (nic.check_hw_tc_offload, "p0"): {
        "on": (GOOD, "ok: on"),
        "off": (
            with_device("p0", hw_tc_offload=Feature(is_on=False)),
            "wrong: off => ethtool -K p0 hw-tc-offload on && ovs-appctl revalidator/purge",
        ),
        "fixed": (
            with_device("p0", hw_tc_offload=Feature(is_on=False, is_fixed=True)),
            "wrong: off, and fixed: the device is no port of a NIC with TC offload, or not in switchdev mode",
        ),
        "no ethtool": (with_device("p0", hw_tc_offload=Unknown("ethtool is not installed")), "unknown: ethtool is..."),
        "no devices": (with_host(devices=Unknown("on another host")), "unknown: on another host"),
    },
    (nic.check_ingress_qdisc, "p0"): {
        "there": (GOOD, "ok: present"),
        "lost": (
            with_device("p0", ingress=False),
            "wrong: missing: another program removed it => tc qdisc add dev p0 ingress && ovs-appctl revalidator/purge",
        ),
        "of a port of the kernel datapath": (
            with_device("p0", ingress=False, master="ovs-system"),
            "wrong: missing: another program removed it => tc qdisc add dev p0 ingress && ovs-appctl revalidator/purge",
        ),
        "of a bond, whose block is shared": (
            with_device("p0", ingress=False, master="bond0"),
            "wrong: missing: another program removed it -> xenoovs doctor --fix --restart-ovs",
        ),
        "before offload begins": (
            with_facts(with_device("p0", ingress=False), daemon=replace(DAEMON, offload=OFF)),
            "unknown: missing; Open vSwitch creates it when offload begins",
        ),
        "no tc": (with_device("p0", ingress=Unknown("tc is not installed")), "unknown: tc is not installed"),
        "no devices": (with_host(devices=Unknown("on another host")), "unknown: on another host"),
    },
    (nic.check_tc_rules, "p0"): {
        "of megaflows": (with_device("p0", rules=TcRules(7)), "ok: 7, each of a megaflow"),
        "stale": (with_device("p0", rules=TcRules(7, stale=2, foreign=1)), "wrong: 2 of 7 are of..."),
        "foreign": (with_device("p0", rules=TcRules(7, foreign=1)), "unknown: 1 of 7 are of other programs -> tc..."),
        "no tc": (with_device("p0", rules=Unknown("tc is not installed")), "unknown: tc is not installed"),
    },
    (nic.check_same_eswitch, None): {
        "one": (GOOD, "ok: all ports on a2084c0003ebc008"),
        "a port of none": (with_device("p1", switch_id=None), "wrong: not on an eSwitch: no NIC in switchdev mo..."),
        "two": (with_device("p1", switch_id="ffff"), "wrong: 2 different ones: p0, p1"),
        "no device": (with_host(devices={"p0": DEVICES["p0"]}), "unknown: p1: the kernel has no device p1"),
    },
    (nic.check_eswitch_mode, None): {
        "switchdev": (_eswitch(), "ok: switchdev"),
        "legacy": (_eswitch("legacy"), "wrong: legacy; rules at p0, p1 are in the way: `E-Switch is busy` ->..."),
        "rules in the way": (
            _busy(),
            "wrong: legacy; rules at p0 are in the way: `E-Switch is busy` -> systemctl stop openvswitch-switch && "
            "tc filter del dev p0 ingress && devlink dev eswitch set pci/0000:03:00.0 mode switchdev",
        ),
        "no devlink": (_eswitch(SILENT), "unknown: devlink is not installed"),
        "not shown": (with_host(eswitches=()), "unknown: devlink does not know it"),
    },
    (nic.check_steering, None): {
        "smfs": (_eswitch(), "ok: smfs"),
        "dmfs": (_eswitch(steering="dmfs"), "ok: dmfs"),
        "no devlink": (_eswitch(steering=SILENT), "unknown: devlink is not installed"),
    },
    (nic.check_multiport, None): {
        "on": (_eswitch(), "ok: on"),
        "off": (_eswitch(multiport=False), "wrong: off -> devlink dev param set pci/0000:03:00.0 name..."),
        "no devlink": (_eswitch(multiport=SILENT), "unknown: devlink is not installed"),
    },
    (nic.check_mtu, "p1"): {
        "equal": (GOOD, "ok: 1500, at least 1500"),
        "below the uplink": (with_device("p0", mtu=9000), "wrong: 1500, below 9000 -> ip link set dev p1 mtu 9000"),
        "above it": (with_device("p1", mtu=9000), "ok: 9000, at least 1500"),
        "of DPDK": (_dpdk_mtu(), "wrong: 1500, below 9000 -> ovs-vsctl set Interface p1 mtu_request=9000"),
    },
    (nic.check_mtu, "pf0hpf"): {
        "below the widest uplink": (
            replace(with_device("p0", mtu=9000), required=None),
            "wrong: 1500, below 9000 -> ip link set dev pf0hpf mtu 9000",
        ),
    },
    (nic.check_subfunction, "p1"): {
        "attached": (_subfunction("active", "attached"), "ok: active, attached"),
        "inactive": (
            _subfunction("inactive", "detached"),
            "wrong: inactive, detached -> devlink port function set pci/0000:03:00.0/229408 state active",
        ),
        "detached": (_subfunction("active", "detached"), "wrong: active, detached -> devlink port function set..."),
    },
    (nic.check_modules, None): {
        "all": (_kernel(ALL), "ok: cls_flower, act_mirred, act_pedit, act_csum, sch_ingress"),
        "one is missing": (_kernel(ALL | {"cls_flower": False}), "wrong: kernel 6.1 lacks cls_flower"),
        "not found out": (
            _kernel({"cls_flower": True}),
            "unknown: unknown whether the kernel has act_mirred, act_pedit, act_csum, sch_ingress",
        ),
        "no list": (_kernel(Unknown("no /proc/modules")), "unknown: no /proc/modules"),
        # Bug: Debian has no package of further modules.
        "of Ubuntu": (
            _lacks_flower("6.8.0-45-generic"),
            "wrong: kernel 6.8.0-45-generic lacks cls_flower -> apt-get install linux-modules-extra-6.8.0-45-generic",
        ),
        "of Debian": (
            _lacks_flower("6.1.0-26-amd64"),
            "wrong: kernel 6.1.0-26-amd64 lacks cls_flower -> apt-get install --reinstall linux-image-6.1.0-26-amd64",
        ),
        "of a cloud": (
            _lacks_flower("6.1.0-26-cloud-arm64"),
            "wrong: kernel 6.1.0-26-cloud-arm64 lacks cls_flower -> apt-get install linux-image-arm64 && reboot",
        ),
        "of Red Hat": (_lacks_flower("5.14.0-427.el9.x86_64"), "wrong: kernel 5.14.0-427.el9.x86_64 lacks cls_flower"),
    },
}


@pytest.mark.parametrize(("check", "subject", "case", "row"), as_params(ROWS))
def test_the_row_of_a_check(check: Check, subject: str | None, case: DoctorCase, row: str) -> None:
    assert_row(check, subject, case, row)


OF_TC = (nic.check_hw_tc_offload, nic.check_ingress_qdisc, nic.check_modules)


@pytest.mark.parametrize(
    ("case", "checks"),
    [
        (USERSPACE, OF_TC),
        (with_daemon(offload=OFF, history=replace(HISTORY, providers={})), (nic.check_provider,)),
        (with_wanted(egress=("pf0hpf",)), (nic.check_multiport,)),
    ],
    ids=["tc in userspace", "a provider while offload is off", "multiport from wire to host"],
)
def test_what_does_not_matter_has_no_row(case: DoctorCase, checks: tuple[Check, ...]) -> None:
    assert [row for check in checks for row in check(case)] == []


def test_without_a_config_internal_ports_are_left_out() -> None:
    ports = (*BRIDGE.ports, interface("ovsbr1", 65534, type="internal"))
    case = replace(with_bridge(ports=ports), required=None)
    assert list(states(nic.check_works, case)) == ["p0", "p1", "pf0hpf"]


def test_a_port_without_the_qdisc_has_no_rules_to_judge() -> None:
    assert list(states(nic.check_tc_rules, with_device("p0", ingress=False))) == ["p1"]


def test_only_the_egress_port_needs_the_mtu() -> None:
    assert states(nic.check_mtu, with_device("p0", mtu=9000)) == {"p0": CheckState.OK, "p1": CheckState.WRONG}


def test_bug_a_tunnel_port_that_shares_its_device_had_no_provider() -> None:
    """Open vSwitch assigns one to the first port of a device; the flows of all of them are offered to hardware."""
    remotes = {"gnv0": "192.0.2.11", "gnv1-c000020c": "192.0.2.12", "vx0": "192.0.2.13"}
    kinds = {port: "vxlan" if port == "vx0" else "geneve" for port in remotes}
    ports = tuple(PortState(port, ofport=5, type=kinds[port], options={"remote_ip": remotes[port]}) for port in remotes)
    bridge = replace(BRIDGE, ports=(*BRIDGE.ports, *ports))
    daemon = replace(DAEMON, history=replace(HISTORY, providers={**HISTORY.providers, "gnv0": "linux_tc"}))
    facts = TunnelFacts(tuple(tunnel_ends(bridge, {})))
    host = replace(HOST, database=replace(DATABASE, bridges=(bridge,)), daemon=daemon, tunnels=facts)
    found = {row.subject: (row.state, row.seen) for row in nic.check_provider(DoctorCase(Evidence(host)))}
    assert found["gnv1-c000020c"] == (CheckState.OK, "that of gnv0, with which it shares a device")
    assert found["vx0"] == (CheckState.WRONG, "none was assigned")


@pytest.mark.parametrize(
    ("port_name", "is_uplink", "is_representor"),
    [
        ("p0", True, False),
        ("p1", True, False),
        ("pf0", False, True),
        ("pf0vf1", False, True),
        ("c1pf0sf88", False, True),
        (None, False, False),
    ],
)
def test_names_of_uplinks_and_representors(port_name: str | None, is_uplink: bool, is_representor: bool) -> None:
    found = Device("x", is_up=True, mtu=1500, port_name=port_name)
    assert (found.is_uplink, found.is_representor) == (is_uplink, is_representor)
