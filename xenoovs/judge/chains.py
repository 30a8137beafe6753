"""Chains of recirculation: packets that pass the datapath several times are as fast as their slowest pass.

`recirc(0x1)` in the actions of a megaflow continues with those that match `recirc_id(0x1)` (ovs-actions(7), ct).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.megaflow import Megaflow, Verdict, parse_number
from xenoovs.evidence.samples import NO_GROWTH, Growth
from xenoovs.regex import ASCII, regex

_RECIRC = regex(r"\brecirc\((0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10})\)", ASCII)


def recirculations(megaflow: Megaflow) -> tuple[int, ...]:
    """Return the recirculation ids in the actions, also in nested ones."""
    return tuple(parse_number(found) for action in megaflow.actions for found in _RECIRC.findall(action))


def is_hop(megaflow: Megaflow) -> bool:
    """Return whether a megaflow is part of a chain."""
    return megaflow.recirc_id != 0 or any("recirc(" in action for action in megaflow.actions)


@dataclass(frozen=True, slots=True)
class Hop:
    """One megaflow of chains. All hops of a chain have one `in_port`. `is_judged`: False if it belongs in software."""

    in_port: str
    recirc_id: int
    targets: tuple[int, ...]
    verdict: Verdict
    packets: int
    hw_packets: int
    hw_bytes: int
    is_judged: bool = True
    growth: Growth | None = None
    exits: frozenset[str] = frozenset()


_Group = tuple[str, int]
"""Ingress port and recirculation id."""


class _Graph:
    """The graph of hops. Hops with the same ingress port and recirculation id have the same predecessors."""

    def __init__(self, hops: Sequence[Hop]) -> None:
        self.before, self.behind = defaultdict[_Group, list[int]](list), defaultdict[_Group, list[int]](list)
        for number, hop in enumerate(hops):
            for target in hop.targets:
                self.before[hop.in_port, target].append(number)
            if hop.recirc_id:
                self.behind[hop.in_port, hop.recirc_id].append(number)
        self.order = self._from_first_to_last(hops)

    def _from_first_to_last(self, hops: Sequence[Hop]) -> list[int]:
        """Return the numbers of the hops in topological order; loops are cut."""
        done, ordered = set[object](), list[int]()
        for first in sorted(range(len(hops)), key=lambda number: hops[number].recirc_id != 0):
            stack: list[tuple[int | _Group, bool]] = [(first, False)]
            while stack:
                node, is_left = stack.pop()
                if is_left and isinstance(node, int):
                    ordered.append(node)
                if is_left or node in done:
                    continue
                done.add(node)
                if isinstance(node, int):
                    stack.append((node, True))
                    stack += [((hops[node].in_port, target), False) for target in hops[node].targets]
                else:
                    stack += [(each, False) for each in self.behind.get(node, ())]
        return ordered[::-1]


def judge_chains(hops: Iterable[Hop]) -> tuple[Hop, ...]:
    """Return the hops with the worst verdict of the hops before and behind them.

    A packet is in hardware if all its hops are. It is unknown which packets of a hop continue in which next hop. So the
    share of all next hops together limits the share of the hop, as does that of all hops before it.
    """
    found = list(hops)
    graph = _Graph(found)
    totals = dict[_Group, Hop | None]()
    for number in reversed(graph.order):
        for target in found[number].targets:
            group = found[number].in_port, target
            if group not in totals:
                totals[group] = _total(found, graph.behind.get(group, ()))
            found[number] = _limited(found[number], totals[group])
    totals.clear()
    for number in graph.order:
        group = found[number].in_port, found[number].recirc_id
        if found[number].recirc_id:
            if group not in totals:
                totals[group] = _total(found, graph.before.get(group, ()))
            found[number] = _limited(found[number], totals[group])
    return tuple(found)


def _total(hops: Sequence[Hop], numbers: Sequence[int]) -> Hop | None:
    """Return the sum of a group's judged hops; only of those with packets, if there are any."""
    judged = [hops[each] for each in numbers if hops[each].is_judged]
    active = [each for each in judged if each.packets] or judged
    if not active:
        return None
    return replace(
        active[0],
        verdict=max((each.verdict for each in active), key=lambda verdict: verdict.badness),
        packets=sum(each.packets for each in active),
        hw_packets=sum(each.hw_packets for each in active),
        growth=sum((each.growth for each in active if each.growth), NO_GROWTH),
    )


