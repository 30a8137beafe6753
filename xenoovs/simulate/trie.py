"""Prefix tries: how many leading bits of a value show that it has no prefix of a given length here (lib/classifier.c).

OVS keeps path-compressed tries; the number of bits to look at depends on the set of prefixes alone, so plain sets of
all their beginnings answer the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PrefixTrie:
    """Prefixes of `width`-bit values, each at least one bit long."""

    width: int
    ends: set[tuple[int, int]] = field(default_factory=set)
    beginnings: set[tuple[int, int]] = field(default_factory=set)

    def insert(self, value: int, length: int) -> None:
        """Add the first `length` bits of `value`."""
        self.ends.add((length, value >> self.width - length))
        for shorter in range(length, 0, -1):
            beginning = (shorter, value >> self.width - shorter)
            if beginning in self.beginnings:
                break
            self.beginnings.add(beginning)

    def has_prefix(self, value: int, length: int) -> bool:
        """Whether the first `length` bits of `value` are a prefix here (trie_lookup_value: the bit in `plens`)."""
        return (length, value >> self.width - length) in self.ends

    def bits_to_look_at(self, value: int) -> int:
        """Leading bits of `value` that tell it from all prefixes that it does not have (trie_lookup_value)."""
        matched = 0
        while matched < self.width and (matched + 1, value >> self.width - matched - 1) in self.beginnings:
            matched += 1
        if matched == self.width:
            return matched
        # The other branch, if it exists, is told apart by the first bit that differs.
        other = (value >> self.width - matched - 1) ^ 1
        return matched + 1 if (matched + 1, other) in self.beginnings else matched
