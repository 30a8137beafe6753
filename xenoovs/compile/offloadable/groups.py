"""The groups of a bridge, as far as the kind of choice goes: `ovs-ofctl -O OpenFlow15 dump-groups BRIDGE`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xenoovs.errors import ParseError

_GROUP = re.compile(r"\s*group_id=([0-9]+),type=(all|select|indirect|ff|fast_failover)(?:,(.*))?", re.ASCII)
_HEADER = re.compile(r"\s*(?:OFPST|NXST|OFPMP)_GROUP.* reply .*:?|\s*(?:#.*)?", re.ASCII)
_METHOD = re.compile(r"selection_method=([a-z_]+)", re.ASCII)
_FIELDS = re.compile(r"fields\(([^()]*)\)|fields=([a-z0-9_]+)", re.ASCII)
_BUCKET_ACTIONS = re.compile(r"actions=(.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Group:
    """topic: what the table calls it. text: as it was printed. buckets: the actions of each, as text."""

    topic: str
    text: str
    buckets: tuple[str, ...]


def parse_groups(text: str) -> Mapping[int, Group]:
    """Groups by their number. Raises ParseError with the line."""
    groups: dict[int, Group] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _GROUP.fullmatch(line):
            head, *buckets = (found[3] or "").split("bucket=")
            actions = (_BUCKET_ACTIONS.search(bucket) for bucket in buckets)
            texts = tuple(hit[1].rstrip(",") for hit in actions if hit)
            groups[int(found[1])] = Group(_topic(found[2], head), line.strip(), texts)
        elif not _HEADER.fullmatch(line):
            raise ParseError(text=line, offset=0, expected="a group as ovs-ofctl dumps it", line=number)
    return groups


def _topic(kind: str, head: str) -> str:
    if kind == "all":
        return "group-all"
    if kind != "select":
        return "group-one"
    method = _METHOD.search(head)
    if method is None or method[1] == "dp_hash":
        return "group-dp-hash"
    if method[1] != "hash":
        return "group"
    fields = _FIELDS.search(head)
    # Without fields the hash covers addresses and ports (ovs-ofctl(8), "selection_method").
    return "group-hash-masked" if fields and fields[1] and "=" in fields[1] else "group-hash-exact"
