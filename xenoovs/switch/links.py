"""Devices, qdiscs, neighbours and addresses by `ip -j` and `tc -j` (ip-link(8), tc(8), ip-neighbour(8))."""

from __future__ import annotations

import re
from typing import Any

from xenoovs.datapath.host import Device, Neighbour
from xenoovs.switch.json_text import member, read_json, rows_of

LINKS = ("ip", "-j", "-d", "link", "show")
QDISCS = ("tc", "-j", "qdisc", "show")
NEIGHBOURS = ("ip", "-j", "neigh", "show")
LOOPBACK = ("ip", "-j", "address", "show", "dev", "lo")

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DEAD = frozenset(("FAILED", "INCOMPLETE"))


def parse_links(text: str) -> dict[str, Device]:
    """The answer to LINKS, by name. Raises ParseError."""
    expected = "the list of links of `ip -j -d link show`"
    rows = rows_of(read_json(text, expected=expected), expected=expected)
    devices = (_device(row, expected=expected) for row in rows)
    return {device.name: device for device in devices}


def _device(row: dict[str, Any], *, expected: str) -> Device:
    flags = member(row, "flags", list, expected=expected)
    parent = row.get("parentdev")
    return Device(
        name=member(row, "ifname", str, expected=expected),
        is_up="UP" in flags,
        mtu=member(row, "mtu", int, expected=expected),
        pci=parent if isinstance(parent, str) and _PCI.fullmatch(parent) else None,
        switch_id=row.get("phys_switch_id"),
        port_name=row.get("phys_port_name"),
        master=row.get("master"),
    )


def parse_ingress(text: str) -> frozenset[str]:
    """The answer to QDISCS: devices that have a qdisc for what comes in, `ingress` or `clsact`. Raises ParseError."""
    expected = "the list of qdiscs of `tc -j qdisc show`"
    rows = rows_of(read_json(text, expected=expected), expected=expected)
    kinds = ((member(row, "kind", str, expected=expected), row.get("dev")) for row in rows)
    return frozenset(str(dev) for kind, dev in kinds if kind in ("ingress", "clsact") and dev is not None)


def parse_neighbours(text: str) -> tuple[Neighbour, ...]:
    """The answer to NEIGHBOURS: those that have answered. Raises ParseError."""
    expected = "the list of neighbours of `ip -j neigh show`"
    rows = rows_of(read_json(text, expected=expected), expected=expected)
    return tuple(
        Neighbour(
            address=member(row, "dst", str, expected=expected),
            mac=str(row["lladdr"]).lower(),
            device=member(row, "dev", str, expected=expected),
        )
        for row in rows
        if "lladdr" in row and _DEAD.isdisjoint(row.get("state", ()))
    )


def parse_addresses(text: str) -> tuple[str, ...]:
    """The answer to LOOPBACK: addresses without their prefix lengths. Raises ParseError."""
    expected = "the list of addresses of `ip -j address show`"
    rows = rows_of(read_json(text, expected=expected), expected=expected)
    infos = (info for row in rows for info in rows_of(row.get("addr_info", []), expected=expected))
    return tuple(member(info, "local", str, expected=expected) for info in infos)


def parse_macs(text: str) -> tuple[str, ...]:
    """The answer to LINKS: Ethernet addresses of devices. Raises ParseError."""
    expected = "the list of links of `ip -j -d link show`"
    rows = rows_of(read_json(text, expected=expected), expected=expected)
    return tuple(str(row["address"]).lower() for row in rows if row.get("link_type") == "ether" and "address" in row)
