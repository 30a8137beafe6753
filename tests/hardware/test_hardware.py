"""The matrix on a real NIC. Truth: packets at the server's end, packets that the CPU saw, the driver's own counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hardware.options import Options
from tests.hardware.rig import (
    CLIENTS,
    MACS,
    NEW_MAC,
    Burst,
    Rig,
    assert_all_in_hardware,
    packets,
    running_rig,
    verdicts,
)
from xenoovs.datapath.megaflow import Offloaded
from xenoovs.switch.process import run

# Some wait for max-idle, which an operator may have made minutes.
pytestmark = [pytest.mark.hardware, pytest.mark.timeout(1800)]

FEW = CLIENTS[:4]
OTHER, LOCAL = "198.51.100.46", "198.51.100.47"
# Near 203.0.113.0/24 and far from it, none inside: each needs other bits to differ from it.
SCATTERED = ("10.1.113.17", "150.7.113.34", "200.3.113.51", "203.128.113.68", "203.1.113.85", "203.0.112.102")
FOREIGN = "cookie=0x68777465,priority=30000"


def test_accepted(rig: Rig) -> None:
    rig.prime()
    before, burst, after = rig.look(), rig.send(), rig.look()
    assert_all_in_hardware(before, burst, after)


def test_no_traffic_yet(rig: Rig) -> None:
    found = rig.look()
    assert (found.exit_code, verdicts(found)) == (3, {"ABSENT"})


def test_widened_by_a_foreign_prefix(rig: Rig) -> None:
    rig.add_others(f"{FOREIGN},ip,in_port={{p0}},nw_src=203.0.113.0/24 actions=output:{{p1}}")
    rig.prime(SCATTERED)
    before, burst, after = rig.look(), rig.send(SCATTERED), rig.look()
    assert_all_in_hardware(before, burst, after)
    assert [
        flow for found in after.report["unwildcarded"] for flow in found["foreign_flows"] if "203.0.113.0/24" in flow
    ]
    assert after.report["blocks_total"]["megaflows"] == len(after.filters)


@pytest.mark.parametrize(("to", "action"), [(OTHER, "output(port={p1},max_len=64)"), (LOCAL, "LOCAL")])
def test_action_that_stays_in_software(rig: Rig, to: str, action: str) -> None:
    rig.add_others(f"{FOREIGN},udp,in_port={{p0}},nw_dst={to} actions={action}")
    rig.prime(FEW, to=to)
    rig.prime()
    before, burst = rig.look(), rig.send()
    foreign = rig.send(FEW, to=to)
    assert_all_in_hardware(before, burst, rig.look())
    assert_foreign_agrees(rig, foreign, to=to)
    # Open vSwitch offloads no truncated output; drivers may accept the bridge's own port (mlx5 since Linux 5.16).
    assert to == LOCAL or foreign.woken.total() == foreign.sent


def test_idle_is_no_failure(rig: Rig) -> None:
    rig.prime()
    # Until hardware has counted a packet, the report has no value for it.
    rig.send()
    assert rig.look().exit_code == 0
    rig.wait_until_idle()
    found = rig.look()
    assert (found.exit_code, verdicts(found), found.filters) == (3, {"ABSENT"}, ())


def test_new_mac_of_one_backend_keeps_the_rest(rig: Rig) -> None:
    rig.prime()
    before, first = rig.look(), rig.send()
    rig.apply({**MACS, "three": NEW_MAC})
    second, after = rig.send(), rig.look()
    moved = {seen.source for seen in first.delivered if seen.mac == MACS["three"]}
    assert moved
    assert {seen.source for seen in second.woken} <= moved
    assert {seen.source for seen in second.delivered if seen.mac == NEW_MAC} == moved
    assert MACS["three"] not in {seen.mac for seen in second.delivered}
    delivered = first.delivered + second.delivered
    for name in ("one", "two"):
        sent = sum(count for seen, count in delivered.items() if seen.mac == MACS[name])
        assert packets(after)[name] - packets(before)[name] == sent
    assert (after.exit_code, verdicts(after)) == (0, {"HW"})


def test_conntrack_beside_us(rig: Rig) -> None:
    rig.add_others(
        f"{FOREIGN},udp,in_port={{p0}},nw_dst={OTHER} actions=ct(table=9)",
        f"{FOREIGN},table=9,ct_state=+new+trk,ip actions=ct(commit),output:{{p1}}",
        f"{FOREIGN},table=9,ct_state=-new+trk,ip actions=output:{{p1}}",
    )
    assert_ours_unharmed(rig)


def test_select_group_beside_us(rig: Rig) -> None:
    group = "group_id=1,type=select,bucket=output:{p1},bucket=output:{p1}"
    rig.add_others(f"{FOREIGN},udp,in_port={{p0}},nw_dst={OTHER} actions=group:1", group=group)
    assert_ours_unharmed(rig)


@pytest.mark.hardware(changes_settings=True)
def test_hw_tc_offload_off(options: Options, directory: Path) -> None:
    with hw_tc_offload_off(options.p0), running_rig(options, directory) as rig:
        rig.prime()
        burst, found = rig.send(), rig.look()
        assert burst.woken.total() == burst.sent == burst.delivered.total()
        assert found.exit_code == 2
        assert "HW" not in verdicts(found)
        assert (found.nic_packets, found.report["blocks_total"]["hw_packets"]) == (0, 0)


def assert_ours_unharmed(rig: Rig) -> None:
    """The service is in hardware beside other traffic; all tools agree on the other traffic."""
    rig.prime(FEW, to=OTHER)
    rig.prime()
    before, foreign, burst = rig.look(), rig.send(FEW, to=OTHER), rig.send()
    assert_all_in_hardware(before, burst, rig.look())
    assert foreign.delivered.total() == foreign.sent
    assert_foreign_agrees(rig, foreign, to=OTHER)


def assert_foreign_agrees(rig: Rig, burst: Burst, *, to: str) -> None:
    """Packets that the CPU received are not reported as in hardware, and all others are."""
    in_hardware = all(megaflow.offloaded is Offloaded.YES for megaflow in rig.megaflows(to))
    assert in_hardware == (not burst.woken), json.dumps(rig.bridge_report(), indent=1)
    in_software = sum(row["packets"] for row in rig.bridge_report()["rows"] if row["verdict"] != "HW")
    assert in_software >= burst.woken.total()


@contextmanager
def hw_tc_offload_off(port: str) -> Iterator[None]:
    """Switched off before Open vSwitch has rules in the NIC: drivers refuse it later. It was on (`read_options`)."""
    run(["ethtool", "-K", port, "hw-tc-offload", "off"])
    try:
        yield
    finally:
        run(["ethtool", "-K", port, "hw-tc-offload", "on"])
