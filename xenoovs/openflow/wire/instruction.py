"""Instructions of a flow (OpenFlow 1.4.0, 7.2.4). xenoovs writes one, Apply-Actions, or none to drop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from struct import Struct

from xenoovs.errors import NotEncodable
from xenoovs.openflow.action import Action, Foreign, Resubmit
from xenoovs.openflow.flow import MAX_TABLE
from xenoovs.openflow.wire.action import decode_actions, encode_actions, unhex
from xenoovs.openflow.wire.frame import LARGEST
from xenoovs.openflow.wire.reader import Reader

_INSTRUCTION = Struct("!HH")
_GOTO = Struct("!HHB3x")
_APPLY = Struct("!HH4x")
_GOTO_TABLE, _APPLY_ACTIONS = 1, 4
"""enum ofp_instruction_type."""

_RAW = "instruction:"
"""In front of the hexadecimal bytes of an instruction that xenoovs does not know, as an action of its own."""


def encode_instructions(actions: tuple[Action, ...], ofports: Mapping[str, int]) -> bytes:
    """Raises NotEncodable."""
    return b"".join(_encode_run(kept, run, ofports) for kept, run in groupby(actions, _is_instruction))


def decode_instructions(body: Reader, names: Mapping[int, str]) -> tuple[Action, ...]:
    """The actions up to the end of `body`, in the order in which a switch runs them. Raises WireError."""
    return tuple(_decode_all(body, names))


def _decode_all(body: Reader, names: Mapping[int, str]) -> Iterator[Action]:
    only_applied = True
    while body.left:
        start = body.offset
        kind, length = body.unpack(_INSTRUCTION, "an instruction")
        if length < 8 or length % 8 or length > body.end - start:
            body.offset = start + 2
            raise body.error("the length of an instruction, a multiple of 8")
        body.offset = start + length
        if kind == _APPLY_ACTIONS:
            yield from decode_actions(Reader(body.data, offset=start + _APPLY.size, end=start + length), names)
        elif kind == _GOTO_TABLE and length == _GOTO.size and body.data[start + 4] <= MAX_TABLE and only_applied:
            # Behind applied actions a goto does what a resubmit does; `parse_actions` reads both as one action too.
            yield Resubmit(body.data[start + 4])
        else:
            only_applied = False
            yield Foreign(f"{_RAW}{body.data[start : start + length].hex()}")


def _is_instruction(action: Action) -> bool:
    return isinstance(action, Foreign) and action.text.startswith(_RAW)


def _encode_run(are_instructions: object, run: Iterable[Action], ofports: Mapping[str, int]) -> bytes:
    if are_instructions:
        return b"".join(unhex(action.text, behind=_RAW) for action in run if isinstance(action, Foreign))
    packed = encode_actions(run, ofports)
    length = _APPLY.size + len(packed)
    if length > LARGEST:
        raise NotEncodable(part="a list of actions", reason=f"it has more than {LARGEST} bytes")
    return _APPLY.pack(_APPLY_ACTIONS, length) + packed
