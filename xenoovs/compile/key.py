"""The balancing key in OpenFlow's fields. No other module knows by which field of a flow a service splits its clients.

Blocks are written as a value and a mask over *key bits*: each key field has its own range of them, so that blocks of
different fields are never taken for each other, and a flow that matches several fields says something of each.
A new key field is a row in `_COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from xenoovs.compile.matching import family_is
from xenoovs.errors import CompileError
from xenoovs.model.address import Family
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.model.service import Service
from xenoovs.openflow.field import ETH_IPV6, Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, exact
from xenoovs.partition.bits import spread, unspread
from xenoovs.partition.block import Block


class _Column(NamedTuple):
    """`bits`: the key bits of the field, its lowest bit first. `fields`: the OpenFlow field, by IP version."""

    bits: range
    fields: Mapping[Family, Field]


_COLUMNS = {
    KeyField.SOURCE_ADDRESS: _Column(range(128), {Family.IPV4: Field.NW_SRC, Family.IPV6: Field.IPV6_SRC}),
    KeyField.SOURCE_PORT: _Column(range(128, 144), {Family.IPV4: Field.TP_SRC, Family.IPV6: Field.TP_SRC}),
}

_FIRST_BITS = {field: column.bits.start for column in _COLUMNS.values() for field in column.fields.values()}


@dataclass(frozen=True, slots=True, order=True)
class BlockRule:
    """Packets whose key bits under `mask` equal `value`. `depth`: how many bits that are."""

    depth: int
    value: int
    mask: int


def rule_of(block: Block, key: BlockKey) -> BlockRule:
    """Return the masked match of a block."""
    return BlockRule(block.depth, *bits_of(block, key))


def infer_key(masks: Iterable[int]) -> BlockKey:
    """Return a key that nested masks of key bits fit, for a service that no config describes."""
    positions = dict[int, None]()
    for mask in sorted(set(masks), key=lambda mask: (mask.bit_count(), mask)):
        positions |= dict.fromkeys(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    found = (field for field, column in _COLUMNS.items() if any(bit in column.bits for bit in positions))
    field = next(found, KeyField.SOURCE_ADDRESS)
    bits = _COLUMNS[field].bits
    return BlockKey(field, tuple(bit - bits.start for bit in positions if bit in bits))


def block_conditions(service: Service, family: Family, rule: BlockRule) -> tuple[Masked, ...]:
    """Return what the flows of a block match besides the id of the service.

    Raises:
        CompileError: The key is a part of packets that those of the service need not have.
    """
    key, protocol = service.key.field, service.claim.protocol
    bits = key_match(key, family, rule.value, rule.mask)
    if not key.needs_ports:
        return family_is(family), bits
    if protocol is None or not protocol.has_ports:
        raise CompileError(service=service.name, reason=f"a {key.label} needs a protocol with ports; name one")
    return family_is(family), exact(Field.NW_PROTO, protocol.number(family)), bits


def key_field(key: KeyField, family: Family) -> Field:
    """Return the OpenFlow field of a key."""
    return _COLUMNS[key].fields[family]


def key_match(key: KeyField, family: Family, value: int, mask: int) -> Masked:
    """Return the condition that a block's flow has for these key bits."""
    bits, fields = _COLUMNS[key]
    return Masked(fields[family], value >> bits.start, mask >> bits.start)


def key_of(flow: Flow, key: KeyField) -> Masked:
    """Return what a flow of one IP version asks of the key; mask 0: nothing."""
    dl_type = flow.match.get(Field.DL_TYPE)
    field = key_field(key, Family.IPV6 if dl_type is not None and dl_type.value == ETH_IPV6 else Family.IPV4)
    return flow.match.get(field) or Masked(field, 0, 0)


def key_bits(flow: Flow) -> tuple[int, int]:
    """Return the value and the mask of the key bits that a flow matches."""
    value = mask = 0
    for found in flow.match.masked:
        if (first := _FIRST_BITS.get(found.field)) is not None:
            value, mask = value | found.value << first, mask | found.mask << first
    return value, mask


def bits_of(block: Block, key: BlockKey) -> tuple[int, int]:
    """Return the value and the mask of a block in key bits."""
    value, mask = spread(block, key.positions)
    first = _COLUMNS[key.field].bits.start
    return value << first, mask << first


def block_of(value: int, mask: int, key: BlockKey) -> Block:
    """Return the block behind key bits: the inverse of `bits_of`.

    Raises:
        ValueError: They are not a block of this key.
    """
    first = _COLUMNS[key.field].bits.start
    if mask & (1 << first) - 1:
        raise ValueError(f"{value:#x}/{mask:#x} is not a block of {key.field.value}")
    return unspread(value >> first, mask >> first, key.positions)
