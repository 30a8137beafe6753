"""tests/hardware on the emulated NIC: every row passes, every obstacle is reported, and the machine is as before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROWS = ("test_accepted", "test_new_mac_of_one_backend_keeps_the_rest")
LONG_ROWS = (
    "test_action_that_stays_in_software[198.51.100.46-output(port={p1},max_len=64)]",
    "test_action_that_stays_in_software[198.51.100.47-LOCAL]",
    "test_conntrack_beside_us",
    "test_hw_tc_offload_off",
    "test_idle_is_no_failure",
    "test_no_traffic_yet",
    "test_select_group_beside_us",
    "test_widened_by_a_foreign_prefix",
)
"""Those whose set-up a scenario has too."""
_ROOT = Path(__file__).parents[2]
REFUSALS = {
    "on a bridge": "p0 is on bridge inuse, in use: free it by `ovs-vsctl del-port inuse p0`",
    "bridge exists": "bridge xenoovs-test exists: name another by --bridge",
    "bridge of Linux": "p0 belongs to a bond or bridge of Linux: free it by `ip link set p0 nomaster`",
    "address": "p1 has the address 192.0.2.1: a bridge would cut this machine off from it",
    "down": "p1 is down: run `ip link set p1 up`",
    "hw-offload off": "hw-offload is off: run `ovs-vsctl set Open_vSwitch . other_config:hw-offload=true`",
    "hw-tc-offload off": "hw-tc-offload of p0 is not on: run `ethtool -K p0 hw-tc-offload on`",
    "filters": "p0 has filters, which Open vSwitch would remove: see `tc filter show dev p0 ingress`",
}


@pytest.mark.parametrize("row", [*ROWS, *(pytest.param(row, marks=pytest.mark.long) for row in LONG_ROWS)])
def test_row(hardware: dict[str, Any], row: str) -> None:
    assert hardware["outcomes"][row] == "passed", hardware["failures"].get(row)


def test_there_are_no_other_rows() -> None:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "hardware", "--change-settings"]
    listed = subprocess.run([*argv, "tests/hardware"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    names = [line.partition("::")[2] for line in listed.splitlines() if "::" in line]
    assert sorted(names) == sorted((*ROWS, *LONG_ROWS))


@pytest.mark.parametrize("obstacle", REFUSALS)
def test_it_does_not_begin_and_says_why(hardware: dict[str, Any], obstacle: str) -> None:
    assert REFUSALS[obstacle] in hardware["refusals"][obstacle]


def test_the_machine_is_as_it_was(hardware: dict[str, Any]) -> None:
    assert hardware["after"].splitlines() == hardware["before"].splitlines()
