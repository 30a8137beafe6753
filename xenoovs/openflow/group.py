"""`Failover` actions and the fast-failover groups that stand for them on a bridge, both ways. Pure.

A group is never changed, and identified by what it does: a flow whose action changes gets another group. Groups are so
details of a connection to a switch, and nothing else of xenoovs knows their numbers. As cookies, numbers have an owner
part; groups of other owners are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import chain

from xenoovs.errors import SwitchError
from xenoovs.openflow.flow import (
    OWNER,
    Action,
    Bundle,
    Command,
    Failover,
    Field,
    Flow,
    FlowKey,
    Foreign,
    Group,
    ObservedFlow,
    SetField,
)
from xenoovs.openflow.text import PROTOCOL_KEYWORDS, failover_of, parse_actions, parse_name, render_actions
from xenoovs.regex import ASCII, MULTILINE, regex

_FIRST, _COUNT = OWNER << 16, 1 << 16
"""The owner is that of cookies."""

_REFERENCE = regex(r"group:([0-9]{1,10})", ASCII)
_IN_DUMP = regex(r"(?<=[=,])group:([0-9]{1,10})$", ASCII | MULTILINE)

IN_FRAME = (22).to_bytes(2, "big") + (8).to_bytes(2, "big") + OWNER.to_bytes(2, "big")
"""How an action of such a group begins on the wire (OpenFlow 1.4.0, 7.2.5: OFPAT_GROUP)."""

Users = Callable[[tuple[int, ...]], Iterable[tuple[int, FlowKey]]]
"""Returns the keys of all flows of a bridge, also foreign ones, that name one of these groups."""


def is_numbered(number: int) -> bool:
    """Return whether the number of a group has the owner part of xenoovs."""
    return _FIRST <= number < _FIRST + _COUNT


class _Numbers:
    """Numbers for groups on a bridge: those that are there, and free ones near the hash of what a group does."""

    def __init__(self, there: Iterable[Group]) -> None:
        self._taken = {group.number: group for group in there if is_numbered(group.number)}
        self.added, self.used = list[Group](), set[int]()

    def of(self, failover: Failover, protocol: int | None) -> int:
        """Return the number of the group that does this. Raises SwitchError."""
        text = f"{protocol} {render_actions((failover,))}"
        first = int.from_bytes(blake2b(text.encode(), digest_size=2).digest(), "big")
        for offset in range(_COUNT):
            wanted = Group(_FIRST + (first + offset) % _COUNT, failover, protocol)
            found = self._taken.setdefault(wanted.number, wanted)
            if found is wanted:
                self.added.append(wanted)
            if found == wanted:
                self.used.add(wanted.number)
                return wanted.number
        raise SwitchError(
            f"the bridge has {_COUNT} groups from {_FIRST:#x} on, all numbers that xenoovs uses; remove some"
        )


def _protocol(flow: Flow, failover: Failover) -> int | None:
    """Return the protocol whose ports are set."""
    actions = chain.from_iterable(failover.buckets)
    sets_port = any(isinstance(action, SetField) and action.field in (Field.TP_SRC, Field.TP_DST) for action in actions)
    found = flow.match.get(Field.NW_PROTO) if sets_port else None
    return None if found is None else found.value


def with_groups(flows: Iterable[Flow]) -> tuple[tuple[Group, ...], tuple[Flow, ...]]:
    """Return the groups that flows need on a bridge without any, and the flows that name them."""
    numbers = _Numbers(())
    named = tuple(_named(flow, numbers) for flow in flows)
    return tuple(numbers.added), named


def _named(flow: Flow, numbers: _Numbers) -> Flow:
    failover = flow.failover
    if failover is None:
        return flow
    named = Foreign(f"group:{numbers.of(failover, _protocol(flow, failover))}")
    return replace(flow, actions=(*flow.actions[:-1], named))


def grouped(bundle: Bundle, there: Iterable[Group], users: Users) -> Bundle:
    """Return the bundle that a bridge with these groups takes: new groups, then flows, then groups without flows. A
    group that a foreign flow names stays. Raises SwitchError where no number is free."""
    known = tuple(there)
    numbers = _Numbers(known)
    mods = [replace(m, flow=_named(m.flow, numbers)) if m.command is not Command.DELETE else m for m in bundle.mods]
    ours = {each.number: each for each in known if is_numbered(each.number) and each.failover is not None}
    unused = tuple(sorted(ours.keys() - numbers.used))
    changed = {mod.flow.key for mod in mods}
    still_used = {number for number, key in (users(unused) if unused else ()) if key not in changed}
    deleted = tuple(ours[number] for number in unused if number not in still_used)
    return Bundle(tuple(mods), added=tuple(numbers.added), deleted=deleted)


def resolved(flows: Iterable[ObservedFlow], groups: Iterable[Group]) -> tuple[ObservedFlow, ...]:
    """Return flows with what their groups do, where xenoovs could have made these."""
    known = {group.number: group for group in groups if is_numbered(group.number) and group.failover is not None}
    return tuple(replace(seen, flow=_resolved(seen.flow, known)) if known else seen for seen in flows)


def _resolved(flow: Flow, known: Mapping[int, Group]) -> Flow:
    group = known.get(number) if (number := group_number(flow.actions)) is not None else None
    if group is None or group.failover is None or group.protocol != _protocol(flow, group.failover):
        return flow
    return replace(flow, actions=(*flow.actions[:-1], group.failover))


_DUMPED = regex(r"\s*group_id=([0-9]{1,10}),type=(?:ff|fast_failover),bucket=(.+)", ASCII)
_BUCKET = regex(r"(?:bucket_id:\d+,)?(?:weight:\d+,)?watch_port:([^,]+),actions=(.+)", ASCII)
_SETS_PORT = regex(r"->(tcp|udp|sctp)_(?:src|dst)", ASCII)


def parse_group_dump(text: str) -> Iterator[Group]:
    """Yield the groups in the output of `ovs-ofctl --names dump-groups` that xenoovs could have made."""
    for line in text.splitlines():
        head = _DUMPED.fullmatch(line)
        parts = [_BUCKET.fullmatch(part.rstrip(",")) for part in head[2].split(",bucket=")] if head else []
        found = [part for part in parts if part is not None]
        if head is None or len(found) < len(parts):
            continue
        try:
            failover = failover_of(parse_actions(part[2]) for part in found)
            watched = tuple(parse_name(part[1]) for part in found)
        except ValueError:
            continue
        protocols = {PROTOCOL_KEYWORDS[word][1] for word in _SETS_PORT.findall(line)}
        if failover is not None and failover.ports == watched and len(protocols) < 2:
            yield Group(int(head[1]), failover, next(iter(protocols), None))


def group_number(actions: tuple[Action, ...]) -> int | None:
    """Return the number of the group that is the last action of a flow."""
    found = _REFERENCE.fullmatch(last.text) if actions and isinstance(last := actions[-1], Foreign) else None
    return int(found[1]) if found else None


def resolved_text(dump: str, groups: Iterable[Group]) -> str:
    """Return a dump without counters of flows of xenoovs with what their groups do."""
    texts = {
        str(each.number): render_actions((each.failover,))
        for each in groups
        if is_numbered(each.number) and each.failover is not None
    }
    return _IN_DUMP.sub(lambda found: texts.get(found[1], found[0]), dump) if texts else dump
