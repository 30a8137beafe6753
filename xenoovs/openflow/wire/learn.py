"""The action NXAST_LEARN2 as bytes (include/openvswitch/ofp-actions.h and lib/ofp-actions.c of Open vSwitch)."""

from __future__ import annotations

from struct import Struct

from xenoovs.dataclass import dataclass
from xenoovs.errors import WireError
from xenoovs.openflow.flow import MAX_TABLE, WIDEST_LOAD, Field, Learn, SetField
from xenoovs.openflow.wire.frame import NICIRA, U16, Reader, padded
from xenoovs.openflow.wire.match import ACTION_HEADERS, whole_field

LEARN = Struct("!HHIHHHHQHBxHHIHxx")
"""struct nx_action_learn2: type, length, vendor, subtype, idle and hard timeout, priority, cookie, flags, table, both
timeouts after a FIN, limit, offset of the result."""

_PLACE = Struct("!IH")
"""A field and a first bit."""

_EXPERIMENTER, _SUBTYPE = 0xFFFF, 45
_DELETE_LEARNED = 1 << 1
"""NX_LEARN_F_DELETE_LEARNED."""

_IMMEDIATE, _LOAD, _OUTPUT = 1 << 13, 1 << 11, 2 << 11
"""Bits of a specification: its source is a value that follows, not a field; its target is no match but this. The lowest
11 bits count the bits of the field (struct nx_action_learn, "flow_mod_spec")."""
_BITS = (1 << 11) - 1


def encode_learn(learn: Learn) -> bytes:
    """Return a whole action."""
    specs = b"".join(
        (
            _given(Field.DL_TYPE, learn.dl_type),
            _given(Field.NW_PROTO, learn.nw_proto),
            *(U16.pack(field.width) + 2 * _PLACE.pack(ACTION_HEADERS[field], 0) for field in learn.same),
            *(_given(write.field, write.value, target=_LOAD) for write in learn.writes),
            U16.pack(learn.output.width | _OUTPUT) + _PLACE.pack(ACTION_HEADERS[learn.output], 0),
        )
    )
    length = LEARN.size + len(specs) + -(LEARN.size + len(specs)) % 8
    identity = (_EXPERIMENTER, length, NICIRA, _SUBTYPE)
    content = (learn.idle_timeout_s, 0, learn.priority, learn.cookie, _DELETE_LEARNED, learn.table)
    return padded(LEARN.pack(*identity, *content, 0, 0, learn.limit, 0) + specs)


def decode_learn(action: bytes) -> Learn | None:
    """Return None for an action that `Learn` cannot express."""
    _, _, _, _, idle, hard, priority, cookie, flags, table, fin_idle, fin_hard, limit, result = LEARN.unpack_from(
        action
    )
    specs = _decode_specs(Reader(action, offset=LEARN.size))
    if flags != _DELETE_LEARNED or hard or fin_idle or fin_hard or result or not idle or not limit or table > MAX_TABLE:
        return None
    if specs is None or [spec.kind for spec in specs[:2]] != [_IMMEDIATE] * 2 or specs[-1].kind != _OUTPUT:
        return None
    ether, protocol, *middle, last = specs
    same = [spec for spec in middle if spec.kind == 0]
    writes = [spec for spec in middle if spec.kind == _IMMEDIATE | _LOAD]
    if (ether.field, protocol.field) != (Field.DL_TYPE, Field.NW_PROTO) or not same or same + writes != middle:
        return None
    return Learn(
        table=table,
        priority=priority,
        cookie=cookie,
        idle_timeout_s=idle,
        limit=limit,
        dl_type=ether.value,
        nw_proto=protocol.value,
        same=tuple(spec.field for spec in same),
        writes=tuple(SetField(spec.field, spec.value) for spec in writes),
        output=last.field,
    )


@dataclass(frozen=True, slots=True)
class _Spec:
    """A specification. `kind`: its bits without the count. `value`: 0 where a field is the source."""

    kind: int
    field: Field
    value: int = 0


def _given(field: Field, value: int, *, target: int = 0) -> bytes:
    # A value takes whole words of 16 bits.
    packed = value.to_bytes((field.width + 15) // 16 * 2, "big")
    return U16.pack(field.width | _IMMEDIATE | target) + packed + _PLACE.pack(ACTION_HEADERS[field], 0)


def _decode_specs(body: Reader) -> tuple[_Spec, ...] | None:
    """Return None unless all of them are of the kinds that `Learn` has, on whole fields."""
    specs = []
    try:
        while body.left >= U16.size and (head := body.unpack(U16, "a specification")[0]):
            specs.append(_decode_spec(head, body))
    except WireError:
        return None
    known = tuple(spec for spec in specs if spec is not None)
    return known if len(known) == len(specs) >= 4 else None


def _decode_spec(head: int, body: Reader) -> _Spec | None:
    bits, kind = head & _BITS, head & ~_BITS
    expected = "a specification"
    value = int.from_bytes(body.take((bits + 15) // 16 * 2, expected), "big") if kind & _IMMEDIATE else 0
    source = None if kind & _IMMEDIATE else body.unpack(_PLACE, expected)
    place = source if kind & _OUTPUT else body.unpack(_PLACE, expected)
    field = whole_field(place[0]) if place is not None and not place[1] else None
    if field is None or field.width != bits or value > field.all_ones:
        return None
    if (kind == 0 and source != place) or (kind & _LOAD and field.width > WIDEST_LOAD):
        return None
    return _Spec(kind, field, value)
