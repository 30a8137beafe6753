"""Chains of recirculation: packets that pass the datapath several times are as fast as their slowest pass.

`recirc(0x1)` in the actions of a megaflow continues with those that match `recirc_id(0x1)` (ovs-actions(7), ct).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.megaflow import Megaflow, output_ports, parse_number
from xenoovs.evidence.samples import NO_GROWTH
from xenoovs.judge.findings import MegaflowState
from xenoovs.regex import ASCII, regex

_RECIRC = regex(r"\brecirc\((0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10})\)", ASCII)


def recirculations(megaflow: Megaflow) -> tuple[int, ...]:
    """Return the recirculation ids in the actions, also in nested ones."""
    return tuple(parse_number(found) for action in megaflow.actions for found in _RECIRC.findall(action))


def is_hop(megaflow: Megaflow) -> bool:
    """Return whether a megaflow is part of a chain."""
    return megaflow.recirc_id != 0 or any("recirc(" in action for action in megaflow.actions)


_Group = tuple[str | None, int]
"""Ingress port and recirculation id. All hops of a chain have one ingress port."""


class _Graph:
    """The graph of hops. Hops of the same group have the same predecessors. `groups`: None for packets from a port."""

    def __init__(self, hops: Sequence[MegaflowState]) -> None:
        megaflows = [hop.megaflow for hop in hops]
        self.groups = [(each.in_port, each.recirc_id) if each.recirc_id else None for each in megaflows]
        self.targets = [tuple((each.in_port, target) for target in recirculations(each)) for each in megaflows]
        self.before, self.behind = defaultdict[_Group, list[int]](list), defaultdict[_Group, list[int]](list)
        for number, group in enumerate(self.groups):
            for target in self.targets[number]:
                self.before[target].append(number)
            if group is not None:
                self.behind[group].append(number)
        self.order = self._from_first_to_last()

    def _from_first_to_last(self) -> list[int]:
        """Return the numbers of the hops in topological order; loops are cut."""
        done, ordered = set[object](), list[int]()
        for first in sorted(range(len(self.groups)), key=lambda number: self.groups[number] is not None):
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
                    stack += [(target, False) for target in self.targets[node]]
                else:
                    stack += [(each, False) for each in self.behind.get(node, ())]
        return ordered[::-1]


def judge_chains(hops: Sequence[MegaflowState], is_judged: Sequence[bool]) -> list[MegaflowState]:
    """Return the hops with the verdict and counters of their chains: the worst verdict before and behind them.

    A packet is in hardware if all its hops are. It is unknown which packets of a hop continue in which next hop. So the
    share of all next hops together limits the share of the hop, as does that of all hops before it. `is_judged`: False
    for hops that belong in software, which limit no other one.
    """
    found, graph = list(hops), _Graph(hops)
    totals = dict[_Group, MegaflowState | None]()

    def limit(number: int, group: _Group, neighbours: Mapping[_Group, Sequence[int]]) -> None:
        if group not in totals:
            totals[group] = _total([found[each] for each in neighbours.get(group, ()) if is_judged[each]])
        found[number] = _limited(found[number], totals[group])

    for number in reversed(graph.order):
        for target in graph.targets[number]:
            limit(number, target, graph.behind)
    totals.clear()
    for number in graph.order:
        if (group := graph.groups[number]) is not None:
            limit(number, group, graph.before)
    worse = "recirculated: another hop is {}"
    pairs = zip(hops, found, strict=True)
    reasons = ("" if now.verdict is hop.verdict else worse.format(now.verdict.value) for hop, now in pairs)
    return [replace(now, reason=reason) for now, reason in zip(found, reasons, strict=True)]


def _total(judged: Sequence[MegaflowState]) -> MegaflowState | None:
    """Return the sum of a group's judged hops; only of those with packets, if there are any."""
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


def _limited(hop: MegaflowState, total: MegaflowState | None) -> MegaflowState:
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


def link_chains(hops: Sequence[MegaflowState], is_judged: Sequence[bool]) -> tuple[ChainLink, ...]:
    """Return the place of each hop in its chains. Loops are cut. Takes linear time, as hops share results.
    `is_judged`: False for hops that belong in software."""
    graph = _Graph(hops)
    is_software = [hop.verdict.is_software for hop in hops]
    links = _look_ahead(graph, is_judged, is_software)
    is_failing = [link.is_judged and is_slow for link, is_slow in zip(links, is_software, strict=True)]
    rests = _look_behind(graph, is_failing, [frozenset(output_ports(hop.megaflow)) for hop in hops])
    return tuple(
        replace(link, failing=failing, depth=depth, exits=exits)
        for link, (failing, depth, exits) in zip(links, rests, strict=True)
    )


def _look_ahead(graph: _Graph, is_judged: Sequence[bool], is_software: Sequence[bool]) -> list[ChainLink]:
    """Return the links with what the hops before them decide."""
    found = [ChainLink(number, judged) for number, judged in enumerate(is_judged)]
    groups, done = dict[_Group, ChainLink](), set[int]()
    for number in graph.order:
        group = graph.groups[number]
        if group is not None and group not in groups:
            leading = [each for each in graph.before.get(group, ()) if each in done]
            if leading:
                failing = (_first_failing(each, found[each], is_software) for each in leading)
                first = next((each for each in failing if each is not None), None)
                # A judged hop counts for a chain whose packets should be in hardware.
                before = max(leading, key=lambda each: found[each].is_judged)
                groups[group] = ChainLink(found[before].root, found[before].is_judged, first)
        if group is not None and group in groups:
            shared = groups[group]
            judged = is_judged[number] and shared.is_judged
            found[number] = replace(shared, is_judged=judged, is_after_judged=shared.is_judged)
        done.add(number)
    return found


def _first_failing(number: int, link: ChainLink, is_software: Sequence[bool]) -> int | None:
    """Return the first failing hop up to this one."""
    return number if link.before is None and link.is_judged and is_software[number] else link.before


def _look_behind(graph: _Graph, is_failing: Sequence[bool], exits_of: Sequence[frozenset[str]]) -> list[_Rest]:
    found: list[_Rest] = [(None, 0, exits) for exits in exits_of]
    groups, done = dict[_Group, _Rest](), set[int]()
    for number in reversed(graph.order):
        for group in graph.targets[number]:
            if group not in groups:
                groups[group] = _together([found[each] for each in graph.behind.get(group, ()) if each in done])
        failing, depth, exits = _together([groups[group] for group in graph.targets[number]])
        if is_failing[number]:
            failing, depth = number, -1
        found[number] = failing, 0 if failing is None else depth + 1, exits_of[number] | exits
        done.add(number)
    return found


def _together(ways: Sequence[_Rest]) -> _Rest:
    """Merge several ways on: all exits, and the nearest failing hop."""
    exits = frozenset[str]().union(*(exits for _, _, exits in ways))
    failing = [(depth, failing) for failing, depth, _ in ways if failing is not None]
    depth, nearest = min(failing, key=itemgetter(0), default=(0, None))
    return nearest, depth, exits
