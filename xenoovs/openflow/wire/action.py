"""Actions as bytes (OpenFlow 1.4.0, 7.2.5; the extensions of Nicira: lib/ofp-actions.c of Open vSwitch).

What xenoovs never writes comes back as text: `group:5`, `CONTROLLER:128`, `FLOOD`; all else as `wire:` and hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import assert_never

from xenoovs.errors import NotEncodable
from xenoovs.openflow.action import Action, Foreign, Learn, Move, Normal, Output, OutputInPort, Resubmit, SetField
from xenoovs.openflow.field import Field
from xenoovs.openflow.wire import ports
from xenoovs.openflow.wire.error_names import NICIRA
from xenoovs.openflow.wire.learn import LEARN, decode_learn, encode_learn
from xenoovs.openflow.wire.oxm import ACTION_FIELD_OF, ACTION_HEADERS, HAS_MASK, HEADERS, size_of, whole_field
from xenoovs.openflow.wire.reader import Reader, padded

_ACTION = Struct("!HH")
_OUTPUT = Struct("!HHIH6x")
_GROUP = Struct("!HHI")
_SET_FIELD_HEAD = Struct("!HHI")
_VENDOR = Struct("!HHIH")
_RESUBMIT_TABLE = Struct("!HHIHHB3x")
_LOAD = Struct("!HHIHHIQ")
_MOVE = Struct("!HHIHHHHII")

_TYPE_OUTPUT, _TYPE_GROUP, _TYPE_SET_FIELD, _TYPE_EXPERIMENTER = 0, 22, 25, 0xFFFF
"""enum ofp_action_type."""
_NX_MOVE, _NX_LOAD, _NX_RESUBMIT_TABLE = 6, 7, 14
"""NXAST_REG_MOVE, NXAST_REG_LOAD, NXAST_RESUBMIT_TABLE."""
_SAME_PORT = 0xFFF8
"""OFPP_IN_PORT in 16 bits: the look-up of NXAST_RESUBMIT_TABLE sees the packet's own ingress port."""

_SET_BY_FIELD = frozenset((Field.DL_SRC, Field.DL_DST))
"""Set by OFPAT_SET_FIELD, as ovs-ofctl sends `mod_dl_dst`; all others as it sends `load`: dumps show what was sent."""

_RAW = "wire:"
_GROUP_TEXT = re.compile(r"group:([0-9]{1,10})", re.ASCII)
_CONTROLLER_TEXT = re.compile(r"CONTROLLER:([0-9]{1,5})", re.ASCII)
_PORT_WORDS = {"FLOOD": ports.FLOOD, "ALL": ports.ALL, "TABLE": ports.TABLE}


def encode_actions(actions: Iterable[Action], ofports: Mapping[str, int]) -> bytes:
    """Raises NotEncodable."""
    return b"".join(_encode(action, ofports) for action in actions)


def decode_actions(body: Reader, names: Mapping[int, str]) -> tuple[Action, ...]:
    """All actions up to the end of `body`. Raises WireError."""
    return tuple(_decode_all(body, names))


def _encode(action: Action, ofports: Mapping[str, int]) -> bytes:
    match action:
        case Output(port):
            return _output(ports.port_number(port, ofports))
        case OutputInPort():
            return _output(ports.IN_PORT)
        case Normal():
            return _output(ports.NORMAL)
        case SetField(field, value):
            return _encode_set(field, value)
        case Move(source, target):
            heads = ACTION_HEADERS[source], ACTION_HEADERS[target]
            return _MOVE.pack(_TYPE_EXPERIMENTER, _MOVE.size, NICIRA, _NX_MOVE, target.width, 0, 0, *heads)
        case Resubmit(table):
            size = _RESUBMIT_TABLE.size
            return _RESUBMIT_TABLE.pack(_TYPE_EXPERIMENTER, size, NICIRA, _NX_RESUBMIT_TABLE, _SAME_PORT, table)
        case Learn():
            return encode_learn(action)
        case Foreign(text):
            return _encode_foreign(text)
        case _:
            assert_never(action)


def _output(port: int, *, max_len: int = 0) -> bytes:
    return _OUTPUT.pack(_TYPE_OUTPUT, _OUTPUT.size, port, max_len)


