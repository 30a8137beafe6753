"""Any bytes are a message or a WireError, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.property.wire_messages import DECODERS, any_message, damaged
from xenoovs.errors import WireError
from xenoovs.openflow.wire.frame import Frames


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=64) | any_message() | damaged())
@example(data=b"")
@example(data=bytes.fromhex("05130010000000010001000000000000"))
@example(data=bytes.fromhex("05000010000000010001000000000000"))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    for _, decode in DECODERS:
        error = _refusal(decode, data)
        assert error is None or (0 <= error.offset <= len(data) and error.data == data)


def _refusal(decode: Callable[[bytes], object], data: bytes) -> WireError | None:
    try:
        decode(data)
    except WireError as error:
        return error
    return None


@given(data=st.binary(max_size=200))
def test_any_stream_is_split_or_refused(data: bytes) -> None:
    frames, whole = Frames(), list[bytes]()
    with suppress(WireError):
        whole.extend(frames.feed(data))
    joined = b"".join(whole)
    assert data.startswith(joined)
    assert all(int.from_bytes(message[2:4], "big") == len(message) for message in whole)
