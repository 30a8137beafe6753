"""Frames of probes: what is sent, what counts as an answer, and that other bytes are ignored."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.probe_frames import ADDRESSES, TOKEN, answer_to, quote_of
from xenoovs.agent.paths.frame import (
    Quote,
    Token,
    checksum,
    parse_answer,
    parse_next_hop_mac,
    parse_quote,
    payload,
    probe_head,
)


def test_a_probe_has_66_bytes_and_the_tos_of_the_data() -> None:
    frame = probe_head(ADDRESSES, 50_001) + payload(TOKEN)
    assert len(frame) == 66
    assert frame[15] == 0x20
    assert checksum(frame[14:34]) == 0
    assert (int.from_bytes(frame[34:36], "big"), int.from_bytes(frame[36:38], "big")) == (50_001, 4789)


def test_a_geneve_probe_is_a_frame_of_its_protocol() -> None:
    head = probe_head(replace(ADDRESSES, tunnel_port=6081), 50_001)
    assert head[42:46] == bytes.fromhex("00006558")


def test_an_answer_carries_what_was_sent() -> None:
    answer = parse_answer(answer_to(probe_head(ADDRESSES, 50_001) + payload(TOKEN)))
    assert answer is not None
    assert (answer.token, answer.source, answer.tos) == (TOKEN, ADDRESSES.remote, 0x20)


def test_a_probe_that_comes_back_as_it_was_is_no_answer() -> None:
    assert parse_answer(probe_head(ADDRESSES, 50_001) + payload(TOKEN)) is None


@pytest.mark.parametrize("size", range(66))
def test_a_truncated_answer_is_ignored(size: int) -> None:
    assert parse_answer(answer_to(probe_head(ADDRESSES, 50_001) + payload(TOKEN))[:size]) is None


def test_a_fragment_is_no_answer() -> None:
    frame = bytearray(answer_to(probe_head(ADDRESSES, 50_001) + payload(TOKEN)))
    frame[21] = 1
    frame[24:26] = bytes(2)
    frame[24:26] = checksum(bytes(frame[14:34])).to_bytes(2, "big")
    assert parse_answer(bytes(frame)) is None


def test_a_router_quotes_the_source_port() -> None:
    frame = probe_head(ADDRESSES, 50_001, ttl=1, ident=77) + payload(TOKEN)
    quoted = parse_quote(quote_of(frame, "10.0.0.1"), tunnel_port=4789)
    assert quoted == Quote(IPv4Address("10.0.0.1"), ADDRESSES.remote, 50_001, 77)


def test_a_router_may_quote_no_more_than_the_udp_header() -> None:
    frame = probe_head(ADDRESSES, 50_001, ttl=1, ident=77) + payload(TOKEN)
    assert parse_quote(quote_of(frame, "10.0.0.1", size=28), tunnel_port=4789) is not None
    assert parse_quote(quote_of(frame, "10.0.0.1", size=27), tunnel_port=4789) is None


def test_a_quote_of_another_port_or_with_a_wrong_checksum_is_ignored() -> None:
    quote = quote_of(probe_head(ADDRESSES, 50_001, ttl=1) + payload(TOKEN), "10.0.0.1")
    assert parse_quote(quote, tunnel_port=6081) is None
    assert parse_quote(quote[:-1] + bytes([quote[-1] ^ 1]), tunnel_port=4789) is None


def test_only_packets_of_the_tunnel_teach_the_next_hop() -> None:
    frame = probe_head(ADDRESSES, 50_001) + payload(TOKEN)
    assert parse_next_hop_mac(frame, ADDRESSES.remote, tunnel_port=4789) == ADDRESSES.gateway_mac
    assert parse_next_hop_mac(frame, ADDRESSES.local, tunnel_port=4789) is None
    assert parse_next_hop_mac(frame, ADDRESSES.remote, tunnel_port=6081) is None
    assert parse_next_hop_mac(b"\xff" * 6 + frame[6:], ADDRESSES.remote, tunnel_port=4789) is None


_WHOLE = answer_to(probe_head(ADDRESSES, 50_001) + payload(TOKEN))
_QUOTE = quote_of(probe_head(ADDRESSES, 50_001, ttl=2) + payload(Token(0, 0, 0)), "10.0.0.1")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    (
        parse_answer(data),
        parse_quote(data, tunnel_port=4789),
        parse_next_hop_mac(data, ADDRESSES.remote, tunnel_port=4789),
    )


@given(st.sampled_from([_WHOLE, _QUOTE]), st.integers(0, 80), st.integers(0, 255), st.integers(0, 100))
def test_frames_with_a_changed_byte_are_read_without_an_error(frame: bytes, at: int, value: int, size: int) -> None:
    changed = (frame[:at] + bytes([value]) + frame[at + 1 :])[:size]
    parse_answer(changed), parse_quote(changed, tunnel_port=4789)
