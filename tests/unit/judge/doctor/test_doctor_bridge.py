"""Checks of the bridge: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.doctor.facts import (
    BRIDGE,
    CONTROLLER,
    COST,
    DEVICES,
    GOOD,
    interface,
    only,
    with_bridge,
    with_database,
    with_host,
    with_wanted,
)
from xenoovs.datapath.database import Controller, Mirror
from xenoovs.datapath.fact import Unknown
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import openvswitch
from xenoovs.judge.doctor.check import CheckState, DoctorCase
from xenoovs.judge.doctor.foreign_flows import ForeignFlows

PIN = "priority=2000,ip,nw_src=203.0.113.9 actions=drop"


def test_a_missing_bridge_is_wrong_and_existing_ones_are_named() -> None:
    row = only(openvswitch.check_bridge, with_wanted(bridge="ovsbr9"))
    assert (row.state, row.seen) == (CheckState.WRONG, "does not exist; existing bridges: ovsbr1")
    assert str(row.fix) == "ovs-vsctl add-br ovsbr9"


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (GOOD, CheckState.OK),
        (with_bridge(datapath_type="dummy"), CheckState.WRONG),
        (with_bridge(datapath_type="netdev"), CheckState.WRONG),
        (
            with_bridge(
                datapath_type="netdev", ports=(interface("p0", 1, type="dpdk"), interface("p1", 2, type="doca"))
            ),
            CheckState.OK,
        ),
    ],
    ids=["kernel", "dummy", "userspace without DPDK", "DPDK"],
)
def test_datapath_type(case: DoctorCase, state: CheckState) -> None:
    assert only(openvswitch.check_datapath_type, case).state is state


SLAVE = Controller("tcp:192.0.2.2:6653", is_connected=True, role="slave")
SILENT = Controller("tcp:192.0.2.3:6653")
EQUAL = Controller("tcp:192.0.2.4:6653", is_connected=True, role="other")


@pytest.mark.parametrize(
    ("controllers", "state"),
    [
        ((), CheckState.OK),
        ((CONTROLLER,), CheckState.OK),
        ((CONTROLLER, SLAVE), CheckState.UNKNOWN),
        ((CONTROLLER, SILENT), CheckState.UNKNOWN),
        ((CONTROLLER, EQUAL), CheckState.WRONG),
    ],
)
def test_two_controllers_that_may_write_are_wrong(controllers: tuple[Controller, ...], state: CheckState) -> None:
    assert only(openvswitch.check_controllers, with_bridge(controllers=controllers)).state is state


@pytest.mark.parametrize(
    ("fail_mode", "controllers", "state"),
    [
        ("secure", (), CheckState.OK),
        ("secure", (CONTROLLER,), CheckState.OK),
        ("standalone", (), CheckState.OK),
        ("standalone", (CONTROLLER,), CheckState.WRONG),
    ],
)
def test_fail_mode(fail_mode: str, controllers: tuple[Controller, ...], state: CheckState) -> None:
    row = only(openvswitch.check_fail_mode, with_bridge(fail_mode=fail_mode, controllers=controllers))
    assert row.state is state
    assert not row.has_safe_fix


@pytest.mark.parametrize(
    ("foreign", "state"),
    [
        (ForeignFlows(others=3), CheckState.OK),
        (ForeignFlows((PIN,), cost=COST), CheckState.OK),
        (ForeignFlows((PIN,), cost=replace(COST, entries_with_foreign=46)), CheckState.WRONG),
        (ForeignFlows((PIN,), cost=replace(COST, overridden=1)), CheckState.WRONG),
        (ForeignFlows((PIN,), cost=Unknown("ct() is not simulated"), taken=("dns",)), CheckState.WRONG),
        (ForeignFlows((PIN,), cost=Unknown("ct_state cannot be simulated")), CheckState.UNKNOWN),
        (ForeignFlows((PIN,), cost=Unknown("nw_tos cannot be simulated"), varying=("nw_tos",)), CheckState.WRONG),
        (Unknown("permission denied"), CheckState.UNKNOWN),
    ],
    ids=[
        "none",
        "harmless",
        "un-wildcards",
        "overrides",
        "takes all",
        "not simulated",
        "differs between clients",
        "not read",
    ],
)
def test_foreign_flows(foreign: ForeignFlows | Unknown, state: CheckState) -> None:
    assert only(openvswitch.check_foreign_flows, with_wanted(foreign=foreign)).state is state


def test_the_cost_of_foreign_flows_has_entries_and_packets() -> None:
    cost = replace(COST, entries_with_foreign=46, overridden=2)
    row = only(openvswitch.check_foreign_flows, with_wanted(foreign=ForeignFlows((PIN,), cost=cost)))
    assert row.seen.endswith("46 hardware entries instead of 9; 2 of 100 packets are sent elsewhere")
    assert not row.has_safe_fix


def test_without_a_config_every_bridge_is_checked() -> None:
    other = replace(BRIDGE, name="ovsbr2", datapath_type="netdev")
    case = replace(with_database(bridges=(BRIDGE, other)), required=None)
    assert [row.subject for row in openvswitch.check_datapath_type(case)] == ["ovsbr1", "ovsbr2"]


def test_no_database_no_rows() -> None:
    case = with_host(database=Unknown("refused"))
    checks = (
        openvswitch.check_bridge,
        openvswitch.check_datapath_type,
        openvswitch.check_foreign_flows,
        openvswitch.check_controllers,
    )
    assert [row for check in checks for row in check(case)] == []


@pytest.mark.parametrize(("column", "word"), [("sflow", "sFlow"), ("ipfix", "IPFIX"), ("netflow", "NetFlow")])
def test_exports_of_flows_keep_blocks_out_of_hardware(column: str, word: str) -> None:
    """All rows were ok while all blocks were in software."""
    row = only(openvswitch.check_exporters, with_bridge(exporters=(column,)))
    assert (row.state, row.seen.partition(":")[0]) == (CheckState.WRONG, word)
    assert str(row.fix) == f"ovs-vsctl clear Bridge ovsbr1 {column} && ovs-appctl revalidator/purge"


@pytest.mark.parametrize(
    ("mirror", "state", "seen"),
    [
        (Mirror("m", "p1"), CheckState.OK, "copies leave by p1, which is on the eSwitch"),
        (Mirror("m", "x0"), CheckState.WRONG, "copies leave by x0, a second output, which is not on the eSwitch"),
        (Mirror("m", "gone"), CheckState.UNKNOWN, "copies leave by gone: the kernel has no device gone"),
        (Mirror("m", "p1", snaplen=64), CheckState.WRONG, "copies are shortened to 64 bytes"),
        (Mirror("m", output_vlan=7), CheckState.UNKNOWN, "copies go to VLAN 7"),
    ],
)
def test_mirrors(mirror: Mirror, state: CheckState, seen: str) -> None:
    case = with_bridge(mirrors=(mirror,))
    devices = {**DEVICES, "x0": replace(DEVICES["p1"], name="x0", switch_id=None)}
    row = only(openvswitch.check_mirrors, replace(case, evidence=Evidence(replace(case.host, devices=devices))))
    assert (row.state, seen in row.seen) == (state, True), row.seen
