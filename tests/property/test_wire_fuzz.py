"""Any bytes are messages or a WireError, nothing else; what is decoded can be sent on as it came."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.property.wire_messages import NAMES, OFPORTS, messages
from xenoovs.errors import NotEncodable, WireError
from xenoovs.openflow.wire.frame import HEADER, VERSION, Frames
from xenoovs.openflow.wire.message import Received, decode, encode


@st.composite
def _any_message(draw: st.DrawFn) -> bytes:
    """A good header before any body, so that each decoder is reached."""
    body = draw(st.binary(max_size=120))
    return HEADER.pack(VERSION, draw(st.integers(0, 36)), HEADER.size + len(body), 1) + body


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A real message with some bytes changed, cut out or put in; the length in its header may be put right."""
    data = bytearray(encode(draw(messages()), xid=1, ofports=OFPORTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    if draw(st.booleans()) and len(data) >= HEADER.size:
        data[2:4] = len(data).to_bytes(2, "big")
    return bytes(data)


_MODIFY_WITH_IMPORTANCE = bytes.fromhex(
    "050e0038 00000000 00000000 00000000 00000000 00000000 00020000"
    "00000000 00000000 ffffffff ffffffff 00000001 00010004 00000000"
)


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=64) | _any_message() | _damaged())
@example(data=b"")
@example(data=bytes.fromhex("05130010000000010001000000000000"))
@example(data=bytes.fromhex("050e0008 00000001"))
@example(data=_MODIFY_WITH_IMPORTANCE)
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    received = _decode(data)
    if isinstance(received, WireError):
        assert 0 <= received.offset <= len(data)
        assert received.data == data
        return
    assert received.xid == int.from_bytes(data[4:8], "big")
    again = _encode(received)
    if again is not None:
        assert decode(again, names=NAMES).message == received.message


@given(data=st.binary(max_size=200))
def test_any_stream_is_cut_or_refused(data: bytes) -> None:
    frames, whole = Frames(), list[bytes]()
    with suppress(WireError):
        whole.extend(frames.feed(data))
    joined = b"".join(whole)
    assert data.startswith(joined)
    assert all(int.from_bytes(message[2:4], "big") == len(message) for message in whole)


def _decode(data: bytes) -> Received | WireError:
    try:
        return decode(data, names=NAMES)
    except WireError as error:
        return error


def _encode(received: Received) -> bytes | None:
    """None for what has no bytes of ours, such as a port without a protocol."""
    try:
        return encode(received.message, xid=received.xid, ofports=OFPORTS)
    except NotEncodable:
        return None
