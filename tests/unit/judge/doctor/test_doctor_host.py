"""All checks together, of hosts with one fault each: tests/golden/doctor has the rows that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.judged import assert_recorded
from tests.unit.judge.doctor.facts import (
    BRIDGE,
    DAEMON,
    DATABASE,
    DEVICES,
    GOOD,
    HISTORY,
    HOST,
    PCI,
    WANTED,
    changes_of,
    device,
    interface,
)
from xenoovs.datapath.database import BridgeState, Controller, Database, Mirror, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import (
    BackendFacts,
    Bgp,
    Device,
    Eswitch,
    Feature,
    KernelFacts,
    OffloadState,
    Subfunction,
    TcRules,
)
from xenoovs.datapath.tunnel_facts import Neighbour, TunnelFacts, tunnel_ends
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import doca
from xenoovs.judge.doctor.check import CheckState, DoctorCase, RequiredBackend
from xenoovs.judge.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine, has_wrong, safe_fixes
from xenoovs.judge.doctor.foreign_flows import ForeignCost, ForeignFlows
from xenoovs.judge.doctor.nic import TC_MODULES

OFF = OffloadState(is_on=False, evidence="refused")
MASTER = Controller("tcp:192.0.2.1:6653", is_connected=True, role="master")
SLAVE = Controller("tcp:192.0.2.2:6653", is_connected=True, role="slave")
SILENT = Controller("tcp:192.0.2.3:6653")
EQUAL = Controller("tcp:192.0.2.4:6653", is_connected=True, role="other")
DPDK_PORTS = (interface("p0", 1, type="dpdk", mtu=9000), interface("p1", 2, type="doca"))
COST = ForeignCost(packets=100, entries=9, entries_with_foreign=9, overridden=0)
DEAR = replace(COST, entries_with_foreign=46)
NO_DEVLINK = Unknown("devlink is not installed")
NO_TC = Unknown("tc is not installed")


def with_host(**changes: Any) -> DoctorCase:
    return replace(GOOD, evidence=Evidence(replace(HOST, **changes)))


def with_database(**changes: Any) -> DoctorCase:
    return with_host(database=replace(DATABASE, **changes))


def with_config(**settings: str) -> DoctorCase:
    """Keys with `_` for `-`, added to hw-offload=true."""
    return with_database(config={"hw-offload": "true"} | {k.replace("_", "-"): v for k, v in settings.items()})


def with_daemon(**changes: Any) -> DoctorCase:
    return with_host(daemon=replace(DAEMON, **changes))


def with_bridge(**changes: Any) -> DoctorCase:
    return with_database(bridges=(replace(BRIDGE, **changes),))


def with_device(name: str, **changes: Any) -> DoctorCase:
    return with_host(devices=DEVICES | {name: replace(DEVICES[name], **changes)})


def with_wanted(**changes: Any) -> DoctorCase:
    return replace(GOOD, required=replace(WANTED, **changes))


def with_history(**changes: Any) -> DoctorCase:
    return with_daemon(history=replace(HISTORY, **changes))


def with_facts(case: DoctorCase, **changes: Any) -> DoctorCase:
    """The case with other facts of its host."""
    return replace(case, evidence=replace(case.evidence, host=replace(case.host, **changes)))


def _policy(setting: str, used: str | None, **daemon: Any) -> DoctorCase:
    """Set in the database, and in use."""
    history = replace(HISTORY, tc_policy=used)
    return with_facts(with_config(tc_policy=setting), daemon=replace(DAEMON, history=history, **daemon))


def _providers(value: str, version: str) -> DoctorCase:
    database = replace(DATABASE, config={**DATABASE.config, "hw-offload-priority": value})
    return with_host(database=database, daemon=replace(DAEMON, version=version))


def _foreign(**found: Any) -> DoctorCase:
    flow = "priority=2000,ip,nw_src=203.0.113.9 actions=drop"
    return with_wanted(foreign=ForeignFlows((flow,), **found))


def _mirror(**mirror: Any) -> DoctorCase:
    x0 = replace(DEVICES["p1"], name="x0", switch_id=None)
    return with_facts(with_bridge(mirrors=(Mirror("m", **mirror),)), devices={**DEVICES, "x0": x0})


def _bridges(*ports: PortState, other: tuple[PortState, ...] = ()) -> DoctorCase:
    """ovsbr1 with these ports, and ovsbr2: images of BlueField have one for each uplink."""
    return with_database(bridges=(replace(BRIDGE, ports=ports), BridgeState("ovsbr2", ports=other)))


def _mistyped() -> DoctorCase:
    """The config names p0, and the host has p9."""
    devices = {name: found for name, found in DEVICES.items() if name != "p0"}
    return with_facts(with_bridge(ports=(interface("p9", 9),)), devices=devices)


def _with_p0(ofport: int | None, **changes: Any) -> DoctorCase:
    return with_bridge(ports=(interface("p0", ofport, **changes), *BRIDGE.ports[1:]))


def _with_priority(value: str | None, providers: dict[str, str], version: str = "3.7.0") -> DoctorCase:
    ports = tuple(replace(port, offload_priority=value) if port.name == "p0" else port for port in BRIDGE.ports)
    daemon = replace(DAEMON, version=version, history=replace(HISTORY, providers=providers))
    return with_facts(with_bridge(ports=ports), daemon=daemon)


def _eswitch(mode: Any = "switchdev", steering: Any = "smfs", multiport: Any = True) -> DoctorCase:
    return with_host(eswitches=(Eswitch(PCI, mode, steering, multiport),))


def _subfunction(state: str, opstate: str) -> DoctorCase:
    return with_device("p1", subfunction=Subfunction("pci/0000:03:00.0/229408", state, opstate))


def _kernel(modules: Any, release: str = "6.1") -> DoctorCase:
    return with_host(kernel=KernelFacts(release, modules, 0))


def _lacks_flower(release: str) -> DoctorCase:
    return _kernel(dict.fromkeys(TC_MODULES, True) | {"cls_flower": False}, release)


def _shared_device() -> DoctorCase:
    """Open vSwitch assigns a provider to the first port of a device; the flows of all of them are offered to it."""
    remotes = {"gnv0": "192.0.2.11", "gnv1-c000020c": "192.0.2.12", "vx0": "192.0.2.13"}
    kinds = {port: "vxlan" if port == "vx0" else "geneve" for port in remotes}
    ports = tuple(PortState(port, ofport=5, type=kinds[port], options={"remote_ip": remotes[port]}) for port in remotes)
    bridge = replace(BRIDGE, ports=(*BRIDGE.ports, *ports))
    history = replace(HISTORY, providers={**HISTORY.providers, "gnv0": "linux_tc"})
    facts = TunnelFacts(tuple(tunnel_ends(bridge, {})))
    case = with_facts(with_bridge(ports=bridge.ports), daemon=replace(DAEMON, history=history), tunnels=facts)
    return replace(case, required=None)


HOSTS: dict[str, DoctorCase] = {
    "no database": with_host(database=Unknown("connection refused")),
    "no ovs-vswitchd": with_host(daemon=Unknown("no process listens there")),
    "ovs-vswitchd elsewhere": with_host(daemon=Unknown("on another host"), is_local=False),
    "the database alone is read": with_host(
        daemon=Unknown("no"), devices=Unknown("no"), eswitches=(), kernel=Unknown("no")
    ),
    "NVIDIA's build": with_daemon(version="2.17.8+nvidia"),
    "DOCA": with_database(doca_initialized=True, doca_version="3.3.0040", config={"doca-init": "true"}),
    "DOCA, not in use": with_database(datapath_types=("doca",)),
    "DOCA failed": with_database(doca_initialized=False, config={"doca-init": "true"}),
    "hw-offload is false": with_database(config={"hw-offload": "false"}),
    "hw-offload is not set": with_database(config={}),
    "offload waits for a restart": with_daemon(offload=OFF),
    "offload unknown": with_daemon(offload=Unknown("no log")),
    "off as set": with_facts(with_database(config={}), daemon=replace(DAEMON, offload=OFF)),
    # With OVS up to 3.6, hw-offload that was set on a running ovs-vswitchd was reported as ok.
    "offload began late": with_history(had_ports_before=True),
    "tc-policy skip_sw": _policy("skip_sw", "skip_sw"),
    "tc-policy skip_hw": _policy("skip_hw", "skip_hw"),
    "tc-policy skip_hw, use unknown": _policy("skip_hw", None),
    "tc-policy skip_hw, not yet": _policy("skip_hw", "none"),
    "tc-policy skip_hw until a restart": _policy("none", "skip_hw"),
    "tc-policy none, use unknown": _policy("none", None),
    "tc-policy skip_sw, not yet": _policy("skip_sw", "none"),
    "tc-policy skip_hw before offload begins": _policy("skip_hw", None, offload=OFF),
    "tc-policy left over from the start": with_history(tc_policy="skip_hw"),
    "hw-offload-priority": _providers("dpdk,tc", "4.0.0"),
    "hw-offload-priority mistyped": _providers("tc,dppk", "4.0.0"),
    "hw-offload-priority none": _providers("none", "4.0.0"),
    "hw-offload-priority before 3.7": _providers("tc", "3.5.0"),
    "max-idle 20000": with_config(max_idle="20000"),
    "max-idle as counters are late": with_config(max_idle="2500"),
    "max-idle a millisecond more": with_config(max_idle="2501"),
    "max-idle below later counters": with_config(offloaded_stats_delay="10000"),
    "max-idle no number": with_config(max_idle="many"),
    "max-revalidator below max-idle": with_config(max_revalidator="9999"),
    "max-revalidator as max-idle": with_config(max_revalidator="10000"),
    "flow-limit: more needed than now": with_wanted(entries=12_000),
    "flow-limit: too many needed": with_wanted(entries=200_000),
    "flow-limit: now unknown": with_daemon(flow_limit=Unknown("-")),
    "flow-limit set lower": with_config(flow_limit="5"),
    "a killed run left log levels": with_host(leftovers=("log levels",)),
    "vlan-limit 0": with_config(vlan_limit="0"),
    "vlan-limit 1": with_config(vlan_limit="1"),
    "vlan-limit 2": with_config(vlan_limit="2"),
    "a restart was cut off": with_config(flow_restore_wait="true"),
    "no such bridge": with_wanted(bridge="ovsbr9"),
    "datapath dummy": with_bridge(datapath_type="dummy"),
    # A veth of a userspace bridge was reported as ok: it has the provider, which gets none of its flows.
    "userspace without DPDK": with_bridge(datapath_type="netdev"),
    "DPDK": with_facts(with_bridge(datapath_type="netdev", ports=DPDK_PORTS), devices={}),
    "a controller": with_bridge(controllers=(MASTER,)),
    "of two controllers one may write": with_bridge(controllers=(MASTER, SLAVE)),
    "of two controllers one is silent": with_bridge(controllers=(MASTER, SILENT)),
    "two controllers may write": with_bridge(controllers=(MASTER, EQUAL)),
    "standalone": with_bridge(fail_mode="standalone"),
    "standalone with a controller": with_bridge(fail_mode="standalone", controllers=(MASTER,)),
    "foreign flows elsewhere": with_wanted(foreign=ForeignFlows(others=3)),
    "a harmless foreign flow": _foreign(cost=COST),
    "a foreign flow un-wildcards": _foreign(cost=DEAR),
    "a foreign flow overrides": _foreign(cost=replace(COST, overridden=1)),
    "a foreign flow does both": _foreign(cost=replace(DEAR, overridden=2)),
    "a foreign flow takes all": _foreign(cost=Unknown("ct() is not simulated"), taken=("dns",)),
    "a foreign flow is not simulated": _foreign(cost=Unknown("ct_state cannot be simulated")),
    "a foreign flow differs between clients": _foreign(cost=Unknown("nw_tos cannot be simulated"), varying=("nw_tos",)),
    "foreign flows not read": with_wanted(foreign=Unknown("permission denied")),
    "foreign flows name a port that is gone": with_wanted(foreign=ForeignFlows(others=2, gone=("9",))),
    # All rows were ok while all blocks were in software.
    **{f"exporter {name}": with_bridge(exporters=(name,)) for name in ("sflow", "ipfix", "netflow")},
    "mirror on the eSwitch": _mirror(output="p1"),
    "mirror not on it": _mirror(output="x0"),
    "mirror to a port that is gone": _mirror(output="gone"),
    "mirror shortened": _mirror(output="p1", snaplen=64),
    "mirror to a VLAN": _mirror(output_vlan=7),
    "p0 has an error": _with_p0(None, error="could not open network device p0"),
    "p0 has no number": _with_p0(None),
    "p0 is set down": with_device("p0", is_up=False),
    "p0 has no cable": _with_p0(1, link_up=False),
    "the link of p0 is unknown": _with_p0(1, link_up=None),
    "ports on no bridge": with_bridge(ports=()),
    "p0 mistyped": _mistyped(),
    "p1 on another bridge": _bridges(interface("p0", 1), other=(interface("p1", 1),)),
    "p1 on another bridge with its type": _bridges(other=(interface("p1", 1, type="dpdk"),)),
    "no provider": with_history(providers={}),
    "no provider while offload is off": with_daemon(offload=OFF, history=replace(HISTORY, providers={})),
    "provider failed": with_history(providers={}, failures={"p0": "no ifindex"}),
    "provider dummy": with_history(providers={"p0": "dummy"}),
    "provider behind a short log": with_history(providers={}, is_complete=False),
    "provider without a log": with_daemon(history=Unknown("it writes no log")),
    "provider set to none": _with_priority("none", {"p1": "tc"}),
    "provider: none is the last": _with_priority("tc,none", {"p0": "tc"}),
    "provider: none after a restart": _with_priority("dpdk", {"p0": "tc"}),
    "provider set before 3.7": _with_priority("none", {"p0": "linux_tc"}, "3.6.1"),
    # Bug: such a port had no provider.
    "tunnel ports that share a device": _shared_device(),
    "hw-tc-offload off": with_device("p0", hw_tc_offload=Feature(is_on=False)),
    "hw-tc-offload fixed": with_device("p0", hw_tc_offload=Feature(is_on=False, is_fixed=True)),
    "no ethtool": with_device("p0", hw_tc_offload=Unknown("ethtool is not installed")),
    "no devices": with_host(devices=Unknown("on another host")),
    "qdisc lost": with_device("p0", ingress=False),
    "qdisc lost at a port of the kernel datapath": with_device("p0", ingress=False, master="ovs-system"),
    "qdisc lost at a bond, whose block is shared": with_device("p0", ingress=False, master="bond0"),
    "no qdisc before offload begins": with_facts(with_device("p0", ingress=False), daemon=replace(DAEMON, offload=OFF)),
    "no tc": with_device("p0", ingress=NO_TC, rules=NO_TC),
    "rules not read": with_device("p0", rules=NO_TC),
    "stale rules": with_device("p0", rules=TcRules(7, stale=2, foreign=1)),
    "foreign rules": with_device("p0", rules=TcRules(7, foreign=1)),
    "p1 on no eSwitch": with_device("p1", switch_id=None),
    "p1 on another eSwitch": with_device("p1", switch_id="ffff"),
    "no p1 in the kernel": with_host(devices={"p0": DEVICES["p0"]}),
    "eSwitch legacy": _eswitch("legacy"),
    # devlink answers `Can't change mode, E-Switch is busy`.
    "eSwitch legacy, rules at p0 alone": with_facts(
        _eswitch("legacy"),
        devices={"p0": device("p0", "p0"), "p1": device("p1", "p1", rules=TcRules(total=0))},
    ),
    "eSwitch not shown": with_host(eswitches=()),
    "steering dmfs": _eswitch(steering="dmfs"),
    "multiport off": _eswitch(multiport=False),
    "no devlink": _eswitch(NO_DEVLINK, NO_DEVLINK, NO_DEVLINK),
    "multiport from wire to host": with_wanted(egress=("pf0hpf",)),
    "MTU below the uplink": with_device("p0", mtu=9000),
    "MTU above it": with_device("p1", mtu=9000),
    "subfunction active": _subfunction("active", "attached"),
    "subfunction inactive": _subfunction("inactive", "detached"),
    "subfunction detached": _subfunction("active", "detached"),
    "kernel modules not found out": _kernel({"cls_flower": True}),
    "kernel without a list of modules": _kernel(Unknown("no /proc/modules")),
    # Bug: Debian has no package of further modules.
    **{
        f"no cls_flower in {release}": _lacks_flower(release)
        for release in ("6.8.0-45-generic", "6.1.0-26-amd64", "6.1.0-26-cloud-arm64", "5.14.0-427.el9.x86_64")
    },
    "no config, two bridges, an internal port": replace(
        with_database(
            bridges=(
                replace(BRIDGE, ports=(*BRIDGE.ports, interface("ovsbr1", 65534, type="internal"))),
                BridgeState("ovsbr2", datapath_type="netdev", fail_mode="secure"),
            )
        ),
        required=None,
    ),
    "no config, MTU below the widest uplink": replace(with_device("p0", mtu=9000), required=None),
    **{
        f"BGP: {title}": with_facts(GOOD, bgp=bgp)
        for title, bgp in {
            "one session of two": Bgp(established=("192.0.2.9",), others=("192.0.2.10",)),
            "no session": Bgp(others=("192.0.2.9",)),
            "no neighbor": Bgp(refused=("10.3.10.45", "2001:db8::1")),
            "not read": Unknown("vtysh is not installed"),
        }.items()
    },
}


def _line(actions: str, *, in_port: str = "p0", layer: str = "dp:ovs", family: str = "eth_type(0x86dd),ipv6") -> str:
    return (
        f"ufid:43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32, recirc_id(0),dp_hash(0/0),in_port({in_port}),eth(),{family}"
        f"(frag=no), packets:3, bytes:294, used:1.301s, {layer}, actions:{actions}"
    )


PLAIN, TRACKS = _line("p1"), _line("ct(commit),recirc(0x1)")
HASHES, METERED = _line("hash(l4(0)),recirc(0x2)"), _line("meter(0),pf0hpf")
GONE = (PLAIN, _line("p1", in_port="7", layer="offloaded:yes, dp:doca"), _line("7"), "no megaflow")


def _doca(
    *lines: str,
    config: dict[str, str] | None = None,
    release: str | None = "3.2.1",
    is_fork: bool = True,
    pages: Any = 512,
    device_id: str | None = None,
    exporters: tuple[str, ...] = (),
) -> DoctorCase:
    """A host of OVS-DOCA, or of DPDK without the fork, with a dump of these lines and huge pages of 2 MiB."""
    ports = (interface("p0", 1, type="dpdk"), interface("p1", 2, type="dpdk"))
    bridge = replace(BRIDGE, datapath_type="netdev", ports=ports, exporters=exporters)
    database = Database(
        config or {"hw-offload": "true"},
        (bridge,),
        doca_initialized=is_fork or None,
        doca_version=release if is_fork else None,
    )
    kernel = KernelFacts("6.1", {}, pages if isinstance(pages, Unknown) else pages << 21)
    eswitches = (Eswitch(PCI, "switchdev", "smfs", multiport=True, device_id=device_id),)
    host = replace(HOST, database=database, kernel=kernel, eswitches=eswitches)
    return DoctorCase(Evidence(host, lines))


NO_CT = {"hw-offload": "true", "hw-offload-ct-size": "0"}
DOCA: dict[str, DoctorCase] = {
    "connections": _doca(TRACKS, TRACKS),
    "connections, but none are offloaded": _doca(TRACKS, config=NO_CT),
    "hashes": _doca(HASHES),
    "hashes instead of connections": _doca(HASHES, config=NO_CT),
    "connections and hashes": _doca(TRACKS, HASHES),
    "hashes without DOCA": _doca(HASHES, is_fork=False),
    # 6,144 MiB were demanded of all; images of BlueField-3 reserve 1,024, those of BlueField-4 4,096.
    "one huge page too few": _doca(pages=511),
    "huge pages of BlueField-4": _doca(pages=2048, device_id=doca.BLUEFIELD_4),
    "half the huge pages of BlueField-4": _doca(pages=1024, device_id=doca.BLUEFIELD_4),
    "huge pages of DPDK": _doca(pages=1, is_fork=False),
    "no huge pages for DPDK": _doca(pages=0, is_fork=False),
    "huge pages not read": _doca(pages=Unknown("cannot be read")),
    # Not by --fix: with it set and DOCA not working, ovs-vswitchd does not start its ports.
    "doca-init": _doca(config={"hw-offload": "true", "doca-init": "true"}),
    # Open vSwitch prints the number of a port that it no longer has.
    "megaflows of ports that are gone": _doca(*GONE),
    "an unknown release": _doca(release=None),
    "2.9: IPv6 between uplinks": _doca(PLAIN, release="2.9.1"),
    "2.9: the config has packets between uplinks": replace(_doca(release="2.9.1"), required=WANTED),
    "2.10: IPv6 between uplinks": _doca(PLAIN, release="2.10.0"),
    "2.9: IPv4 between uplinks": _doca(_line("p1", family="eth_type(0x0800),ipv4"), release="2.9.1"),
    "2.9: meters and sFlow": _doca(METERED, release="2.9.1", exporters=("sflow",)),
    "2.9: meters": _doca(METERED, release="2.9.1"),
    "2.10: connections, but none are offloaded": _doca(TRACKS, release="2.10.0", config=NO_CT),
    "3.0: connections, but none are offloaded": _doca(TRACKS, release="3.0.0", config=NO_CT),
    "3.1: BlueField-3": _doca(release="3.1.0", device_id=doca.BLUEFIELD_3),
    "3.1: another device": _doca(release="3.1.0"),
}

MAC, OTHER_MAC, VIP = "02:00:5e:10:00:02", "02:00:5e:10:00:03", "10.3.10.45"
RIGHT = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}
SELF = BackendFacts((MAC,), ("127.0.0.1", VIP), RIGHT)
ONE = RequiredBackend("one", MAC, "p1", (VIP,), facts=SELF)
FAR = replace(ONE, facts=Unknown("a backend is not reached from here"))
NEIGHBOUR = Neighbour("192.0.2.7", MAC, "eth1")


def _backends(*wanted: RequiredBackend, **host: Any) -> DoctorCase:
    return DoctorCase(Evidence(replace(HOST, **host)), replace(WANTED, backends=wanted))


def _facts(**changes: Any) -> DoctorCase:
    return _backends(replace(ONE, facts=replace(SELF, **changes)))


BACKENDS: dict[str, DoctorCase] = {
    "two services": _backends(ONE, ONE),
    "two names": _backends(ONE, replace(ONE, name="two")),
    "two names behind two ports": _backends(ONE, replace(ONE, name="two", egress="p2")),
    "two ports": _backends(ONE, replace(ONE, egress="p2")),
    "another MAC": _facts(macs=(OTHER_MAC,)),
    "no VIP": _facts(loopback=("127.0.0.1",)),
    **{f"{key} {value}": _facts(sysctls=RIGHT | {key: value}) for key in RIGHT for value in (0, 1, 2)},
    "not asked for": _backends(),
    "not reached": _backends(FAR),
}
FAR_BACKENDS: dict[str, DoctorCase] = {
    "its MAC was learned": _backends(FAR, learned={"ovsbr1": {MAC: "p1"}}),
    "its MAC was learned elsewhere": _backends(FAR, learned={"ovsbr1": {MAC: "p0"}}),
    "a neighbour": _backends(FAR, neighbours=(NEIGHBOUR,)),
    "another neighbour": _backends(FAR, neighbours=(replace(NEIGHBOUR, mac=OTHER_MAC),)),
    "neighbours not read": _backends(FAR, neighbours=Unknown("ip is not installed")),
    "IPv6 needs no sysctls": _backends(replace(FAR, vips=("2001:db8::1",))),
}


@pytest.mark.parametrize(
    ("name", "usual", "cases"),
    [
        ("host", GOOD, HOSTS),
        ("doca", _doca(PLAIN), DOCA),
        ("backends", _backends(ONE), BACKENDS),
        ("far_backends", _backends(FAR), FAR_BACKENDS),
    ],
)
def test_the_rows_that_a_fault_changes(
    name: str, usual: DoctorCase, cases: Mapping[str, DoctorCase], *, update_golden: bool
) -> None:
    checks = BACKEND_CHECKS if "backends" in name else HOST_CHECKS
    assert_recorded(f"doctor/{name}.txt", changes_of(usual, cases, checks), update=update_golden)


def test_each_row_of_a_good_host_is_ok_has_its_reason_and_no_command_and_is_there_once() -> None:
    rows = examine(GOOD)
    assert {(row.state, row.fix) for row in rows} == {(CheckState.OK, None)}
    assert not has_wrong(rows)
    assert all(row.seen and row.why for row in rows)
    assert len({(row.name, row.subject) for row in rows}) == len(rows)


def test_only_safe_fixes_are_offered_each_once() -> None:
    """A purge before the second qdisc would leave its port's flows in software."""
    devices = {name: replace(device, ingress=False, is_up=False) for name, device in DEVICES.items()}
    case = with_facts(with_config(max_idle="500", max_revalidator="500"), devices=devices)
    assert [fix.command(THIS_HOST) for fix in safe_fixes(examine(case))] == [
        "ovs-vsctl remove Open_vSwitch . other_config max-idle",
        "ovs-vsctl remove Open_vSwitch . other_config max-revalidator",
        "tc qdisc add dev p0 ingress && ovs-appctl revalidator/purge",
        "tc qdisc add dev p1 ingress && ovs-appctl revalidator/purge",
    ]


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


def test_every_note_has_a_shape_and_a_source() -> None:
    assert {note.shape for note in doca.NOTES} == set(doca.SHAPES)
    assert all(note.source and note.text for note in doca.NOTES)
