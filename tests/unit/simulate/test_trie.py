"""The prefix trie against its definition, on all values of few bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.simulate.classifier import PrefixTrie

WIDTH = 5
_PREFIXES = st.lists(st.tuples(st.integers(0, 31), st.integers(1, WIDTH)), max_size=6)


def _trie(prefixes: list[tuple[int, int]]) -> PrefixTrie:
    trie = PrefixTrie(WIDTH)
    for value, length in prefixes:
        trie.insert(value, length)
    return trie


def test_an_empty_trie_asks_for_nothing() -> None:
    assert PrefixTrie(32).bits_needed(0x0A000001) == 0


def test_one_prefix_is_distinguished_by_the_first_different_bit() -> None:
    trie = PrefixTrie(32)
    trie.insert(0x0A030A2D, 32)
    assert trie.bits_needed(0x8A030A2D) == 1
    assert trie.bits_needed(0x0A030A2C) == 32
    assert trie.has_prefix(0x0A030A2D, 32)


def test_a_leaf_that_matches_asks_for_no_further_bit() -> None:
    trie = PrefixTrie(32)
    trie.insert(0x0A000000, 8)
    assert trie.bits_needed(0x0A123456) == 8


@given(_PREFIXES)
def test_values_equal_in_the_needed_bits_have_the_same_prefixes(prefixes: list[tuple[int, int]]) -> None:
    trie = _trie(prefixes)
    for value in range(1 << WIDTH):
        shift = WIDTH - trie.bits_needed(value)
        alike = [other for other in range(1 << WIDTH) if other >> shift == value >> shift]
        for length in range(1, WIDTH + 1):
            assert {trie.has_prefix(other, length) for other in alike} == {trie.has_prefix(value, length)}
