"""MAC addresses and IP versions."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from xenoovs.model.address import Family, Mac, family_of, parse_mac


@pytest.mark.parametrize("text", ["02:00:5e:10:00:01", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"])
def test_a_mac_is_its_text(text: str) -> None:
    assert str(parse_mac(text)) == text


def test_a_mac_in_capitals_is_the_same_mac() -> None:
    assert parse_mac("E8:EB:D3:9C:71:AC") == parse_mac("e8:eb:d3:9c:71:ac") == Mac(0xE8EBD39C71AC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "02:00:5e:10:00",
        "02:00:5e:10:00:01:02",
        "2:0:5e:10:0:1",
        "02-00-5e-10-00-01",
        "02:00:5e:10:00:0g",
        " 02:00:5e:10:00:01",
        "02:00:5e:10:00:01\n",
        "٠٢:00:5e:10:00:01",
        "02005e100001",
    ],
)
def test_anything_else_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not a MAC address") as caught:
        parse_mac(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "multicast"),
    [
        ("01:00:5e:00:00:01", True),
        ("02:00:5e:00:00:01", False),
        ("ff:ff:ff:ff:ff:ff", True),
        ("fe:ff:ff:ff:ff:ff", False),
    ],
)
def test_the_lowest_bit_of_the_first_octet_means_many(text: str, *, multicast: bool) -> None:
    assert parse_mac(text).is_multicast is multicast


def test_a_family_has_its_number_of_bits() -> None:
    assert family_of(IPv4Address("192.0.2.1")).bits == 32
    assert family_of(IPv6Address("::ffff:192.0.2.1")) is Family.IPV6
