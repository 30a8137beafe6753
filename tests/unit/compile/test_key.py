"""The balancing key in OpenFlow's fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import balancer as small
from xenoovs.compile.encoding import (
    bits_of,
    block_conditions,
    block_of,
    infer_key,
    key_bits,
    key_field,
    key_match,
    key_of,
    rule_of,
)
from xenoovs.errors import CompileError
from xenoovs.model.address import Family
from xenoovs.model.balancer import BlockKey, KeyField, Protocol
from xenoovs.openflow.flow import Field, Masked, match_of
from xenoovs.openflow.text import parse_flow, render_match
from xenoovs.partition.block import Block

UDP = small.claim(protocol=Protocol.UDP)
SOURCE = KeyField.SOURCE_ADDRESS


@pytest.mark.parametrize("key", KeyField)
@pytest.mark.parametrize("family", Family)
def test_what_is_written_into_a_flow_is_read_out_of_it(key: KeyField, family: Family) -> None:
    value, mask = bits_of(Block(5, 4), BlockKey(key, positions=(9, 0, 1, 2)))
    condition = key_match(key, family, value, mask)
    assert condition.field is key_field(key, family)
    version = "ipv6" if family is Family.IPV6 else "ip"
    flow = parse_flow(f"table=1, {version},{render_match(match_of([condition]))} actions=drop")
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


def test_a_port_is_matched_behind_its_protocol() -> None:
    of_port = replace(small.service(UDP, 1, 1), key=BlockKey(KeyField.SOURCE_PORT))
    for family, keyword in ((Family.IPV4, "udp"), (Family.IPV6, "udp6")):
        found = match_of(block_conditions(of_port, family, rule_of(Block(1, 2), of_port.key)))
        assert render_match(found) == f"{keyword},tp_src=0x1/0x3"


@pytest.mark.parametrize("protocol", [None, Protocol.ICMP])
def test_packets_without_ports_have_no_source_port(protocol: Protocol | None) -> None:
    of_port = replace(small.service(replace(UDP, protocol=protocol), 1, 1), key=BlockKey(KeyField.SOURCE_PORT))
    with pytest.raises(CompileError, match="a source port needs a protocol with ports"):
        block_conditions(of_port, Family.IPV4, rule_of(Block(1, 2), of_port.key))


@pytest.mark.parametrize("key", KeyField)
def test_the_key_is_inferred_from_the_masks_of_a_service_that_no_config_has(key: KeyField) -> None:
    wanted = BlockKey(key, positions=(9, 0, 1))
    masks = [bits_of(Block(0, depth), wanted)[1] for depth in (0, 3, 1)]
    assert infer_key([*masks, bits_of(Block(0, 2), wanted)[1]]) == wanted


def test_a_mask_of_nothing_is_one_of_the_address() -> None:
    assert infer_key([0]).field is SOURCE
