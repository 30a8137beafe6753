"""All flows and groups of a bridge, also those of others, as text that goes back into Open vSwitch as it came out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xenoovs.errors import CommandFailed, ReadBackDiffers
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift

_VERSION = "OpenFlow14"
_TIMEOUT_S = 60.0
_TABLE_NAMED = re.compile(r"\btable=[^0-9]|resubmit\(,[^0-9]")


@dataclass(frozen=True, slots=True)
class Tables:
    """What `ovs-ofctl dump-flows --no-stats` and `dump-groups` print for one bridge, a line each."""

    flows: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def bundle(self) -> str:
        """All of it as a file for `ovs-ofctl bundle`: groups first, for flows name them."""
        groups = (f"group add {group}\n" for group in self.groups)
        return "".join((*groups, *(f"flow add {flow}\n" for flow in self.flows)))


def dump_tables(endpoint: Endpoint, bridge: str) -> Tables:
    """Read everything. Raises SwitchError.

    Ports stand by name, so that flows hold when numbers are given anew; where tables have names everything stands by
    number, for table names end with the process.
    """
    flows = _lines(_ofctl(endpoint, bridge, "--names", "--no-stats", "dump-flows"))
    if any(_TABLE_NAMED.search(line) for line in flows):
        flows = _lines(_ofctl(endpoint, bridge, "--no-names", "--no-stats", "dump-flows"))
    return Tables(flows, _lines(_ofctl(endpoint, bridge, "--names", "dump-groups")))


def restore_tables(endpoint: Endpoint, bridge: str, tables: Tables) -> None:
    """Put everything back in one atomic bundle and read it back. What is there besides stays.

    Raises SwitchError; ReadBackDiffers with the number of lines that are not there then.
    """
    there = dump_tables(endpoint, bridge)
    # A second `group add` of one number is refused.
    missing = Tables(tables.flows, tuple(group for group in tables.groups if group not in there.groups))
    if missing.flows or missing.groups:
        _ofctl(endpoint, bridge, "--bundle", "bundle", "-", stdin=missing.bundle)
    now = dump_tables(endpoint, bridge)
    lost = len({*tables.flows} - {*now.flows}) + len({*tables.groups} - {*now.groups})
    if lost:
        raise ReadBackDiffers(bridge=bridge, flows=lost)


def _lines(text: str) -> tuple[str, ...]:
    # Headers such as `OFPST_GROUP_DESC reply (OF1.4) (xid=0x2):` start at the margin, what was asked for does not.
    return tuple(line.strip() for line in text.splitlines() if line.startswith(" "))


def _ofctl(endpoint: Endpoint, bridge: str, *words: str, stdin: str | None = None) -> str:
    *options, command = words if words[-1] != "-" else words[:-1]
    file = ["-"] if words[-1] == "-" else []
    argv = ["ovs-ofctl", "-O", _VERSION, *options, command, endpoint.management(bridge), *file]
    try:
        return run(argv, stdin=stdin, timeout_s=_TIMEOUT_S, env=endpoint.env).stdout
    except CommandFailed as failed:
        raise lift(failed, endpoint=endpoint, bridge=bridge) from None
