"""Messages and attributes of netlink as bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.switch.netlink import (
    decode_attributes,
    decode_error,
    decode_messages,
    encode_attributes,
    find_attribute,
    kind_of,
)

ATTRIBUTES = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=8).map(tuple)
WORDS = b"eswitch: unsupported match key\0"


@given(ATTRIBUTES)
def test_attributes_come_back(attributes: tuple[tuple[int, bytes], ...]) -> None:
    data = encode_attributes(attributes)
    assert len(data) % 4 == 0
    assert decode_attributes(data) == attributes


@given(st.binary(max_size=60))
def test_any_bytes_are_read(data: bytes) -> None:
    assert len(decode_attributes(data)) <= len(data) // 4
    assert len(list(decode_messages(data))) <= len(data) // 16


def test_flags_of_a_type_do_not_hide_it() -> None:
    nested = (0x8000 | 2, b"abcd")
    assert kind_of(nested) == 2
    assert find_attribute((nested,), 2) == b"abcd"


def test_messages_of_one_datagram() -> None:
    first = struct.pack("=IHHII", 18, 44, 2, 7, 0) + b"xy"
    data = first + bytes(2) + struct.pack("=IHHII", 16, 3, 2, 7, 0)
    assert list(decode_messages(data)) == [(44, 2, 7, b"xy"), (3, 2, 7, b"")]


MESSAGE = encode_attributes(((1, WORDS),))


@pytest.mark.parametrize(
    ("flags", "error", "rest", "text", "shown"),
    [
        (0x300, 95, MESSAGE, WORDS[:-1].decode(), WORDS[:-1].decode()),
        (0x200, 95, bytes(8) + MESSAGE, WORDS[:-1].decode(), WORDS[:-1].decode()),
        (0x100, 28, b"", "", "No space left on device"),
    ],
    ids=["capped", "with the request", "without a message"],
)
def test_the_message_of_the_kernel(flags: int, error: int, rest: bytes, text: str, shown: str) -> None:
    refused = decode_error(flags, struct.pack("=i", -error) + struct.pack("=IHHII", 24, 44, 5, 7, 0) + rest)
    assert refused is not None
    assert (refused.error, refused.text, str(refused)) == (error, text, shown)


def test_an_acknowledgement_is_no_refusal() -> None:
    assert decode_error(0x100, bytes(20)) is None
