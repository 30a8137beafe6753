"""The index of overlaps finds the same blocks as a search by each address, for any masks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.verify.programs import two_services
from xenoovs.datapath.megaflow import MaskedValue
from xenoovs.openflow.flow import Masked
from xenoovs.verify import overlap
from xenoovs.verify.expected import ExpectedBlock, ServiceEntry, expected_services, index_blocks
from xenoovs.verify.overlap import OverlapIndex

SERVICE = expected_services(two_services())[0]
TEMPLATE = SERVICE.blocks[0]
BITS = 6
ALL = (1 << BITS) - 1

_MATCHES = st.tuples(st.integers(0, ALL), st.integers(0, ALL)).map(lambda pair: _masked(*pair))
_PREFIXES = st.lists(
    st.tuples(st.integers(0, ALL), st.integers(0, BITS)).map(lambda pair: _masked(pair[0], ALL & ~(ALL >> pair[1]))),
    max_size=12,
).map(lambda drawn: [one for i, one in enumerate(drawn) if not any(_overlap(one, other) for other in drawn[:i])])
"""Masks of several lengths."""

_CLASSES = st.integers(0, ALL).flatmap(
    lambda mask: st.lists(st.integers(0, ALL).map(lambda value: _masked(value, mask)), max_size=12, unique=True)
)
"""All of one mask."""


def _overlap(one: MaskedValue, other: MaskedValue) -> bool:
    return not (one.value ^ other.value) & one.mask & other.mask


def _masked(value: int, mask: int) -> MaskedValue:
    return MaskedValue(value & mask, mask)


def _block(source: MaskedValue) -> ExpectedBlock:
    return replace(TEMPLATE, key=Masked(TEMPLATE.key.field, source.value, source.mask))


def _indexed(blocks: tuple[ExpectedBlock, ...]) -> tuple[OverlapIndex, ServiceEntry]:
    index = index_blocks([replace(SERVICE, blocks=blocks)])
    return OverlapIndex(index), next(iter(next(iter(index.entries.values())).values()))


@pytest.mark.parametrize("max_indexed", [0, 20, 500_000])
@given(_PREFIXES | _CLASSES, st.lists(_MATCHES, min_size=1, max_size=6))
def test_the_index_finds_what_a_search_by_address_finds(
    max_indexed: int, sources: list[MaskedValue], matches: list[MaskedValue]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "_MAX_INDEXED", max_indexed)
        index, entry = _indexed(tuple(map(_block, sources)))
        for match in matches:
            found = index.blocks(entry.blocks, match)
            owners = {_owner(sources, address) for address in range(ALL + 1) if _in(match, address)}
            assert {MaskedValue(block.key.value, block.key.mask) for block in found} == owners - {None}


def _in(match: MaskedValue, address: int) -> bool:
    return address & match.mask == match.value


def _owner(sources: list[MaskedValue], address: int) -> MaskedValue | None:
    return next((source for source in sources if _in(source, address)), None)
