"""Messages cut from a stream, wherever it was cut by the network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.controller.frames import HEADER, Frames, plain_hello, spoken_versions
from xenoovs.errors import MalformedOpenFlow

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
    with pytest.raises(MalformedOpenFlow):
        list(Frames().feed(header))


@pytest.mark.parametrize(
    ("hello", "versions"),
    [
        ("0100000800000001", (1,)),
        ("0500000800000001", (1, 2, 3, 4, 5)),
        ("05000010000000010001000800000012", (1, 4)),
        ("050000180000000100070005000000000001000800000020", (5,)),
        ("0500000b00000001000100", (1, 2, 3, 4, 5)),
    ],
)
def test_versions_of_a_hello(hello: str, versions: tuple[int, ...]) -> None:
    assert spoken_versions(bytes.fromhex(hello)) == versions


def test_a_plain_hello_says_the_same() -> None:
    hello = bytes.fromhex("050000180000000100070008000000000001000800000032")
    plain = plain_hello(hello, spoken_versions(hello))
    assert plain == bytes.fromhex("05000010000000010001000800000032")
    assert spoken_versions(plain) == spoken_versions(hello) == (1, 4, 5)


@given(noise=st.binary(min_size=8, max_size=200))
def test_any_hello_has_versions(noise: bytes) -> None:
    assert all(0 <= version < 256 for version in spoken_versions(noise))
