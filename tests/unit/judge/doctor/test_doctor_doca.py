"""Checks of OVS-DOCA: settings against megaflows, huge pages, notes of releases; and ports that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import BRIDGE, GOOD, HOST, PCI, interface, only, with_wanted
from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Eswitch, KernelFacts
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import doca
from xenoovs.judge.doctor.check import CheckState, DoctorCase
from xenoovs.judge.doctor.foreign_flows import ForeignFlows
from xenoovs.judge.doctor.nic import TC_MODULES

OK, WRONG, UNKNOWN = CheckState.OK, CheckState.WRONG, CheckState.UNKNOWN


def _line(actions: str, *, in_port: str = "p0", keys: str = "dp_hash(0/0)", layer: str = "dp:ovs") -> str:
    return (
        f"ufid:43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32, recirc_id(0),{keys},in_port({in_port}),eth(),eth_type(0x86dd),"
        f"ipv6(frag=no), packets:3, bytes:294, used:1.301s, {layer}, actions:{actions}"
    )


PLAIN, TRACKS = _line("p1"), _line("ct(commit),recirc(0x1)")
HASHES, METERED = _line("hash(l4(0)),recirc(0x2)"), _line("meter(0),pf0hpf")


def _doca(
    *lines: str,
    config: dict[str, str] | None = None,
    release: str | None = "3.2.1",
    is_fork: bool = True,
    pages: Any = 512 << 21,
    device_id: str | None = None,
    exporters: tuple[str, ...] = (),
    required: Any = None,
) -> DoctorCase:
    """A host of OVS-DOCA, or of DPDK without the fork, with a dump of these lines."""
    ports = (interface("p0", 1, type="dpdk"), interface("p1", 2, type="dpdk"))
    bridge = replace(BRIDGE, datapath_type="netdev", ports=ports, exporters=exporters)
    database = Database(
        config or {}, (bridge,), doca_initialized=is_fork or None, doca_version=release if is_fork else None
    )
    kernel = KernelFacts("6.1", dict.fromkeys(TC_MODULES, True), pages)
    eswitches = (Eswitch(PCI, "switchdev", "smfs", multiport=True, device_id=device_id),)
    host = replace(HOST, database=database, kernel=kernel, eswitches=eswitches)
    return replace(GOOD, evidence=Evidence(host, lines), required=required)


OFF = {"hw-offload-ct-size": "0"}


@pytest.mark.parametrize(
    ("case", "state", "fix"),
    [
        (_doca(PLAIN), OK, None),
        (_doca(TRACKS, TRACKS), OK, None),
        (_doca(HASHES, config=OFF), OK, None),
        (_doca(HASHES), WRONG, "hw-offload-ct-size=0"),
        (_doca(TRACKS, config=OFF), WRONG, "hw-offload-ct-size=250000"),
        (_doca(TRACKS, HASHES), WRONG, None),
        (_doca(), OK, None),
    ],
    ids=["neither", "connections", "hashes", "hashes, on", "connections, off", "both", "no dump"],
)
def test_connections_or_hashes(case: DoctorCase, state: CheckState, fix: str | None) -> None:
    row = only(doca.check_ct_size, case)
    assert (row.state, row.fix is not None) == (state, fix is not None)
    assert fix is None or f"other_config:{fix}" in str(row.fix)


def test_without_doca_there_is_no_such_setting() -> None:
    assert list(doca.check_ct_size(_doca(HASHES, is_fork=False))) == list(doca.check_notes(GOOD)) == []


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (_doca(), OK),
        (_doca(pages=511 << 21), WRONG),
        (_doca(pages=1024 << 21, device_id=doca.BLUEFIELD_3), OK),
        (_doca(pages=2048 << 21, device_id=doca.BLUEFIELD_4), OK),
        (_doca(pages=1024 << 21, device_id=doca.BLUEFIELD_4), WRONG),
        (_doca(pages=1 << 21, is_fork=False), OK),
        (_doca(pages=0, is_fork=False), WRONG),
        (_doca(pages=Unknown("cannot be read")), UNKNOWN),
    ],
)
def test_huge_pages_by_platform(case: DoctorCase, state: CheckState) -> None:
    """6,144 MiB were demanded of all; images of BlueField-3 reserve 1,024, those of BlueField-4 4,096."""
    assert only(doca.check_hugepages, case).state is state


@pytest.mark.parametrize(("config", "state"), [({"doca-init": "true"}, OK), ({}, WRONG)])
def test_doca_init(config: dict[str, str], state: CheckState) -> None:
    row = only(doca.check_doca_init, _doca(config=config))
    assert row.state is state
    # Not by --fix: with it set and DOCA not working, ovs-vswitchd does not start its ports.
    assert not row.has_safe_fix


@pytest.mark.parametrize(
    ("note", "met", "other"),
    [
        ("4155959", {"lines": (PLAIN,), "release": "2.9.1"}, {"lines": (PLAIN,), "release": "2.10.0"}),
        ("4155959", {"lines": (PLAIN,), "release": "2.9.1"},
         {"lines": (PLAIN.replace("0x86dd", "0x0800").replace("ipv6(", "ipv4("),), "release": "2.9.1"}),
        ("4155959", {"required": GOOD.required, "release": "2.9.1"}, {"lines": (METERED,), "release": "2.9.1"}),
        ("3987526", {"lines": (METERED,), "release": "2.9.1", "exporters": ("sflow",)},
         {"lines": (METERED,), "release": "2.9.1"}),
        ("4287011", {"lines": (TRACKS,), "release": "2.10.0", "config": OFF},
         {"lines": (TRACKS,), "release": "3.0.0", "config": OFF}),
        ("4564535", {"release": "3.1.0", "device_id": doca.BLUEFIELD_3}, {"release": "3.1.0"}),
        ("4885262", {"lines": (TRACKS, HASHES)}, {"lines": (TRACKS,)}),
    ],
)  # fmt: skip
def test_a_note_is_shown_for_its_releases_and_its_use(note: str, met: dict[str, Any], other: dict[str, Any]) -> None:
    row = only(doca.check_notes, _doca(*met.pop("lines", ()), **met))
    assert (row.state, row.seen.partition(",")[0]) == (WRONG, note)
    assert only(doca.check_notes, _doca(*other.pop("lines", ()), **other)).state is OK


def test_of_an_unknown_release_a_note_is_possible() -> None:
    row = only(doca.check_notes, _doca(PLAIN, release=None))
    assert (row.state, "the release is unknown" in row.seen) == (UNKNOWN, True)


def test_every_note_has_a_shape_and_a_source() -> None:
    assert {note.shape for note in doca.NOTES} == set(doca.SHAPES)
    assert all(note.source and note.text for note in doca.NOTES)


def test_megaflows_of_ports_that_are_gone() -> None:
    """Open vSwitch prints the number of a port that it no longer has."""
    held = _line("p1", in_port="7", layer="offloaded:yes, dp:doca")
    row = only(doca.check_gone_ports, _doca(PLAIN, held, _line("7"), "no megaflow"))
    assert (row.state, row.seen) == (
        WRONG,
        "2 megaflows (1 in the NIC) name port 7 of the datapath, which is gone",
    )
    assert row.has_safe_fix
    assert list(doca.check_gone_ports(_doca(PLAIN))) == []


def test_flows_of_ports_that_are_gone() -> None:
    (row,) = doca.check_gone_ports(with_wanted(foreign=ForeignFlows(others=2, gone=("9",))))
    assert (row.state, row.subject, row.seen) == (WRONG, "ovsbr1", "flows of others name port 9, which it lacks")
