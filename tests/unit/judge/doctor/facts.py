"""A host on which everything is right: a NIC in switchdev mode, the kernel's datapath, uplinks and a representor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.judged import assert_shown
from xenoovs.datapath.database import BridgeState, Controller, Database, PortState
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
from xenoovs.judge.doctor.foreign_flows import ForeignCost, ForeignFlows
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
CONTROLLER = Controller("tcp:192.0.2.1:6653", is_connected=True, role="master")
COST = ForeignCost(packets=100, entries=9, entries_with_foreign=9, overridden=0)


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


Check = Callable[[DoctorCase], Iterable[CheckResult]]
Table = Mapping[tuple[Check, str | None], Mapping[str, tuple[DoctorCase, str]]]
"""A check and the subject of its row (None: it has one row) -> name of a case -> the case, and the row as text."""


def with_history(**changes: Any) -> DoctorCase:
    return with_daemon(history=replace(HISTORY, **changes))


def with_facts(case: DoctorCase, **changes: Any) -> DoctorCase:
    """The case with other facts of its host."""
    return replace(case, evidence=replace(case.evidence, host=replace(case.host, **changes)))


def as_params(table: Table) -> list[Any]:
    """Arguments of `assert_row` for parametrize."""
    return [
        pytest.param(check, subject, case, row, id=f"{check.__name__.removeprefix('check_')}: {name}")
        for (check, subject), rows in table.items()
        for name, (case, row) in rows.items()
    ]


def as_text(row: CheckResult) -> str:
    """State, what was seen, and what fixes it: after `->` for the user, after `=>` by --fix."""
    fix = "" if row.fix is None or row.state is CheckState.OK else f" {'-='[row.has_safe_fix]}> {row.fix}"
    return f"{row.state.value}: {row.seen}{fix}"


def assert_row(check: Check, subject: str | None, case: DoctorCase, row: str) -> None:
    assert_shown(as_text(only(check, case, subject)), row)


def only(check: Check, case: DoctorCase, subject: str | None = None) -> CheckResult:
    """The one row of a check, or the one about `subject`."""
    rows = [row for row in check(case) if subject is None or row.subject == subject]
    assert len(rows) == 1, rows
    return rows[0]


def states(check: Check, case: DoctorCase) -> dict[str | None, CheckState]:
    """The state of each row by its subject."""
    return {row.subject: row.state for row in check(case)}
