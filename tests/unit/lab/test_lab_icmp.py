"""Echo messages as the wire has them (RFC 792, RFC 4443)."""

from __future__ import annotations

import socket
import struct

import pytest

from xenoovs.lab.client import checksum, echo_request, parse_echo_reply

RUN = b"\x01\x02\x03\x04\x05\x06\x07\x08"


def test_checksum_of_the_example_in_rfc_1071() -> None:
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


def test_an_ipv4_request_sums_up_to_zero() -> None:
    request = echo_request(socket.AF_INET, RUN, 70_000)
    assert request[:2] == b"\x08\x00"
    assert checksum(request) == 0


def _packet4(kind: int, *, protocol: int = 1, options: bytes = b"") -> bytes:
    message = bytes([kind]) + echo_request(socket.AF_INET, RUN, 70_000)[1:]
    start = bytes([0x45 + len(options) // 4]) + bytes(8) + bytes([protocol]) + bytes(2)
    return start + socket.inet_aton("10.3.10.45") + socket.inet_aton("198.18.0.7") + options + message


@pytest.mark.parametrize("options", [b"", bytes(8)])
def test_an_ipv4_reply_is_read_behind_any_header(options: bytes) -> None:
    assert parse_echo_reply(socket.AF_INET, _packet4(0, options=options)) == (RUN, 70_000, "198.18.0.7")


def test_an_ipv6_reply_is_read() -> None:
    message = b"\x81" + echo_request(socket.AF_INET6, RUN, 5)[1:]
    header = struct.pack("!IHBB", 6 << 28, len(message), 58, 64) + bytes(16)
    packet = header + socket.inet_pton(socket.AF_INET6, "2001:db8:c::9") + message
    assert parse_echo_reply(socket.AF_INET6, packet) == (RUN, 5, "2001:db8:c::9")


@pytest.mark.parametrize("packet", [_packet4(8), _packet4(0, protocol=17), _packet4(0)[:-1], _packet4(3)])
def test_other_packets_are_no_reply(packet: bytes) -> None:
    assert parse_echo_reply(socket.AF_INET, packet) is None
