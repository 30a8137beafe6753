"""Weights and a tolerance to overlapping rules: the fewest that Niagara and Bit Matcher find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.partition.block import MAX_WIDTH
from xenoovs.partition.choose import partition
from xenoovs.partition.lpm import Rules, Transaction, bit_matcher, lpm_spaces, niagara, realise_lpm
from xenoovs.partition.windows import Weight, Window, deviation, whole_weights, windows


@dataclass(frozen=True, slots=True)
class LpmPartition:
    """Overlapping rules (longest match wins) of at most `width` bits, the tolerance and the deviation they have."""

    width: int
    rules: Rules
    backends: int
    tolerance: Fraction
    deviation: Fraction

    @property
    def spaces(self) -> tuple[int, ...]:
        """Units of each backend, out of `2**width`."""
        return lpm_spaces(self.rules, self.width, self.backends)


def lpm_partition(
    weights: Sequence[Weight], *, tolerance: Fraction, max_width: int = MAX_WIDTH, width: int | None = None
) -> LpmPartition:
    """Few longest-match rules in which every share is within `tolerance`, relative to its weight.

    The number is an upper bound on the least one. Raises what `partition` raises.
    """
    exact = partition(weights, tolerance=tolerance, max_width=max_width, width=width)
    most = max_width if width is None else width
    whole = whole_weights(weights)
    candidates = [_matched(exact.spaces, exact.assignment.width), *_rounded(whole, tolerance, most)]
    candidates += _greedy(whole, tolerance, most)
    used, rules = min(candidates, key=lambda candidate: (len(candidate[1]), candidate[0]))
    spaces = lpm_spaces(rules, used, len(whole))
    return LpmPartition(used, rules, len(whole), tolerance, deviation(whole, spaces))


def _matched(spaces: Sequence[int], width: int) -> tuple[int, Rules]:
    root, transactions = bit_matcher(spaces, width)
    return width, realise_lpm(width, [root], transactions)


def _rounded(weights: Sequence[int], tolerance: Fraction, most: int) -> Iterator[tuple[int, Rules]]:
    """Bit Matcher on the rounding to whole units at every width where that meets the tolerance."""
    for width in range(most + 1):
        spaces = largest_remainder(weights, width)
        if _within(spaces, windows(weights, width, tolerance)):
            yield _matched(spaces, width)


def largest_remainder(weights: Sequence[int], width: int) -> tuple[int, ...]:
    """`2**width` units split by the weights, rounded down; what is left goes to the largest remainders."""
    goal, total = sum(weights), 1 << width
    spaces = [weight * total // goal for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: (-(weights[index] * total % goal), index))
    for index in order[: total - sum(spaces)]:
        spaces[index] += 1
    return tuple(spaces)


def _greedy(weights: Sequence[int], tolerance: Fraction, width: int) -> Iterator[tuple[int, Rules]]:
    """Niagara, stopped inside the tolerance, from one rule for everything and from equal shared rules."""
    served = [index for index, weight in enumerate(weights) if weight]
    shares = [weights[index] for index in served]
    allowed = windows(shares, width, tolerance)
    heaviest = max(range(len(shares)), key=lambda index: (shares[index], -index))
    for defaults in ([heaviest], list(range(1 << (len(shares).bit_length() - 1)))):
        transactions: list[Transaction] = []
        for transaction, spaces in niagara(shares, width, defaults):
            transactions.append(transaction)
            if _within(spaces, allowed):
                rules = realise_lpm(width, defaults, transactions)
                yield width, tuple((block, served[owner]) for block, owner in rules)
                break


def _within(spaces: Sequence[int], allowed: Sequence[Window]) -> bool:
    return all(lo <= space <= hi for space, (lo, hi) in zip(spaces, allowed, strict=True))
