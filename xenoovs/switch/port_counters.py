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
from dataclasses import replace
from pathlib import Path

from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.errors import SwitchError
from xenoovs.switch.netns import HERE, Netns
from xenoovs.switch.process import try_run
from xenoovs.switch.tape import list_files, read_file

_CPU_HIT = ("ip", "-j", "stats", "show", "group", "offload", "subgroup", "cpu_hit")
"""Since iproute2 5.19."""
_SPLIT = re.compile(r"^\s+(?:vport_rx_packets|rx_packets_phy|rx_vport_unicast_packets): ", re.MULTILINE)
"""Names beside which `rx_packets` counts the packets of the CPU alone (mlx5)."""
_RX = re.compile(r"^\s+rx_packets: ([0-9]{1,20})$", re.MULTILINE)
_ENTERED = re.compile(r"^\s+(?:vport_rx_packets|rx_packets_phy): ([0-9]{1,20})$", re.MULTILINE)
"""At a representor or at the wire (counters.rst of mlx5 in the kernel's documentation)."""
_DEVICES = Path("/sys/class/net")


def read_port_packets(ports: Iterable[str], place: Netns = HERE, *, is_brief: bool = False) -> dict[str, PortPackets]:
    """Return the packets that each port received for the CPU; ports without such a counter are absent. Never raises.
    `is_brief`: one process serves all ports whose driver has CPU_HIT; of them `entered` is not read."""
    names, hits = tuple(ports), dict[str, PortPackets]()
    if names:
        with suppress(SwitchError):
            hits = parse_cpu_hits(try_run(place.argv(*_CPU_HIT)).stdout)
    found = {name: hits[name] if is_brief and name in hits else _port(name, hits.get(name), place) for name in names}
    return {name: each for name, each in found.items() if each is not None}


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
    return PortPackets(int(received[1]), CpuCounter.CPU, "rx_packets of `ethtool -S`", parse_entered(text))


def parse_entered(text: str) -> int | None:
    """Return all packets that entered the port of an `ethtool -S PORT`; None if it does not show them."""
    found = _ENTERED.search(text)
    return int(found[1]) if found else None


def _port(port: str, cpu_hits: PortPackets | None, place: Netns) -> PortPackets | None:
    with suppress(SwitchError):
        shown = try_run(place.argv("ethtool", "-S", port)).stdout
        if (found := replace(cpu_hits, entered=parse_entered(shown)) if cpu_hits else parse_ethtool(shown)) is not None:
            return found
    if cpu_hits is not None or place != HERE:
        # sysfs shows the devices of the namespace that it was mounted in (sysfs(5)).
        return cpu_hits
    with suppress(ValueError):
        # A bond adds up what its members count, each in its own way.
        if not list_files(_DEVICES / port, "bonding"):
            packets = int(read_file(_DEVICES / port / "statistics" / "rx_packets") or "")
            return PortPackets(packets, CpuCounter.ALL, "rx_packets of the device")
    return None
