"""Chains of recirculation: packets that pass the datapath several times are as fast as their slowest pass.

`recirc(0x1)` in the actions of a megaflow continues with the megaflows that match `recirc_id(0x1)`
(ovs-actions(7), ct).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xenoovs.datapath.megaflow import Megaflow, Verdict, parse_number
from xenoovs.verify.samples import Growth

_RECIRC = re.compile(r"\brecirc\((0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10})\)", re.ASCII)


def recirculations(megaflow: Megaflow) -> tuple[int, ...]:
    """Return the recirculation ids in the actions, also in nested ones."""
    return tuple(parse_number(found) for action in megaflow.actions for found in _RECIRC.findall(action))


def is_hop(megaflow: Megaflow) -> bool:
    """Return whether a megaflow is part of a chain."""
    return megaflow.recirc_id != 0 or any("recirc(" in action for action in megaflow.actions)


@dataclass(frozen=True, slots=True)
class Hop:
    """One megaflow of chains: where it runs and what it counted.

    Attributes:
        in_port: where the packets entered the switch; it stays the same in all hops.
        recirc_id: 0 for the first hop.
        targets: recirculation ids of the next hops.
        is_judged: False for what belongs in software, such as the first packet of a connection.
        growth: packets since an earlier sample; None: there is none.
    """

    in_port: str
    recirc_id: int
    targets: tuple[int, ...]
    verdict: Verdict
    packets: int
    hw_packets: int
    hw_bytes: int
    is_judged: bool = True
    growth: Growth | None = None


_Group = tuple[str, int]
"""Ingress port and recirculation id."""


def judge_chains(hops: Iterable[Hop]) -> tuple[Hop, ...]:
    """Return the hops with the worst verdict of the hops before and behind them.

    A packet is in hardware if all its hops are. Which packets of a hop continue in which next hop is unknown, so the
    shares of all next hops together limit it, and likewise those of all hops before.
    """
    found = list(hops)
    before, behind = defaultdict[_Group, list[int]](list), defaultdict[_Group, list[int]](list)
    for number, hop in enumerate(found):
        for target in hop.targets:
            before[hop.in_port, target].append(number)
        if hop.recirc_id:
            behind[hop.in_port, hop.recirc_id].append(number)
    order = _from_first_to_last(found, behind)
    for number in reversed(order):
        for target in found[number].targets:
            _limit(found, number, behind.get((found[number].in_port, target), ()))
    for number in order:
        if found[number].recirc_id:
            _limit(found, number, before.get((found[number].in_port, found[number].recirc_id), ()))
    return tuple(found)


def _from_first_to_last(hops: Sequence[Hop], behind: dict[_Group, list[int]]) -> list[int]:
    """Return the numbers of the hops, each before its next ones; loops are cut."""
    done, ordered = set[int](), list[int]()
    for first in sorted(range(len(hops)), key=lambda number: hops[number].recirc_id != 0):
        stack = [(first, False)]
        while stack:
            number, is_left = stack.pop()
            if is_left:
                ordered.append(number)
            elif number not in done:
                done.add(number)
                stack.append((number, True))
                targets = hops[number].targets
                stack += [(each, False) for t in targets for each in behind.get((hops[number].in_port, t), ())]
    return ordered[::-1]


def _limit(hops: list[Hop], number: int, neighbours: Sequence[int]) -> None:
    """Lower what hop `number` has in hardware to the share of its neighbours, and worsen its verdict."""
    judged = [hops[each] for each in neighbours if hops[each].is_judged]
    active = [each for each in judged if each.packets] or judged
    if not active:
        return
    hop = hops[number]
    packets, hw_packets = sum(each.packets for each in active), sum(each.hw_packets for each in active)
    share = hw_packets / packets if packets else 1.0
    grown = sum((each.growth for each in active if each.growth), Growth())
    growth = hop.growth
    if growth is not None and grown.packets:
        limit = growth.packets * grown.hw_packets // grown.packets
        growth = replace(growth, hw_packets=min(growth.hw_packets, limit))
    hw_now = min(hop.hw_packets, int(hop.packets * share))
    hops[number] = replace(
        hop,
        verdict=max((hop.verdict, *(each.verdict for each in active)), key=lambda verdict: verdict.badness),
        hw_packets=hw_now,
        hw_bytes=hop.hw_bytes * hw_now // hop.hw_packets if hop.hw_packets else 0,
        growth=growth,
    )
