"""Overlapping rules, longest mask first: fewer OpenFlow rules than disjoint blocks, many more megaflows.

For switches whose OpenFlow table is the scarce resource. A set of rules is built from transactions: starting from one
rule for everything (or a few equal ones), a block of 2**a units is cut out of one backend's space and given to another.

Sources: Bit Matcher, Sadeh, Rottenstreich et al., "Optimal Representations of a Traffic Distribution in Switch
Memories", IEEE/ACM ToN 28(2) 2020. Niagara, Kang, Ghobadi, Reumann, Shraer, Rexford, "Efficient Traffic Splitting on
Commodity Switches", CoNEXT 2015.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xenoovs.partition.block import Block, reverse_bits

Rules = tuple[tuple[Block, int], ...]
"""Blocks with their backends, sorted; blocks may lie in each other and the deepest one wins."""


class Transaction(NamedTuple):
    """`size` units, a power of two, move from one backend to another."""

    size: int
    source: int
    target: int


def bit_matcher(spaces: Sequence[int], width: int) -> tuple[int, list[Transaction]]:
    """The backend of the rule for everything, and the least number of transactions that lead to exact spaces.

    ValueError: the spaces do not sum to `2**width`.
    """
    if sum(spaces) != 1 << width:
        raise ValueError(f"spaces sum to {sum(spaces)}, not to the {1 << width} units of {width} bits")
    left = list(spaces)
    transactions = []
    for bit in range(width):
        odd = [index for index, space in enumerate(left) if space >> bit & 1]
        odd.sort(key=lambda index: (reverse_bits(left[index] >> (bit + 1), width - bit), index))
        half = len(odd) // 2
        for giver, taker in zip(odd[:half], odd[half:], strict=True):
            transactions.append(Transaction(1 << bit, taker, giver))
            left[giver] -= 1 << bit
            left[taker] += 1 << bit
    return left.index(1 << width), transactions


def niagara(weights: Sequence[int], width: int, defaults: Sequence[int]) -> Iterator[tuple[Transaction, list[int]]]:
    """Transactions, each the one that brings the spaces nearest to the weights, with the spaces after it.

    `weights`: positive integers. `defaults`: owners of the equal rules to start from, a power of two of them. Ends when
    no transaction helps any more.
    """
    goal, total = sum(weights), 1 << width
    targets = [weight * total for weight in weights]
    largest = total // len(defaults)
    spaces = [largest * defaults.count(index) for index in range(len(weights))]
    while True:
        errors = [space * goal - target for space, target in zip(spaces, targets, strict=True)]
        source = max(range(len(errors)), key=lambda index: (errors[index], -index))
        target = min(range(len(errors)), key=lambda index: (errors[index], index))
        over, under = errors[source], -errors[target]
        sizes = [1 << bit for bit in range(width + 1) if 1 << bit <= min(largest, spaces[source])]
        gain, size = max((min(over, size * goal) + min(under, size * goal) - size * goal, size) for size in sizes)
        if gain <= 0:
            return
        spaces[source] -= size
        spaces[target] += size
        yield Transaction(size, source, target), list(spaces)


def realise_lpm(width: int, defaults: Sequence[int], transactions: Iterable[Transaction]) -> Rules:
    """Rules for transactions that start from equal rules owned by `defaults` (a power of two of them)."""
    depth = (len(defaults) - 1).bit_length()
    rules = {Block(value, depth): owner for value, owner in enumerate(defaults)}
    owned: dict[int, list[tuple[int, Block]]] = {}
    for block, owner in rules.items():
        owned.setdefault(owner, []).append((block.size(width), block))
    for size, source, target in sorted(transactions, key=lambda transaction: -transaction.size):
        given = min(entry for entry in owned[source] if entry[0] >= size)
        owned[source].remove(given)
        block = given[1]
        while block.size(width) > size:
            other = Block(block.value | 1 << block.depth, block.depth + 1)
            owned[source].append((other.size(width), other))
            block = Block(block.value, block.depth + 1)
        owned.setdefault(target, []).append((size, block))
        rules[block] = target
    return tuple(sorted(rules.items()))


def lpm_spaces(rules: Rules, width: int, backends: int) -> tuple[int, ...]:
    """Units of each backend when the deepest matching rule wins."""
    spaces = [0] * backends
    owners = dict(rules)
    for block, owner in rules:
        spaces[owner] += block.size(width)
        for depth in range(block.depth - 1, -1, -1):
            outer = owners.get(Block(block.value & ((1 << depth) - 1), depth))
            if outer is not None:
                spaces[outer] -= block.size(width)
                break
    return tuple(spaces)
