"""Packets that ports received for the CPU, as ip(8) and ethtool(8) print them."""

from __future__ import annotations

import pytest

from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.switch.port_counters import parse_cpu_hits, parse_ethtool, read_port_packets

# In the form that ip/ipstats.c of iproute2 6.1 prints; lo has no such statistics.
CPU_HIT = (
    '[{"ifindex":1,"ifname":"lo","group":"offload","subgroup":"cpu_hit"},{"ifindex":2,"ifname":"p0","group":"offload",'
    '"subgroup":"cpu_hit","stats64":{"rx":{"bytes":3300,"packets":33,"errors":0,"dropped":0,"over_errors":0,'
    '"multicast":0},"tx":{"bytes":0,"packets":0,"errors":0,"dropped":0,"carrier_errors":0,"collisions":0}}}]'
)
# After drivers/net/ethernet/mellanox/mlx5/core/en_stats.c of Linux 6.1: `rx_packets` is of the software's queues.
UPLINK = "NIC statistics:\n     rx_packets: 33\n     rx_bytes: 3300\n     rx_packets_phy: 1000033\n"
VETH = "NIC statistics:\n     peer_ifindex: 5\n     rx_packets: 33\n"


def test_packets_for_the_cpu_by_ip() -> None:
    assert parse_cpu_hits(CPU_HIT) == {"p0": PortPackets(33, CpuCounter.CPU, "cpu_hit of `ip stats`")}


@pytest.mark.parametrize("text", ["", "{", "3", "[1]", '[{"stats64":{}}]', 'Object "stats" is unknown, try "ip help".'])
def test_another_answer_of_ip_has_none(text: str) -> None:
    assert parse_cpu_hits(text) == {}


def test_packets_for_the_cpu_by_ethtool_where_it_splits() -> None:
    assert parse_ethtool(UPLINK) == PortPackets(33, CpuCounter.CPU, "rx_packets of `ethtool -S`")
    assert parse_ethtool(VETH) is None
    assert parse_ethtool("no stats available\n") is None


def test_another_device_has_the_counter_of_its_driver() -> None:
    found = read_port_packets(["lo", "no-such-device"])
    assert found.keys() == {"lo"}
    assert (found["lo"].counter, found["lo"].source) == (CpuCounter.ALL, "rx_packets of the device")
    assert read_port_packets([]) == {}
