"""Addresses of a record under other ones: the same structure, and what a mask matches stays the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2s
from ipaddress import IPv4Address, IPv6Address
from secrets import token_bytes

from xenoovs.model.address import Mac, parse_mac

_V4 = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_MAC = r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}"
_V6 = r"(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]{1,4}:){7})[0-9a-fA-F:]{2,39}"
_ADDRESS = re.compile(
    rf"(?<![\w.])(?:(?<!\b[0-9a-fA-F]{{2}}:)(?P<mac>{_MAC})(?:/(?P<mac_mask>{_MAC}))?(?![\w:])"
    rf"|(?P<v4>{_V4})(?:/(?P<v4_mask>{_V4}|[0-9]{{1,2}}))?(?!\w|\.[0-9])"
    rf"|(?P<v6>{_V6})(?:/(?P<v6_mask>{_V6}|[0-9]{{1,3}}))?(?![\w:.]))"
)
_DATAPATH_ID = re.compile(r"\b0000([0-9a-f]{12})\b")
"""The MAC of the bridge, mostly (ovs-vswitchd.conf.db(5), other_config:datapath-id)."""
_HIDDEN = re.compile(r'("(?:hostname|val)":\s*)"[^"]*"|(\bhostname=)[^\s,}]+')
"""The name of the host; headers that tc(8) writes, as pieces of addresses in hexadecimal."""


class Anonymizer:
    """Maps all addresses of a text by a random key that is stored nowhere.

    The first byte of an IPv4 address or MAC and the first two of an IPv6 address stay, as they say of which kind it
    is. Those that follow are mapped so that common prefixes stay common. The last bits (16, 24 and 64) are changed by
    one constant: only so do masks of any of these bits, which blocks of clients have, match the same as before.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = token_bytes(32) if key is None else key
        self._mapped = lru_cache(maxsize=1 << 18)(self._map)

    def __call__(self, text: str) -> str:
        text = _HIDDEN.sub(lambda found: f'{found[1]}"0"' if found[1] else f"{found[2]}host", text)
        text = _DATAPATH_ID.sub(lambda found: f"0000{self._mapped(int(found[1], 16), 48):012x}", text)
        return _ADDRESS.sub(self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        try:
            for name, width, read, show in _KINDS:
                if found[name] is not None:
                    return self._shown(found[name], found[f"{name}_mask"], width, read, show)
        except ValueError:
            # Only like an address, such as a version.
            pass
        return found[0]

    def _shown(
        self, text: str, mask: str | None, width: int, read: Callable[[str], int], show: Callable[[int], str]
    ) -> str:
        value = read(text)
        if mask is None:
            return show(self._exact(value, width))
        if mask.isdecimal():
            bits = (1 << width) - (1 << max(0, width - int(mask)))
            # The host part of an address of a device stays what it is of the address.
            return f"{show(self._exact(value, width) if value & ~bits else self._mapped(value, width) & bits)}/{mask}"
        return f"{show(self._mapped(value, width) & read(mask))}/{mask}"

    def _exact(self, value: int, width: int) -> int:
        """Return the address for one that has no mask: those with a meaning of their own stay."""
        first = value >> (width - 8)
        if width == 32:
            return value if not value or first in (0, 127) or first >= 224 else self._mapped(value, width)
        if width == 48 and first & 1:
            return value ^ (self._low(128, 24) if value >> 24 == 0x3333FF else 0)
        if width == 128 and first == 0xFF:
            # Solicited-node multicast has the last 24 bits of an address (RFC 4291, 2.7.1).
            return value ^ (self._low(128, 24) if value >> 24 == 0xFF0200000000000000000001FF else 0)
        return value if value < 2 else self._mapped(value, width)

    def _map(self, value: int, width: int) -> int:
        kept, low = _KEPT[width]
        mapped = value ^ self._low(width, low)
        for bit in range(low, width - kept):
            mapped ^= self._bit(width, bit, value >> (bit + 1)) << bit
        return mapped

    def _low(self, width: int, bits: int) -> int:
        digest = blake2s(b"low%d" % width, key=self._key).digest()
        return int.from_bytes(digest, "little") & ((1 << bits) - 1)

    def _bit(self, width: int, bit: int, prefix: int) -> int:
        return blake2s(b"%d %d %d" % (width, bit, prefix), key=self._key, digest_size=1).digest()[0] & 1


_KEPT = {32: (8, 16), 48: (8, 24), 128: (16, 64)}
"""Bits of the address -> first ones that stay, last ones that are changed by a constant."""
_KINDS: tuple[tuple[str, int, Callable[[str], int], Callable[[int], str]], ...] = (
    ("mac", 48, lambda text: parse_mac(text).value, lambda value: str(Mac(value))),
    ("v4", 32, lambda text: int(IPv4Address(text)), lambda value: str(IPv4Address(value))),
    ("v6", 128, lambda text: int(IPv6Address(text)), lambda value: str(IPv6Address(value))),
)
