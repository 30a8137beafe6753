"""Bundles: many messages that a switch takes all or none (OpenFlow 1.4.0, 7.3.9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.errors import NotEncodable
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.wire.flow_mod import encode_flow_mods
from xenoovs.openflow.wire.frame import HEADER, LARGEST, VERSION
from xenoovs.openflow.wire.kinds import BUNDLE_ADD_MESSAGE, BUNDLE_CONTROL
from xenoovs.openflow.wire.reader import Reader, padding

ATOMIC_AND_ORDERED = 0b11
"""OFPBF_ATOMIC and OFPBF_ORDERED: all or none, seen by no packet in part, in the order sent."""

_CONTROL = Struct("!IHH")
_ADD = Struct("!IxxH")


class BundleStep(Enum):
    """enum ofp_bundle_ctrl_type."""

    OPEN_REQUEST = 0
    OPEN_REPLY = 1
    CLOSE_REQUEST = 2
    CLOSE_REPLY = 3
    COMMIT_REQUEST = 4
    COMMIT_REPLY = 5
    DISCARD_REQUEST = 6
    DISCARD_REPLY = 7


@dataclass(frozen=True, slots=True)
class BundleControl:
    """properties: bytes as they came."""

    bundle_id: int
    step: BundleStep
    flags: int = ATOMIC_AND_ORDERED
    properties: bytes = b""


@dataclass(frozen=True, slots=True)
class BundleAdd:
    """inner: a whole message, whose xid is that of this message. properties: bytes as they came."""

    bundle_id: int
    inner: bytes
    flags: int = ATOMIC_AND_ORDERED
    properties: bytes = b""


def encode_bundle(bundle: Bundle, *, bundle_id: int, first_xid: int, ofports: Mapping[str, int]) -> Iterator[bytes]:
    """All messages of a bundle; hold back the last, the commit, until a barrier behind the others was answered.

    xids, which wrap at 32 bits: open `first_xid`, flow-mod n `first_xid + 1 + n`, commit the next. Open vSwitch answers
    open and commit. A flow-mod that it refuses it names by its xid in an error, at once or at the commit; one that was
    refused at once is left out of the bundle, and a commit would then install the others (handle_bundle_add() in
    ofproto/ofproto.c): discard the bundle instead. Raises NotEncodable.
    """
    flags = ATOMIC_AND_ORDERED
    yield _message(BUNDLE_CONTROL, first_xid, encode_control(BundleControl(bundle_id, BundleStep.OPEN_REQUEST)))
    head = _ADD.pack(bundle_id, flags)
    for xid, inner in enumerate(encode_flow_mods(bundle.mods, first_xid=first_xid + 1, ofports=ofports), first_xid + 1):
        yield _message(BUNDLE_ADD_MESSAGE, xid, head + inner)
    commit = BundleControl(bundle_id, BundleStep.COMMIT_REQUEST)
    yield _message(BUNDLE_CONTROL, first_xid + 1 + len(bundle), encode_control(commit))


def encode_control(control: BundleControl) -> bytes:
    return _CONTROL.pack(control.bundle_id, control.step.value, control.flags) + control.properties


def decode_control(body: Reader) -> BundleControl:
    """Raises WireError."""
    start = body.offset
    bundle_id, number, flags = body.unpack(_CONTROL, "a bundle control")
    if number not in _STEPS:
        body.offset = start + 4
        raise body.error("a step of a bundle")
    return BundleControl(bundle_id, _STEPS[number], flags, body.rest())


def encode_add(add: BundleAdd) -> bytes:
    fill = padding(len(add.inner)) if add.properties else b""
    return _ADD.pack(add.bundle_id, add.flags) + add.inner + fill + add.properties


def decode_add(body: Reader) -> BundleAdd:
    """Raises WireError."""
    bundle_id, flags = body.unpack(_ADD, "a bundle add")
    if body.left < HEADER.size:
        raise body.error("a message in a bundle")
    length = int.from_bytes(body.data[body.offset + 2 : body.offset + 4])
    if length < HEADER.size:
        raise body.error("a message in a bundle that is as long as its header")
    inner = body.take(length, "a whole message in a bundle")
    if body.left:
        body.take(-length % 8, "padding")
    return BundleAdd(bundle_id, inner, flags, body.rest())


_STEPS = {step.value: step for step in BundleStep}


def _message(kind: int, xid: int, body: bytes) -> bytes:
    length = HEADER.size + len(body)
    if length > LARGEST:
        raise NotEncodable(part=f"a flow of {len(body)} bytes", reason="it does not fit a message of a bundle")
    return HEADER.pack(VERSION, kind, length, xid & 0xFFFFFFFF) + body
