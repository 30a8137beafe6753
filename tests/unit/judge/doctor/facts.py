"""A host on which everything is right: a NIC in switchdev mode, the kernel's datapath, uplinks and a representor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.host import (
    Daemon,
    Device,
    Eswitch,
    Feature,
    HostFacts,
    KernelFacts,
    OffloadHistory,
    OffloadState,
    TcRules,
)
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase, Requirements
from xenoovs.judge.doctor.examine import HOST_CHECKS, CheckFunction, examine
from xenoovs.judge.doctor.foreign_flows import ForeignFlows
from xenoovs.judge.doctor.nic import TC_MODULES

PCI = "0000:03:00.0"
SWITCH_ID = "a2084c0003ebc008"


def device(name: str, port_name: str | None, **changes: Any) -> Device:
    good = Device(
        name,
        is_up=True,
        mtu=1500,
        pci=PCI,
        switch_id=SWITCH_ID,
        port_name=port_name,
        hw_tc_offload=Feature(is_on=True),
        ingress=True,
        rules=TcRules(total=7),
    )
    return replace(good, **changes)


def interface(name: str, ofport: int | None, **changes: Any) -> PortState:
    return replace(PortState(name, ofport=ofport, link_up=True, mtu=1500), **changes)


BRIDGE = BridgeState("ovsbr1", (interface("p0", 1), interface("p1", 2), interface("pf0hpf", 3)), fail_mode="secure")
DATABASE = Database({"hw-offload": "true"}, (BRIDGE,), datapath_types=("netdev", "system"))
HISTORY = OffloadHistory(
    has_started=True, tc_policy="none", providers={"p0": "linux_tc", "p1": "linux_tc", "pf0hpf": "tc"}, is_complete=True
)
DAEMON = Daemon(OffloadState(is_on=True, evidence="it says so"), HISTORY, flow_limit=10_000, version="3.1.0")
DEVICES = {"p0": device("p0", "p0"), "p1": device("p1", "p1"), "pf0hpf": device("pf0hpf", "c1pf0")}
HOST = HostFacts(
    is_local=True,
    database=DATABASE,
    daemon=DAEMON,
    devices=DEVICES,
    eswitches=(Eswitch(PCI, "switchdev", "smfs", multiport=True),),
    kernel=KernelFacts("6.1.0-49-arm64", dict.fromkeys(TC_MODULES, True), hugepages_bytes=0),
    neighbours=(),
)
WANTED = Requirements("ovsbr1", ("p0",), ("p1",), entries=9, foreign=ForeignFlows(others=1))
GOOD = DoctorCase(Evidence(HOST), WANTED)


def as_text(row: CheckResult) -> str:
    """State, name and subject, what was seen, and what fixes it: after `->` for the user, after `=>` by --fix."""
    fix = "" if row.fix is None or row.state is CheckState.OK else f" {'-='[row.has_safe_fix]}> {row.fix}"
    return f"{row.state.value} {_name(row)}: {row.seen}{fix}"


def changes_of(
    usual: DoctorCase, cases: Mapping[str, DoctorCase], checks: Iterable[CheckFunction] = HOST_CHECKS
) -> dict[str, str]:
    """All rows of the usual case, and of each other one the rows that differ, and the names of those that it lacks."""
    checks = tuple(checks)
    before = examine(usual, checks=checks)
    shown = {"usual": "\n".join(map(as_text, before))}
    for title, case in cases.items():
        now = examine(case, checks=checks)
        names = set(map(_name, now))
        gone = ", ".join(_name(row) for row in before if _name(row) not in names)
        rows = [as_text(row) for row in now if row not in before]
        shown[title] = "\n".join(rows + [f"no row: {gone}"] * bool(gone)) or "nothing changes"
    return shown


def _name(row: CheckResult) -> str:
    return " ".join(filter(None, [row.name, row.subject]))
