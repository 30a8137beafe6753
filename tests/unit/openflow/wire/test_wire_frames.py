"""Messages cut from a stream, wherever it was cut by the network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.errors import WireError
from xenoovs.openflow.wire.frame import HEADER, Frames

_messages = st.lists(st.binary(max_size=40), max_size=8).map(
    lambda bodies: [HEADER.pack(5, 2, HEADER.size + len(body), 7) + body for body in bodies]
)


@given(sent=_messages, cuts=st.lists(st.integers(1, 50)))
def test_messages_come_out_as_they_went_in(sent: list[bytes], cuts: list[int]) -> None:
    frames, stream, received = Frames(), b"".join(sent), list[bytes]()
    for cut in cuts:
        received += frames.feed(stream[:cut])
        stream = stream[cut:]
    received += frames.feed(stream)
    assert received == sent


@pytest.mark.parametrize("header", [HEADER.pack(5, 0, 7, 0), HEADER.pack(0, 0, 8, 0), HEADER.pack(0x47, 0, 8, 0)])
def test_what_no_message_starts_with(header: bytes) -> None:
    with pytest.raises(WireError):
        list(Frames().feed(header))
