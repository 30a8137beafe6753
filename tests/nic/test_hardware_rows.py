"""tests/hardware on the emulated NIC: every row passes, every obstacle is reported, and the machine is as before."""

from __future__ import annotations

from typing import Any

import pytest

ROWS = (
    "accepted",
    "no_traffic_yet",
    "widened_by_a_foreign_prefix",
    "action_that_stays_in_software[198.51.100.46-output(port={p1},max_len=64)]",
    "action_that_stays_in_software[198.51.100.47-LOCAL]",
    "idle_is_no_failure",
    "new_mac_of_one_backend_keeps_the_rest",
    "conntrack_beside_us",
    "select_group_beside_us",
    "hw_tc_offload_off",
)
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


@pytest.mark.parametrize("row", ROWS)
def test_row(hardware: dict[str, Any], row: str) -> None:
    outcome = hardware["outcomes"][f"test_{row}"]
    assert outcome == "passed", hardware["failures"].get(f"test_{row}")


def test_there_are_no_other_rows(hardware: dict[str, Any]) -> None:
    assert sorted(hardware["outcomes"]) == sorted(f"test_{row}" for row in ROWS)


@pytest.mark.parametrize("obstacle", REFUSALS)
def test_it_does_not_begin_and_says_why(hardware: dict[str, Any], obstacle: str) -> None:
    assert REFUSALS[obstacle] in hardware["refusals"][obstacle]


def test_the_machine_is_as_it_was(hardware: dict[str, Any]) -> None:
    assert hardware["after"].splitlines() == hardware["before"].splitlines()
