"""Addresses under other ones: what a mask matches stays the same, and kinds of addresses too."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.evidence.take import Anonymizer

KEYS = st.binary(min_size=32, max_size=32)
V4, V6 = st.integers(1 << 24, (127 << 24) - 1), st.integers(1 << 112, (0xFF00 << 112) - 1)
LOW_MASKS = st.integers(0, (1 << 16) - 1)
PREFIXES = st.integers(0, 32).map(lambda length: (1 << 32) - (1 << (32 - length)))
MASKS = LOW_MASKS | PREFIXES | LOW_MASKS.map(lambda low: 0xFFFF << 16 | low)


def _v4(text: str) -> list[int]:
    return [int(IPv4Address(found)) for found in re.findall(r"[0-9.]{7,}", text)]


@given(KEYS, V4, V4, MASKS)
def test_a_mask_matches_the_same_addresses_as_before(key: bytes, client: int, value: int, mask: int) -> None:
    flow = f"nw_src={IPv4Address(value & mask)}/{IPv4Address(mask)} from {IPv4Address(client)}"
    mapped_value, mapped_mask, mapped_client = _v4(Anonymizer(key)(flow))
    assert mapped_mask == mask
    assert mapped_value & mask == mapped_value
    assert (mapped_client & mask == mapped_value) == (client & mask == value & mask)


@given(KEYS, V4, V4)
def test_addresses_stay_different_and_keep_their_common_prefix(key: bytes, one: int, other: int) -> None:
    first, second = _v4(Anonymizer(key)(f"{IPv4Address(one)} {IPv4Address(other)}"))
    assert (first ^ second).bit_length() == (one ^ other).bit_length()
    assert first >> 24 == one >> 24


@given(KEYS, V6, st.integers(0, 128))
def test_ipv6_too(key: bytes, value: int, length: int) -> None:
    anonymous, network = Anonymizer(key), value >> (128 - length) << (128 - length)
    address = int(IPv6Address(anonymous(f"x {IPv6Address(value)}").split()[1]))
    mapped, _, mask = anonymous(f"x {IPv6Address(network)}/{length}").split()[1].partition("/")
    assert mask == str(length)
    assert int(IPv6Address(mapped)) == address >> (128 - length) << (128 - length)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0/0 0.0.0.0/0.0.0.0 255.255.255.255 127.0.0.1 224.0.0.251 :: ::/0 ::1 ff02::fb",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 01:00:5e:00:00:fb 33:33:00:00:00:01 01:80:c2:00:00:00",
        "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 eth(src=00:00:00:00:00:00/00:00:00:00:00:00)",
        "2026-11-27T00:47:33.123Z|00012|bridge|INFO pci/0000:03:00.0 firmware 22.999.1.2 kernel 6.1.0-13 netdev::x",
        "ufid:43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32 cookie=0x786f010000000000",
    ],
)
def test_what_has_a_meaning_of_its_own_stays(text: str) -> None:
    assert Anonymizer(bytes(32))(text) == text


@pytest.mark.parametrize(
    ("before", "address", "after"),
    [
        ("tcp:", "10.1.2.3", ":6640"),
        ("mod_dl_dst:", "02:00:5e:10:00:02", ",output:p1"),
        ("set_field:", "02:00:5e:10:00:02", "->eth_dst"),
        ("set_field:", "2001:db8::1", "->ipv6_src"),
        ("tcp:[", "2001:db8::1", "]:6640"),
        ('"', "fe80::5e:10ff:fe00:2", '"'),
        ("", "33:33:ff:10:00:02", ""),
        ("route to ", "192.0.2.1", "."),
        ('"datapath_id": "', "0000c6467a3332b5", '"'),
        ('"hostname": "', "dpu-1.example", '"'),
    ],
)
def test_an_address_is_found_wherever_it_is(before: str, address: str, after: str) -> None:
    mapped = Anonymizer(bytes(32))(f"{before}{address}{after}")
    assert address not in mapped
    assert mapped.startswith(before)
    assert mapped.endswith(after)


def test_another_key_gives_another_address() -> None:
    assert len({Anonymizer()("192.0.2.77") for _ in range(8)}) > 1
