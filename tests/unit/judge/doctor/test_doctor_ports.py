"""Checks of each port: ok, wrong and unknown of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.unit.judge.doctor.facts import (
    BRIDGE,
    DAEMON,
    DATABASE,
    GOOD,
    HISTORY,
    HOST,
    interface,
    only,
    states,
    with_bridge,
    with_daemon,
    with_database,
    with_device,
    with_host,
)
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Feature, OffloadState, TcRules
from xenoovs.datapath.tunnel_facts import TunnelFacts, tunnel_ends
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import nic
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase

TWO_BRIDGES = with_database(
    bridges=(replace(BRIDGE, ports=(interface("p0", 1),)), BridgeState("ovsbr2", ports=(interface("p1", 1),)))
)
"""As images of BlueField have them."""


@pytest.mark.parametrize("check", [nic.check_works, nic.check_up])
def test_the_last_state_of_a_dead_daemon_is_not_ok(check: Callable[[DoctorCase], Iterator[CheckResult]]) -> None:
    row = only(check, with_host(daemon=Unknown("no process listens there")), "p0")
    assert (row.state, row.seen.endswith(", as ovs-vswitchd last reported")) == (CheckState.UNKNOWN, True)


def test_a_port_on_another_bridge_is_moved() -> None:
    row = only(nic.check_on_bridge, TWO_BRIDGES, "p1")
    assert (row.state, row.seen) == (CheckState.WRONG, "on bridge ovsbr2, not on ovsbr1")
    assert str(row.fix) == "ovs-vsctl del-port ovsbr2 p1 -- add-port ovsbr1 p1"
    assert not row.has_safe_fix


def test_a_moved_port_keeps_its_type() -> None:
    far = BridgeState("ovsbr2", ports=(interface("p1", 1, type="dpdk"),))
    row = only(nic.check_on_bridge, with_database(bridges=(replace(BRIDGE, ports=()), far)), "p1")
    assert str(row.fix) == "ovs-vsctl del-port ovsbr2 p1 -- add-port ovsbr1 p1 -- set Interface p1 type=dpdk"


def test_a_port_on_no_bridge_is_added() -> None:
    row = only(nic.check_on_bridge, with_bridge(ports=()), "p0")
    assert (row.seen, str(row.fix)) == ("on no bridge", "ovs-vsctl add-port ovsbr1 p0")


def test_a_mistyped_port_is_not_added() -> None:
    assert isinstance(HOST.devices, dict)
    devices = {name: device for name, device in HOST.devices.items() if name != "p0"}
    bridges = (replace(BRIDGE, ports=(interface("p9", 9),)),)
    case = with_host(devices=devices, database=replace(DATABASE, bridges=bridges))
    row = only(nic.check_on_bridge, case, "p0")
    assert (row.state, row.fix) == (CheckState.WRONG, None)
    assert row.seen == "on no bridge, and this host has no such device; ovsbr1 has p9"


@pytest.mark.parametrize(
    ("broken", "state", "seen"),
    [
        (interface("p0", 1), CheckState.OK, "OpenFlow port 1"),
        (
            interface("p0", None, error="could not open network device p0"),
            CheckState.WRONG,
            "could not open network device p0",
        ),
        (interface("p0", None), CheckState.WRONG, "has no OpenFlow number"),
    ],
)
def test_works(broken: object, state: CheckState, seen: str) -> None:
    row = only(nic.check_works, with_bridge(ports=(broken,)), "p0")
    assert (row.state, row.seen) == (state, seen)


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (GOOD, CheckState.OK),
        (with_device("p0", is_up=False), CheckState.WRONG),
        (with_bridge(ports=(interface("p0", 1, link_up=False),)), CheckState.WRONG),
        (with_bridge(ports=(interface("p0", 1, link_up=None),)), CheckState.UNKNOWN),
    ],
    ids=["up", "set down", "no cable", "unknown"],
)
def test_up(case: DoctorCase, state: CheckState) -> None:
    assert only(nic.check_up, case, "p0").state is state


DUMMY = "dummy: for tests, without hardware"


def test_traffic_control_is_no_provider_of_a_userspace_bridge() -> None:
    """A veth of a userspace bridge was reported as ok: it has the provider, which gets none of its flows."""
    row = only(nic.check_provider, with_bridge(datapath_type="netdev"), "p0")
    assert (row.state, row.seen) == (CheckState.WRONG, "tc, which gets no flows of a bridge with datapath netdev")


@pytest.mark.parametrize(
    ("history", "state", "seen"),
    [
        (HISTORY, CheckState.OK, "tc"),
        (replace(HISTORY, providers={}), CheckState.WRONG, "none was assigned"),
        (replace(HISTORY, providers={}, failures={"p0": "no ifindex"}), CheckState.WRONG, "no ifindex"),
        (replace(HISTORY, providers={"p0": "dummy"}), CheckState.WRONG, DUMMY),
        (
            replace(HISTORY, providers={}, is_complete=False),
            CheckState.UNKNOWN,
            "the log does not reach back to the start of ovs-vswitchd",
        ),
        (Unknown("it writes no log"), CheckState.UNKNOWN, "it writes no log"),
    ],
)
def test_provider(history: object, state: CheckState, seen: str) -> None:
    row = only(nic.check_provider, with_daemon(history=history), "p0")
    assert (row.state, row.seen) == (state, seen)


def test_no_provider_is_missed_while_offload_is_off() -> None:
    off = OffloadState(is_on=False, evidence="-")
    assert list(nic.check_provider(with_daemon(offload=off, history=replace(HISTORY, providers={})))) == []


@pytest.mark.parametrize(
    ("feature", "state", "fix"),
    [
        (Feature(is_on=True), CheckState.OK, "None"),
        (Feature(is_on=False), CheckState.WRONG, "ethtool -K p0 hw-tc-offload on && ovs-appctl revalidator/purge"),
        (Feature(is_on=False, is_fixed=True), CheckState.WRONG, "None"),
        (Unknown("ethtool is not installed"), CheckState.UNKNOWN, "None"),
    ],
)
def test_hw_tc_offload(feature: object, state: CheckState, fix: str) -> None:
    row = only(nic.check_hw_tc_offload, with_device("p0", hw_tc_offload=feature), "p0")
    assert (row.state, str(row.fix)) == (state, fix)


def test_an_unreadable_device_is_unknown() -> None:
    case = with_host(devices=Unknown("the Open vSwitch is on another host"))
    for check in (nic.check_hw_tc_offload, nic.check_ingress_qdisc):
        assert set(states(check, case).values()) == {CheckState.UNKNOWN}


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (GOOD, CheckState.OK),
        (with_device("p0", ingress=False), CheckState.WRONG),
        (with_device("p0", ingress=Unknown("tc is not installed")), CheckState.UNKNOWN),
    ],
)
def test_ingress_qdisc(case: DoctorCase, state: CheckState) -> None:
    assert only(nic.check_ingress_qdisc, case, "p0").state is state


def test_a_qdisc_that_is_missing_before_offload_begins_is_unknown() -> None:
    case = with_device("p0", ingress=False)
    daemon = replace(DAEMON, offload=OffloadState(is_on=False, evidence="-"))
    row = only(nic.check_ingress_qdisc, replace(case, evidence=Evidence(replace(case.host, daemon=daemon))), "p0")
    assert (row.state, row.fix) == (CheckState.UNKNOWN, None)


def test_a_lost_qdisc_is_made_again_and_the_rules_with_it() -> None:
    row = only(nic.check_ingress_qdisc, with_device("p0", ingress=False), "p0")
    assert row.has_safe_fix
    assert str(row.fix) == "tc qdisc add dev p0 ingress && ovs-appctl revalidator/purge"


def test_the_shared_block_of_a_bond_needs_a_restart() -> None:
    row = only(nic.check_ingress_qdisc, with_device("p0", ingress=False, master="bond0"), "p0")
    assert (row.has_safe_fix, row.needs_restart) == (False, True)


def test_ports_of_the_kernel_datapath_have_ovs_system_as_master() -> None:
    row = only(nic.check_ingress_qdisc, with_device("p0", ingress=False, master="ovs-system"), "p0")
    assert row.has_safe_fix


def test_userspace_ports_are_not_checked_for_tc() -> None:
    case = with_bridge(datapath_type="netdev")
    assert [*nic.check_hw_tc_offload(case), *nic.check_ingress_qdisc(case)] == []


def test_without_a_config_internal_ports_are_left_out() -> None:
    interfaces = (*BRIDGE.ports, interface("ovsbr1", 65534, type="internal"))
    case = replace(with_bridge(ports=interfaces), required=None)
    assert list(states(nic.check_works, case)) == ["p0", "p1", "pf0hpf"]


@pytest.mark.parametrize(
    ("rules", "state", "seen"),
    [
        (TcRules(7), CheckState.OK, "7, each of a megaflow"),
        (TcRules(7, stale=2, foreign=1), CheckState.WRONG, "2 of 7 are of Open vSwitch, but of no megaflow"),
        (TcRules(7, foreign=1), CheckState.UNKNOWN, "1 of 7 are of other programs"),
        (Unknown("tc is not installed"), CheckState.UNKNOWN, "tc is not installed"),
    ],
)
def test_tc_rules(rules: object, state: CheckState, seen: str) -> None:
    row = only(nic.check_tc_rules, with_device("p0", rules=rules), "p0")
    assert (row.state, row.seen) == (state, seen)


def test_a_port_without_the_qdisc_has_no_rules_to_judge() -> None:
    assert list(states(nic.check_tc_rules, with_device("p0", ingress=False))) == ["p1"]


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


def _with_priority(value: str | None, providers: dict[str, str], version: str = "3.7.0") -> DoctorCase:
    ports = tuple(replace(port, offload_priority=value) if port.name == "p0" else port for port in BRIDGE.ports)
    daemon = replace(DAEMON, version=version, history=replace(HISTORY, providers=providers))
    return with_host(database=replace(DATABASE, bridges=(replace(BRIDGE, ports=ports),)), daemon=daemon)


@pytest.mark.parametrize(
    ("case", "state", "seen"),
    [
        (_with_priority("none", {"p1": "tc"}), CheckState.WRONG, "none: other_config:hw-offload-priority of the "),
        (_with_priority("tc,none", {"p0": "tc"}), CheckState.OK, "tc"),
        (_with_priority("dpdk", {"p0": "tc"}), CheckState.WRONG, "tc; after a restart none: other_config:hw-offl"),
        (_with_priority("none", {"p0": "linux_tc"}, "3.6.1"), CheckState.OK, "tc"),
    ],
)
def test_the_offload_providers_of_an_interface(case: DoctorCase, state: CheckState, seen: str) -> None:
    row = only(nic.check_provider, case, "p0")
    assert (row.state, row.seen[: len(seen)]) == (state, seen)
    assert state is CheckState.OK or "remove Interface p0 other_config hw-offload-priority" in str(row.fix)