def _encode_set(field: Field, value: int) -> bytes:
    if value > field.all_ones:
        raise NotEncodable(part=f"{value:#x}", reason=f"{field.ovs_name} has {field.width} bits")
    if field in _SET_BY_FIELD:
        size = size_of(field)
        length = (_SET_FIELD_HEAD.size + size + 7) // 8 * 8
        return padded(_SET_FIELD_HEAD.pack(_TYPE_SET_FIELD, length, HEADERS[field]) + value.to_bytes(size))
    head = ACTION_HEADERS[field]
    return _LOAD.pack(_TYPE_EXPERIMENTER, _LOAD.size, NICIRA, _NX_LOAD, field.width - 1, head, value)


def _encode_foreign(text: str) -> bytes:
    if found := _GROUP_TEXT.fullmatch(text):
        return _GROUP.pack(_TYPE_GROUP, _GROUP.size, int(found[1]))
    if found := _CONTROLLER_TEXT.fullmatch(text):
        return _output(ports.CONTROLLER, max_len=int(found[1]))
    if text in _PORT_WORDS:
        return _output(_PORT_WORDS[text])
    if not text.startswith(_RAW):
        raise NotEncodable(part=text, reason="xenoovs does not know its bytes")
    return unhex(text, behind=_RAW)


def unhex(text: str, *, behind: str) -> bytes:
    """The bytes that stand behind a word, a multiple of 8 of them. Raises NotEncodable."""
    try:
        packed = bytes.fromhex(text.removeprefix(behind))
    except ValueError:
        packed = b""
    if not packed or len(packed) % 8:
        raise NotEncodable(part=text, reason="it is no multiple of 8 bytes in hexadecimal")
    return packed


def _decode_all(body: Reader, names: Mapping[int, str]) -> Iterator[Action]:
    while body.left:
        start = body.offset
        kind, length = body.unpack(_ACTION, "an action")
        if length < 8 or length % 8 or length > body.end - start:
            body.offset = start + 2
            raise body.error("the length of an action, a multiple of 8")
        body.offset = start + length
        yield _decode(kind, body.data[start : start + length], names) or Foreign(
            f"{_RAW}{body.data[start : start + length].hex()}"
        )


def _decode(kind: int, action: bytes, names: Mapping[int, str]) -> Action | None:
    """None for an action that only its bytes describe."""
    decoded: Action | None = None
    match kind, len(action):
        case 0, _OUTPUT.size:
            decoded = _decode_output(action, names)
        case 22, _GROUP.size:
            decoded = Foreign(f"group:{_GROUP.unpack(action)[2]}")
        case 25, _:
            decoded = _decode_set_field(action)
        case 0xFFFF, size if size >= _VENDOR.size and _VENDOR.unpack_from(action)[2] == NICIRA:
            decoded = _decode_nicira(_VENDOR.unpack_from(action)[3], action)
    return decoded


def _decode_output(action: bytes, names: Mapping[int, str]) -> Action:
    _, _, port, max_len = _OUTPUT.unpack(action)
    match port:
        case ports.IN_PORT:
            return OutputInPort()
        case ports.NORMAL:
            return Normal()
        case ports.CONTROLLER:
            return Foreign(f"CONTROLLER:{max_len}")
        case ports.FLOOD | ports.ALL | ports.TABLE:
            return Foreign(ports.RESERVED[port])
        case _:
            return Output(ports.port_name(port, names))


def _decode_set_field(action: bytes) -> Action | None:
    head = int.from_bytes(action[4:8])
    field = ACTION_FIELD_OF.get(head >> 9)
    if field is None or field.width > 64 or head & HAS_MASK or head & 0xFF != size_of(field):
        return None
    return SetField(field, int.from_bytes(action[8 : 8 + size_of(field)]))


def _decode_nicira(subtype: int, action: bytes) -> Action | None:
    match subtype, len(action):
        case 14, _RESUBMIT_TABLE.size:
            *_, port, table = _RESUBMIT_TABLE.unpack(action)
            return Resubmit(table) if port == _SAME_PORT and table <= 254 else None
        case 7, _LOAD.size:
            *_, place, head, value = _LOAD.unpack(action)
            return _load(place, head, value)
        case 45, size:
            return decode_learn(action) if size > LEARN.size else None
        case 6, _MOVE.size:
            *_, bits, source_offset, target_offset, source, target = _MOVE.unpack(action)
            fields = whole_field(source), whole_field(target)
            if fields[0] is None or fields[1] is None or source_offset or target_offset:
                return None
            return Move(fields[0], fields[1]) if bits == fields[0].width == fields[1].width else None
    return None


def _load(place: int, head: int, value: int) -> Action | None:
    field = whole_field(head)
    if field is None or place != field.width - 1 or value > field.all_ones:
        return None
    return SetField(field, value)
