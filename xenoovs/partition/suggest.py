"""Bits that would split given clients better, found on one half of them and proven on the other.

A list that is chosen for given clients always fits these; whether it is better says only a part that it has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xenoovs.partition.analyse import analyse

MAX_TRAINED = 4096
"""The heaviest clients of the first half, which decide; more cost time and change little."""

_WORTH_IT = 0.8
"""A list is told only if it leaves at most this part of the spread: less is chance."""

_GOLDEN_RATIO = 2654435761
"""Knuth's multiplicative hash (The Art of Computer Programming, 3, 6.4), for halves that do not depend on any bit."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Positions that are better at their full depth. `before`, `after`: the spread of the clients not learned from."""

    positions: tuple[int, ...]
    before: float
    after: float


def suggest(load: Mapping[int, int], positions: Sequence[int], candidates: Iterable[int]) -> Suggestion | None:
    """Another list of as many bits, or None where none is clearly better.

    load: packets by client address. positions: the bits in use. candidates: positions to choose from.
    """
    learned = {address: count for address, count in load.items() if _is_learned(address)}
    proof = {address: count for address, count in load.items() if not _is_learned(address)}
    if not positions or not sum(learned.values()) or not sum(proof.values()):
        return None
    heaviest = sorted(learned.items(), key=lambda item: (-item[1], item[0]))[:MAX_TRAINED]
    found = choose_bits(dict(heaviest), candidates, depth=len(positions))
    before, after = (analyse(proof, bits).depths[-1].selected for bits in (positions, found))
    return Suggestion(found, before, after) if after <= _WORTH_IT * before else None


def choose_bits(load: Mapping[int, int], candidates: Iterable[int], *, depth: int) -> tuple[int, ...]:
    """One bit after the other, each the one that evens out the blocks most; the lower one of equals."""
    left, chosen = sorted(candidates), list[int]()
    groups = dict.fromkeys(load, 0)
    for _ in range(min(depth, len(left))):
        best = min(left, key=lambda position: (_unevenness(load, groups, position), position))
        left.remove(best)
        chosen.append(best)
        groups = {address: group << 1 | address >> best & 1 for address, group in groups.items()}
    return tuple(chosen)


def _unevenness(load: Mapping[int, int], groups: Mapping[int, int], position: int) -> int:
    sums: Counter[int] = Counter()
    for address, group in groups.items():
        sums[group << 1 | address >> position & 1] += load[address]
    return sum(count * count for count in sums.values())


def _is_learned(address: int) -> bool:
    mixed = (address ^ address >> 32 ^ address >> 64 ^ address >> 96) & 0xFFFFFFFF
    return bool((mixed * _GOLDEN_RATIO & 0xFFFFFFFF) >> 31)
