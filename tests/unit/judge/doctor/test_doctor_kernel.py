"""Checks of the kernel: ok, wrong and unknown of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.judge.doctor.facts import only, with_bridge, with_host
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import KernelFacts
from xenoovs.judge.doctor import nic
from xenoovs.judge.doctor.check import CheckState
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
