"""Matches as bytes (OpenFlow 1.4.0, 7.2.2). Conditions on other fields than ours: foreign_match.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct

from xenoovs.errors import NotEncodable
from xenoovs.openflow.field import Field
from xenoovs.openflow.match import Masked, Match, match_of
from xenoovs.openflow.wire import oxm
from xenoovs.openflow.wire.error_names import ONF
from xenoovs.openflow.wire.foreign_match import foreign_condition, foreign_oxm
from xenoovs.openflow.wire.ports import port_name, port_number
from xenoovs.openflow.wire.reader import U32, Reader, padding

_MATCH = Struct("!HH")
_OXM_MATCH = 1
"""enum ofp_match_type: OFPMT_OXM."""
_PORT_CONDITION = Struct("!II")

_ONF = U32.pack(ONF)
_NOTHING = Match()


def encode_match(match: Match, ofports: Mapping[str, int]) -> bytes:
    """A match with its header and padding. Raises NotEncodable.

    Every field stands behind its prerequisites (7.2.2.6): `Field` is ordered so.
    """
    conditions = b"".join(_encode_masked(match.masked))
    if match.in_port is not None:
        conditions = _PORT_CONDITION.pack(oxm.IN_PORT, port_number(match.in_port, ofports)) + conditions
    if match.foreign:
        conditions += b"".join(map(foreign_oxm, match.foreign))
    size = _MATCH.size + len(conditions)
    return _MATCH.pack(_OXM_MATCH, size) + conditions + padding(size)


def decode_match(body: Reader, names: Mapping[int, str]) -> Match:
    """The next match, which is passed with its padding. Raises WireError."""
    start = body.offset
    kind, size = body.unpack(_MATCH, "a match")
    if kind != _OXM_MATCH or not _MATCH.size <= size <= body.end - start:
        body.offset = start
        raise body.error("a match of type OXM and its length")
    conditions = body.part(size - _MATCH.size, "conditions")
    body.take(-size % 8, "the padding of a match")
    return decode_conditions(conditions, names)


def decode_conditions(body: Reader, names: Mapping[int, str]) -> Match:
    """All conditions up to the end of `body`. Raises WireError."""
    if not body.left:
        return _NOTHING
    data, offset, end = body.data, body.offset, body.end
    in_port, known, foreign = None, list[Masked](), list[str]()
    while offset < end:
        next_offset = offset + 4 + data[offset + 3] if offset + 4 <= end else end + 1
        if next_offset > end:
            body.offset = offset
            raise body.error("a condition and its whole value")
        condition = data[offset:next_offset]
        if (masked := _decode_masked(condition)) is not None:
            known.append(masked)
        elif int.from_bytes(condition[:4]) == oxm.IN_PORT and in_port is None:
            in_port = port_name(int.from_bytes(condition[4:]), names)
        else:
            foreign.append(foreign_condition(condition))
        offset = next_offset
    try:
        return match_of(known, in_port=in_port, foreign=foreign)
    except ValueError as error:
        raise body.error(f"conditions of a flow ({error})") from None


@lru_cache(maxsize=65536)
def _encode_masked(conditions: tuple[Masked, ...]) -> tuple[bytes, ...]:
    ether = protocol = None
    encoded = []
    for masked in conditions:
        if masked.field is Field.DL_TYPE:
            ether = masked.value
        elif masked.field is Field.NW_PROTO:
            protocol = masked.value
        header = oxm.match_header(masked.field, ether=ether, protocol=protocol)
        if header is None:
            raise NotEncodable(part=masked.field.ovs_name, reason="dl_type and nw_proto do not say what it is in")
        encoded.append(_encode_condition(masked, header))
    return tuple(encoded)


@lru_cache(maxsize=65536)
def _encode_condition(masked: Masked, header: int) -> bytes:
    size = oxm.size_of(masked.field)
    if masked.is_exact:
        return U32.pack(header) + masked.value.to_bytes(size)
    return U32.pack(oxm.masked_header(header)) + masked.value.to_bytes(size) + masked.mask.to_bytes(size)


@lru_cache(maxsize=65536)
def _decode_masked(condition: bytes) -> Masked | None:
    """A condition on a field of ours; None for any other, also for one whose length is not the field's."""
    header = int.from_bytes(condition[:4])
    if header >> 9 == oxm.ONF_TCP_FLAGS >> 9 and condition[4:8] == _ONF:
        header, condition = header & oxm.HAS_MASK | oxm.HEADERS[Field.TCP_FLAGS], condition[4:]
    field = oxm.FIELD_OF.get(header >> 9)
    if field is None:
        return None
    size = oxm.size_of(field)
    value, mask = condition[4 : 4 + size], condition[4 + size :]
    if len(condition) == 4 + size and not header & oxm.HAS_MASK:
        return Masked(field, int.from_bytes(value), field.all_ones)
    if len(condition) == 4 + 2 * size and header & oxm.HAS_MASK:
        return Masked(field, int.from_bytes(value), int.from_bytes(mask))
    return None
