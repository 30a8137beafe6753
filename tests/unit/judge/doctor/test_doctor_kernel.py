"""Checks of the kernel, and of the memory that DOCA needs: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import BRIDGE, GOOD, HOST, interface, only, with_bridge, with_host
from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import KernelFacts
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import nic
from xenoovs.judge.doctor.check import CheckState, DoctorCase
from xenoovs.judge.doctor.nic import TC_MODULES

ALL = dict.fromkeys(TC_MODULES, True)


@pytest.mark.parametrize(
    ("modules", "state", "seen"),
    [
        (ALL, CheckState.OK, ", ".join(TC_MODULES)),
        (ALL | {"cls_flower": False}, CheckState.WRONG, "kernel 6.1 lacks cls_flower"),
        (
            {"cls_flower": True},
            CheckState.UNKNOWN,
            "it could not be found out whether the kernel has act_mirred, act_pedit, act_csum, sch_ingress",
        ),
        (Unknown("no /proc/modules"), CheckState.UNKNOWN, "no /proc/modules"),
    ],
)
def test_modules(modules: Any, state: CheckState, seen: str) -> None:
    row = only(nic.check_modules, with_host(kernel=KernelFacts("6.1", modules, 0)))
    assert (row.state, row.seen) == (state, seen)


@pytest.mark.parametrize(
    ("release", "commands"),
    [
        ("6.8.0-45-generic", ["apt-get install linux-modules-extra-6.8.0-45-generic"]),
        ("6.1.0-26-amd64", ["apt-get install --reinstall linux-image-6.1.0-26-amd64"]),
        ("6.1.0-26-cloud-arm64", ["apt-get install linux-image-arm64", "reboot"]),
        ("5.14.0-427.el9.x86_64", []),
    ],
)
def test_bug_debian_has_no_package_of_further_modules(release: str, commands: list[str]) -> None:
    row = only(nic.check_modules, with_host(kernel=KernelFacts(release, ALL | {"cls_flower": False}, 0)))
    assert [" ".join(command) for command in (row.fix.commands if row.fix else ())] == commands


def test_modules_are_not_for_the_userspace_datapath() -> None:
    assert list(nic.check_modules(with_bridge(datapath_type="netdev"))) == []


def _doca(hugepages: Any, *, config: dict[str, str] | None = None, fork: bool = True) -> DoctorCase:
    bridge = replace(BRIDGE, datapath_type="netdev", ports=(interface("p0", 1, type="dpdk"),))
    database = Database(config or {}, (bridge,), doca_initialized=fork or None)
    return replace(GOOD, evidence=Evidence(replace(HOST, database=database, kernel=KernelFacts("6.1", ALL, hugepages))))


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (_doca(4096 << 21), CheckState.OK),
        (_doca(3072 << 21), CheckState.OK),
        (_doca(3071 << 21), CheckState.WRONG),
        (_doca(512 << 21, fork=False), CheckState.OK),
        (_doca(0, fork=False), CheckState.WRONG),
        (_doca(Unknown("cannot be read")), CheckState.UNKNOWN),
    ],
    ids=["doca 4096", "doca 3072", "doca too few", "dpdk some", "dpdk none", "unknown"],
)
def test_hugepages(case: DoctorCase, state: CheckState) -> None:
    assert only(nic.check_hugepages, case).state is state


@pytest.mark.parametrize(("config", "state"), [({"doca-init": "true"}, CheckState.OK), ({}, CheckState.WRONG)])
def test_doca_init(config: dict[str, str], state: CheckState) -> None:
    row = only(nic.check_doca_init, _doca(0, config=config))
    assert row.state is state
    # Not by --fix: with it set and DOCA not working, ovs-vswitchd does not start its ports.
    assert not row.has_safe_fix
