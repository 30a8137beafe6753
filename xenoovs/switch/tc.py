"""Filters and blocks by tc(8): what the kernel's traffic control holds at a port, read only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.datapath.tc import TcFilter, parse_tc_json, parse_tc_text
from xenoovs.errors import CommandFailed, ParseError, SwitchError
from xenoovs.switch.process import run


@dataclass(frozen=True, slots=True)
class FilterDump:
    """The filters of some devices. `unread`: device and why its filters could not be read."""

    filters: tuple[TcFilter, ...]
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def by_cookie(self) -> dict[str, TcFilter]:
        """Filters that have a cookie; where two share one, as on several ports of a bond, the first."""
        found: dict[str, TcFilter] = {}
        for entry in self.filters:
            if entry.cookie is not None:
                found.setdefault(entry.cookie, entry)
        return found


def dump_filters(devices: Iterable[str]) -> FilterDump:
    """The ingress filters of network devices, by name; of tunnels, the device is e.g. `vxlan_sys_4789`.

    A device that shares a block (a bond that Linux made) has its filters in the block. Raises CommandMissing,
    CommandTimeout; a device that cannot be read is told in `unread`.
    """
    blocks = _blocks()
    places = dict.fromkeys(("block", blocks[name]) if name in blocks else ("dev", name) for name in devices)
    filters, unread = list[TcFilter](), list[tuple[str, str]]()
    for kind, name in places:
        try:
            filters += _read([kind, name, "ingress"] if kind == "dev" else [kind, name])
        except CommandFailed as failed:
            unread.append((name, failed.stderr.strip()))
    return FilterDump(tuple(filters), tuple(unread))


def _read(place: list[str]) -> tuple[TcFilter, ...]:
    try:
        return parse_tc_json(run(["tc", "-j", "-s", "filter", "show", *place]).stdout)
    except ParseError:
        # Old releases of iproute2 print `police` as text into the JSON.
        return parse_tc_text(run(["tc", "-s", "filter", "show", *place]).stdout)


def _blocks() -> dict[str, str]:
    """Device -> number of the block that holds its ingress filters (tc(8), "BLOCK")."""
    text = run(["tc", "-j", "qdisc", "show"]).stdout
    try:
        rows = json.loads(text or "[]")
        return {row["dev"]: str(row["ingress_block"]) for row in rows if "ingress_block" in row}
    except (ValueError, KeyError, TypeError):
        raise SwitchError(
            f"`tc -j qdisc show` printed no JSON but {text[:100]!r}; iproute2 4.19 or newer does"
        ) from None
