"""Values inside datapath keys: addresses and numbers with masks, by integer arithmetic alone (lib/odp-util.c).

Never through network objects: `172.16.0.7/0.0.0.3` is the class of addresses that end in binary 11, while Python's
`ipaddress` and `netaddr` take 0.0.0.3 for a host mask and answer 172.16.0.4/30.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,32}|[0-9]{1,39}", re.ASCII)
_MAC = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", re.ASCII)
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", re.ASCII)
_LENGTH = re.compile(r"[0-9]{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MaskedValue:
    """`field & mask == value`; both not negative, no bit of the value outside the mask. Mask 0: anything."""

    value: int
    mask: int


@lru_cache(maxsize=65536)
def parse_masked(text: str, width: int) -> MaskedValue:
    """`value`, or `value/mask` of a field of `width` bits: a MAC (48), IPv4 (32) or IPv6 (128) address, or a number.

    The mask is of the value's form, or a prefix length behind an IP address. Raises ValueError with the text.
    """
    return read_masked(text, width)


def read_masked(text: str, width: int) -> MaskedValue:
    """As `parse_masked`, for callers that keep what they read themselves."""
    value_text, is_masked, mask_text = text.partition("/")
    value = parse_value(value_text, width)
    if not is_masked:
        return MaskedValue(value, (1 << width) - 1)
    mask = _parse_mask(mask_text, width, is_address="." in value_text or ":" in value_text)
    return MaskedValue(value & mask, mask)


def parse_number(text: str) -> int:
    """A decimal number, or a hexadecimal one with 0x. Raises ValueError with the text."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"a number, not {text!r}")
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


def _parse_mask(text: str, width: int, *, is_address: bool) -> int:
    if not is_address or width == 48 or not _LENGTH.fullmatch(text):
        return parse_value(text, width)
    length = int(text)
    if length > width:
        raise ValueError(f"a prefix length of at most {width}, not {text}")
    return (1 << width) - (1 << (width - length))


def parse_value(text: str, width: int) -> int:
    """An address or a number of `width` bits, without a mask. Raises ValueError with the text."""
    if width == 32 and _IPV4.fullmatch(text):
        first, second, third, fourth = map(int, text.split("."))
        if first > 255 or second > 255 or third > 255 or fourth > 255:
            raise ValueError(f"an IPv4 address, not {text!r}")
        return first << 24 | second << 16 | third << 8 | fourth
    if ":" in text:
        return _parse_colons(text, width)
    value = parse_number(text)
    if value >> width:
        raise ValueError(f"a number of {width} bits, not {text}")
    return value


def _parse_colons(text: str, width: int) -> int:
    if width == 48 and _MAC.fullmatch(text):
        return int(text.replace(":", ""), 16)
    if width == 128:
        try:
            return int(IPv6Address(text))
        except AddressValueError:
            pass
    raise ValueError(f"an address of {width} bits, not {text!r}")
