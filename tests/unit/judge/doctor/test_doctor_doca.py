"""Checks of OVS-DOCA: settings against megaflows, huge pages, notes of releases; and ports that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import (
    BRIDGE,
    GOOD,
    HOST,
    PCI,
    Check,
    Table,
    as_params,
    assert_row,
    interface,
    only,
    with_wanted,
)
from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Eswitch, KernelFacts
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import doca
from xenoovs.judge.doctor.check import CheckState, DoctorCase
from xenoovs.judge.doctor.foreign_flows import ForeignFlows
from xenoovs.judge.doctor.nic import TC_MODULES


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


ROWS: Table = {
    (doca.check_ct_size, None): {
        "neither": (_doca(PLAIN), "ok: ..."),
        "connections": (_doca(TRACKS, TRACKS), "ok: ..."),
        "hashes": (_doca(HASHES, config=OFF), "ok: ..."),
        "hashes, on": (_doca(HASHES), "wrong: ...> ...other_config:hw-offload-ct-size=0..."),
        "connections, off": (_doca(TRACKS, config=OFF), "wrong: ...> ...other_config:hw-offload-ct-size=250000..."),
        "both": (_doca(TRACKS, HASHES), "wrong: ..."),
        "no dump": (_doca(), "ok: ..."),
    },
    # 6,144 MiB were demanded of all; images of BlueField-3 reserve 1,024, those of BlueField-4 4,096.
    (doca.check_hugepages, None): {
        "enough": (_doca(), "ok: ..."),
        "one too few": (_doca(pages=511 << 21), "wrong: ..."),
        "BlueField-3": (_doca(pages=1024 << 21, device_id=doca.BLUEFIELD_3), "ok: ..."),
        "BlueField-4": (_doca(pages=2048 << 21, device_id=doca.BLUEFIELD_4), "ok: ..."),
        "BlueField-4, half": (_doca(pages=1024 << 21, device_id=doca.BLUEFIELD_4), "wrong: ..."),
        "DPDK": (_doca(pages=1 << 21, is_fork=False), "ok: ..."),
        "DPDK, none": (_doca(pages=0, is_fork=False), "wrong: ..."),
        "not read": (_doca(pages=Unknown("cannot be read")), "unknown: cannot be read"),
    },
    # Not by --fix: with it set and DOCA not working, ovs-vswitchd does not start its ports.
    (doca.check_doca_init, None): {
        "set": (_doca(config={"doca-init": "true"}), "ok: ..."),
        "not set": (_doca(), "wrong: ...-> ..."),
    },
    (doca.check_notes, None): {
        "of an unknown release": (_doca(PLAIN, release=None), "unknown: ...the release is unknown..."),
    },
    # Open vSwitch prints the number of a port that it no longer has.
    (doca.check_gone_ports, None): {
        "of megaflows": (
            _doca(PLAIN, _line("p1", in_port="7", layer="offloaded:yes, dp:doca"), _line("7"), "no megaflow"),
            "wrong: 2 megaflows (1 in the NIC) name port 7 of the datapath, which is gone => ...",
        ),
    },
    (doca.check_gone_ports, "ovsbr1"): {
        "of flows": (
            with_wanted(foreign=ForeignFlows(others=2, gone=("9",))),
            "wrong: foreign flows name port 9, which the bridge lacks -> ...",
        ),
    },
}


@pytest.mark.parametrize(("check", "subject", "case", "row"), as_params(ROWS))
def test_the_row_of_a_check(check: Check, subject: str | None, case: DoctorCase, row: str) -> None:
    assert_row(check, subject, case, row)


def test_what_does_not_matter_has_no_row() -> None:
    assert list(doca.check_ct_size(_doca(HASHES, is_fork=False))) == list(doca.check_notes(GOOD)) == []
    assert list(doca.check_gone_ports(_doca(PLAIN))) == []


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
    assert (row.state, row.seen.partition(",")[0]) == (CheckState.WRONG, note)
    assert only(doca.check_notes, _doca(*other.pop("lines", ()), **other)).state is CheckState.OK


def test_every_note_has_a_shape_and_a_source() -> None:
    assert {note.shape for note in doca.NOTES} == set(doca.SHAPES)
    assert all(note.source and note.text for note in doca.NOTES)
