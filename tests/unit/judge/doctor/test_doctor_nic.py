"""Checks of the NIC's switch: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.doctor.facts import (
    DEVICES,
    PCI,
    device,
    interface,
    only,
    states,
    with_bridge,
    with_device,
    with_host,
    with_wanted,
)
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Device, Eswitch, Subfunction, TcRules
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import nic
from xenoovs.judge.doctor.check import CheckState

SILENT = Unknown("devlink is not installed")


def test_a_port_of_no_eswitch_is_named() -> None:
    assert states(nic.check_same_eswitch, with_device("p1", switch_id=None)) == {"p1": CheckState.WRONG}


def test_ports_of_two_eswitches() -> None:
    row = only(nic.check_same_eswitch, with_device("p1", switch_id="ffff"))
    assert (row.state, row.seen) == (CheckState.WRONG, "2 different ones: p0, p1")


def test_a_device_that_is_not_there_leaves_it_open() -> None:
    row = only(nic.check_same_eswitch, with_host(devices={"p0": DEVICES["p0"]}))
    assert (row.state, row.seen) == (CheckState.UNKNOWN, "p1: the kernel has no device p1")


@pytest.mark.parametrize(
    ("mode", "state"), [("switchdev", CheckState.OK), ("legacy", CheckState.WRONG), (SILENT, CheckState.UNKNOWN)]
)
def test_eswitch_mode(mode: object, state: CheckState) -> None:
    eswitch = Eswitch(PCI, mode, "smfs", multiport=True)  # type: ignore[arg-type]
    row = only(nic.check_eswitch_mode, with_host(eswitches=(eswitch,)))
    assert (row.state, row.has_safe_fix) == (state, False)


def test_rules_that_are_left_keep_an_eswitch_from_its_new_mode() -> None:
    """devlink answers `Can't change mode, E-Switch is busy`."""
    devices = {"p0": device("p0", "p0"), "p1": device("p1", "p1", rules=TcRules(total=0))}
    legacy = (Eswitch(PCI, "legacy", "smfs", multiport=True),)
    row = only(nic.check_eswitch_mode, with_host(eswitches=legacy, devices=devices))
    assert row.seen == "legacy; rules at p0 are in the way: `E-Switch is busy`"
    assert "tc filter del dev p0 ingress && devlink" in str(row.fix)
    assert only(nic.check_eswitch_mode, with_host(devices=devices)).seen == "switchdev"


def test_an_eswitch_that_devlink_does_not_show() -> None:
    assert only(nic.check_eswitch_mode, with_host(eswitches=())).state is CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("steering", "state"), [("smfs", CheckState.OK), ("dmfs", CheckState.OK), (SILENT, CheckState.UNKNOWN)]
)
def test_steering_is_reported_and_not_judged(steering: object, state: CheckState) -> None:
    eswitch = Eswitch(PCI, "switchdev", steering, multiport=True)  # type: ignore[arg-type]
    assert only(nic.check_steering, with_host(eswitches=(eswitch,))).state is state


@pytest.mark.parametrize(
    ("multiport", "state"), [(True, CheckState.OK), (False, CheckState.WRONG), (SILENT, CheckState.UNKNOWN)]
)
def test_multiport_from_wire_to_wire(multiport: object, state: CheckState) -> None:
    eswitch = Eswitch(PCI, "switchdev", "smfs", multiport)  # type: ignore[arg-type]
    row = only(nic.check_multiport, with_host(eswitches=(eswitch,)))
    assert (row.state, row.has_safe_fix) == (state, False)


def test_multiport_does_not_matter_from_wire_to_host() -> None:
    assert list(nic.check_multiport(with_wanted(egress=("pf0hpf",)))) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"p0": CheckState.OK, "p1": CheckState.OK}),
        ({"p0": 9000}, {"p0": CheckState.OK, "p1": CheckState.WRONG}),
        ({"p1": 9000}, {"p0": CheckState.OK, "p1": CheckState.OK}),
    ],
)
def test_mtu_of_the_egress_ports(changes: dict[str, int], expected: dict[str, CheckState]) -> None:
    devices = {name: replace(d, mtu=changes.get(name, d.mtu)) for name, d in DEVICES.items()}
    assert states(nic.check_mtu, with_host(devices=devices)) == expected


def test_mtu_of_a_representor_is_that_of_the_widest_uplink() -> None:
    case = replace(with_device("p0", mtu=9000), required=None)
    row = only(nic.check_mtu, case, "pf0hpf")
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ip link set dev pf0hpf mtu 9000")


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
    device = Device("x", is_up=True, mtu=1500, port_name=port_name)
    assert (device.is_uplink, device.is_representor) == (is_uplink, is_representor)


@pytest.mark.parametrize(
    ("state", "opstate", "expected"),
    [
        ("active", "attached", CheckState.OK),
        ("inactive", "detached", CheckState.WRONG),
        ("active", "detached", CheckState.WRONG),
    ],
)
def test_subfunction(state: str, opstate: str, expected: CheckState) -> None:
    function = Subfunction("pci/0000:03:00.0/229408", state, opstate)
    row = only(nic.check_subfunction, with_device("p1", subfunction=function))
    assert (row.state, row.subject) == (expected, "p1")
    assert str(row.fix) == "devlink port function set pci/0000:03:00.0/229408 state active"


def test_mtu_of_dpdk_ports_comes_from_open_vswitch() -> None:
    interfaces = (interface("p0", 1, type="dpdk", mtu=9000), interface("p1", 2, type="dpdk"))
    case = with_bridge(datapath_type="netdev", ports=interfaces)
    row = only(nic.check_mtu, replace(case, evidence=Evidence(replace(case.host, devices={}))), "p1")
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ovs-vsctl set Interface p1 mtu_request=9000")
