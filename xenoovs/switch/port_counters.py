"""Packets that ports received for the CPU, by ip-stats(8), ethtool(8) or sysfs.

What `rx_packets` of a port in switchdev mode counts depends on the driver: mlx5 counts there what the NIC forwards
itself too (drivers/net/ethernet/mellanox/mlx5/core/en_rep.c, mlx5e_rep_get_stats). For the packets of the CPU alone
Linux has statistics of their own, CPU_HIT (uapi/linux/if_link.h, IFLA_OFFLOAD_XSTATS_CPU_HIT).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.errors import SwitchError
from xenoovs.switch.process import try_run

_CPU_HIT = ("ip", "-j", "stats", "show", "group", "offload", "subgroup", "cpu_hit")
"""Since iproute2 5.19."""
_SPLIT = re.compile(r"^\s+(?:vport_rx_packets|rx_packets_phy|rx_vport_unicast_packets): ", re.MULTILINE)
"""Names beside which `rx_packets` counts the packets of the CPU alone (mlx5)."""
_RX = re.compile(r"^\s+rx_packets: ([0-9]{1,20})$", re.MULTILINE)
_DEVICES = Path("/sys/class/net")


def read_port_packets(ports: Iterable[str]) -> dict[str, PortPackets]:
    """Return the packets that each port received for the CPU; ports without such a counter are absent. Never raises."""
    names = tuple(ports)
    if not names:
        return {}
    with suppress(SwitchError):
        hits = parse_cpu_hits(try_run(_CPU_HIT).stdout)
        found = {name: hits[name] for name in names if name in hits}
        others = {name: each for name in names if name not in found and (each := _other(name))}
        return {**others, **found}
    return {name: each for name in names if (each := _other(name))}


def parse_cpu_hits(text: str) -> dict[str, PortPackets]:
    """Parse the JSON of `ip stats show group offload subgroup cpu_hit`; empty for anything else."""
    found = dict[str, PortPackets]()
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        for row in json.loads(text):
            if "stats64" in row:
                packets = int(row["stats64"]["rx"]["packets"])
                found[str(row["ifname"])] = PortPackets(packets, CpuCounter.CPU, "cpu_hit of `ip stats`")
    return found


def parse_ethtool(text: str) -> PortPackets | None:
    """Return `rx_packets` of `ethtool -S PORT` if it counts the packets of the CPU alone."""
    received = _RX.search(text)
    if received is None or not _SPLIT.search(text):
        return None
    return PortPackets(int(received[1]), CpuCounter.CPU, "rx_packets of `ethtool -S`")


def _other(port: str) -> PortPackets | None:
    with suppress(SwitchError):
        if (found := parse_ethtool(try_run(["ethtool", "-S", port]).stdout)) is not None:
            return found
    with suppress(OSError, ValueError):
        # A bond adds up what its members count, each in its own way.
        if not (_DEVICES / port / "bonding").exists():
            packets = int((_DEVICES / port / "statistics" / "rx_packets").read_text())
            return PortPackets(packets, CpuCounter.ALL, "rx_packets of the device")
    return None
