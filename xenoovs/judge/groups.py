"""Groups of any program on a bridge: which buckets are in use, and whether megaflows follow them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from xenoovs.compile.offloadable.openflow_topics import OpenFlowGroup
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.megaflow import Megaflow, output_ports
from xenoovs.errors import counted
from xenoovs.regex import ASCII, MULTILINE, regex

_PASSED = regex(r"^ *group:([0-9]{1,10})$", MULTILINE | ASCII)
"""A group action as ofproto/trace prints it (xlate_group_action() of ofproto/ofproto-dpif-xlate.c)."""
_MAX_DEPTH = 128
"""Depth of groups that watch groups (MAX_LIVENESS_RECURSION there)."""


@dataclass(frozen=True, slots=True)
class GroupUse:
    """The state of a group. `in_use`: buckets, from 0 as in ovs-ofctl. `dead`: watched ports and groups that are not
    live. `megaflows`: number of traced ones that pass it. `stale`: how many of these leave by a dead port."""

    number: int
    kind: str
    buckets: int
    in_use: tuple[int, ...]
    dead: tuple[str, ...]
    megaflows: int = 0
    stale: int = 0

    @property
    def is_bad(self) -> bool:
        return not self.in_use or bool(self.stale)

    def __str__(self) -> str:
        used = f"bucket {', '.join(map(str, self.in_use))} of {counted(self.buckets, 'bucket')} in use"
        used = used if self.in_use else "no live bucket, packets are dropped"
        why = f", as {' and '.join(self.dead)} {'is' if len(self.dead) == 1 else 'are'} dead" if self.dead else ""
        passed = f"; {counted(self.megaflows, 'megaflow')}, {self.stale or 'none'} of them by a dead port"
        return f"group {self.number} ({self.kind}): {used}{why}{passed if self.megaflows else ''}"


def group_uses(
    groups: Mapping[int, OpenFlowGroup], live: Collection[str], traced: Iterable[tuple[Megaflow, str]]
) -> tuple[GroupUse, ...]:
    """Return the state of each group of a bridge, by number. `live`: its live ports. `traced`: megaflows, each with
    what ofproto/trace prints for it."""
    uses = {number: _use(number, groups, live) for number in sorted(groups)}
    for megaflow, text in traced:
        left = {f"port {name}" for name in output_ports(megaflow)}
        for number in {int(found) for found in _PASSED.findall(text)} & uses.keys():
            use = uses[number]
            stale = use.stale + (not left.isdisjoint(use.dead))
            uses[number] = replace(use, megaflows=use.megaflows + 1, stale=stale)
    return tuple(uses.values())


def _use(number: int, groups: Mapping[int, OpenFlowGroup], live: Collection[str], depth: int = 0) -> GroupUse:
    group, alive, dead = groups[number], list[int](), list[str]()
    for index, (port, other) in enumerate(group.watched):
        is_followed = bool(other) and int(other) in groups and depth < _MAX_DEPTH
        is_live = port in live or (is_followed and _use(int(other), groups, live, depth + 1).in_use)
        # As bucket_is_alive() there; for types all and indirect group_is_alive() checks no bucket.
        if is_live or not (port or other) or group.kind in ("all", "indirect"):
            alive.append(index)
        else:
            dead += [f"port {port}"] * bool(port) + [f"group {other}"] * bool(other)
    chosen = alive[:1] if group.kind in ("ff", "fast_failover") else alive
    return GroupUse(number, group.kind, len(group.watched), tuple(chosen), tuple(dict.fromkeys(dead)))
