"""The balancing key in OpenFlow's fields."""

from __future__ import annotations

import pytest

from xenoovs.compile.key import bits_of, block_of, key_bits, key_field, key_match, key_of, render_key
from xenoovs.model.address import Family
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.openflow.field import Field
from xenoovs.openflow.match import Masked
from xenoovs.openflow.parse import parse_flow
from xenoovs.partition.block import Block

SOURCE = KeyField.SOURCE_ADDRESS


@pytest.mark.parametrize("key", KeyField)
@pytest.mark.parametrize("family", Family)
def test_what_is_written_into_a_flow_is_read_out_of_it(key: KeyField, family: Family) -> None:
    value, mask = bits_of(Block(5, 4), BlockKey(key, positions=(9, 0, 1, 2)))
    condition = key_match(key, family, value, mask)
    assert condition.field is key_field(key, family)
    version = "ipv6" if family is Family.IPV6 else "ip"
    flow = parse_flow(f"table=1, {version},{render_key(key, family, value, mask)} actions=drop")
    assert key_of(flow, key) == condition
    assert key_bits(flow) == (value, mask)
    assert block_of(value, mask, BlockKey(key, positions=(9, 0, 1, 2))) == Block(5, 4)


def test_a_flow_for_all_clients() -> None:
    flow = parse_flow("table=1, ipv6 actions=drop")
    assert key_bits(flow) == (0, 0)
    assert key_of(flow, SOURCE) == Masked(Field.IPV6_SRC, 0, 0)


def test_bits_that_are_not_of_the_key_are_no_block() -> None:
    with pytest.raises(ValueError, match="0x4/0x4 is not a block"):
        block_of(4, 4, BlockKey())


def test_blocks_as_text() -> None:
    assert render_key(SOURCE, Family.IPV4, 1, 3) == "nw_src=0.0.0.1/0.0.0.3"
    assert render_key(SOURCE, Family.IPV6, 1, 3) == "ipv6_src=::1/::3"
