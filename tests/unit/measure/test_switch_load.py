"""Counters of the switch as its tools print them."""

from __future__ import annotations

import pytest

from xenoovs.measure.switch_load import parse_reading

TEXT = """\
100
cpu  1000 0 2000 90000 10 0 345 0 0 0
4711 (ovs-vswitchd) S 1 4711 4711 0 -1 4194560 900 0 0 0 1234 766 0 0 20 0 9 0 8800 1000000 5000 18446744073709551615
VmRSS:\t   20480 kB
netdev@ovs-netdev:
  lookups: hit:998 missed:2 lost:0
  flows: 2
system@ovs-system:
  lookups: hit:10 missed:40 lost:3
limit 7
sw_flow              1000   1200    768   42    8 : tunables    0    0    0
nf_conntrack           10     64    256   16    1 : tunables    0    0    0
"""


def test_all_datapaths_are_added_up() -> None:
    reading = parse_reading(TEXT, at_s=5.0)
    assert (reading.missed, reading.lost, reading.limit_hits) == (42, 3, 7)
    assert (reading.vswitchd_cpu_s, reading.softirq_cpu_s) == (20.0, 3.45)
    assert (reading.rss_bytes, reading.kernel_bytes) == (20480 * 1024, 1000 * 768 + 10 * 256)


def test_what_a_kernel_does_not_show_is_none() -> None:
    shown = "".join(f"{line}\n" for line in TEXT.splitlines() if not line.startswith(("sw_flow", "nf_conn", "limit")))
    reading = parse_reading(shown, at_s=5.0)
    assert (reading.limit_hits, reading.kernel_bytes) == (0, 0)


def test_the_cost_of_a_packet_is_cpu_time_of_switch_and_kernel() -> None:
    before = parse_reading(TEXT, at_s=5.0)
    after = parse_reading(TEXT.replace("1234 766", "1244 776").replace("missed:40", "missed:90"), at_s=7.0)
    values = after.since(before, packets=1000)
    assert values["cpu_us"] == pytest.approx(200.0)
    assert values["upcalls_pps"] == 25.0