def _limited(hop: Hop, total: Hop | None) -> Hop:
    """Return a hop with no larger share in hardware, and no better verdict, than its neighbours have."""
    if total is None:
        return hop
    share = total.hw_packets / total.packets if total.packets else 1.0
    growth = hop.growth
    if growth is not None and total.growth is not None and total.growth.packets:
        limit = growth.packets * total.growth.hw_packets // total.growth.packets
        growth = replace(growth, hw_packets=min(growth.hw_packets, limit))
    hw_now = min(hop.hw_packets, int(hop.packets * share))
    return replace(
        hop,
        verdict=max(hop.verdict, total.verdict, key=lambda verdict: verdict.badness),
        hw_packets=hw_now,
        hw_bytes=hop.hw_bytes * hw_now // hop.hw_packets if hop.hw_packets else 0,
        growth=growth,
    )


@dataclass(frozen=True, slots=True)
class ChainLink:
    """The place of one hop in its chains. Numbers are indices of the hops.

    Attributes:
        root: the first hop of a chain that leads here; the hop itself if none does.
        before: the first judged hop before it that is not in hardware; None if there is none.
        failing: the first judged hop from this one on that is not in hardware; None if there is none.
        depth: number of hops from this one to `failing`.
        is_judged: False also behind hops that are not judged, as behind the first packet of a connection.
        is_after_judged: whether it is the first hop or a judged hop leads to it.
    """

    root: int
    is_judged: bool
    before: int | None = None
    failing: int | None = None
    depth: int = 0
    exits: frozenset[str] = frozenset()
    is_after_judged: bool = True

    @property
    def is_in_software(self) -> bool:
        """Whether packets of its chains pass a hop that is not in hardware."""
        return self.before is not None or self.failing is not None


_Rest = tuple[int | None, int, frozenset[str]]
"""The hops from one hop on, itself included: the first failing one, its distance, and all exit ports."""


def link_chains(hops: Sequence[Hop]) -> tuple[ChainLink, ...]:
    """Return the place of each hop in its chains. Loops are cut. Takes linear time, as hops share results."""
    graph = _Graph(hops)
    links = _look_ahead(hops, graph)
    rests = _look_behind(hops, graph, [link.is_judged for link in links])
    return tuple(
        replace(link, failing=failing, depth=depth, exits=exits)
        for link, (failing, depth, exits) in zip(links, rests, strict=True)
    )


def _look_ahead(hops: Sequence[Hop], graph: _Graph) -> list[ChainLink]:
    """Return the links with what the hops before them decide."""
    found = [ChainLink(number, hop.is_judged) for number, hop in enumerate(hops)]
    groups, done = dict[_Group, ChainLink](), set[int]()
    for number in graph.order:
        hop = hops[number]
        group = hop.in_port, hop.recirc_id
        if hop.recirc_id and group not in groups:
            leading = [each for each in graph.before.get(group, ()) if each in done]
            if leading:
                failing = (_first_failing(hops, each, found[each]) for each in leading)
                first = next((each for each in failing if each is not None), None)
                is_judged = any(found[each].is_judged for each in leading)
                groups[group] = ChainLink(found[leading[0]].root, is_judged, first)
        if hop.recirc_id and group in groups:
            shared = groups[group]
            is_judged = hop.is_judged and shared.is_judged
            found[number] = replace(shared, is_judged=is_judged, is_after_judged=shared.is_judged)
        done.add(number)
    return found


def _first_failing(hops: Sequence[Hop], number: int, link: ChainLink) -> int | None:
    """Return the first failing hop up to this one."""
    if link.before is not None:
        return link.before
    return number if link.is_judged and hops[number].verdict.is_software else None


def _look_behind(hops: Sequence[Hop], graph: _Graph, is_judged: Sequence[bool]) -> list[_Rest]:
    found: list[_Rest] = [(None, 0, hop.exits) for hop in hops]
    groups, done = dict[_Group, _Rest](), set[int]()
    for number in reversed(graph.order):
        hop = hops[number]
        ways = list[_Rest]()
        for target in hop.targets:
            group = hop.in_port, target
            if group not in groups:
                groups[group] = _together([found[each] for each in graph.behind.get(group, ()) if each in done])
            ways.append(groups[group])
        failing, depth, exits = _together(ways)
        if is_judged[number] and hop.verdict.is_software:
            failing, depth = number, -1
        found[number] = failing, 0 if failing is None else depth + 1, hop.exits | exits
        done.add(number)
    return found


def _together(ways: Sequence[_Rest]) -> _Rest:
    """Merge several ways on: all exits, and the nearest failing hop."""
    exits = frozenset[str]().union(*(exits for _, _, exits in ways))
    failing = [(depth, failing) for failing, depth, _ in ways if failing is not None]
    depth, nearest = min(failing, key=itemgetter(0), default=(0, None))
    return nearest, depth, exits
