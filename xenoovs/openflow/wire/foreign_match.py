"""Conditions that xenoovs never writes: common ones in the words of ovs-fields(7), all others as `oxm:` and hex.

Numbers: OpenFlow 1.4.0, 7.2.2.7, and include/openvswitch/meta-flow.h of Open vSwitch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

from xenoovs.errors import NotEncodable
from xenoovs.openflow.value import prefix_length, render_hex, render_ipv6, render_mac
from xenoovs.openflow.wire.oxm import HAS_MASK, NXM_NX, OXM, header, masked_header
from xenoovs.openflow.wire.reader import U32

_RAW = "oxm:"
_VLAN_PRESENT = 0x1000
"""OFPVID_PRESENT: the packet has a tag (7.2.2.7)."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field by its name in ovs-ofctl(8). render, parse: value as text and back, parse raises ValueError."""

    name: str
    header: int
    render: Callable[[int], str]
    parse: Callable[[str], int]

    @property
    def size(self) -> int:
        return self.header & 0xFF


def foreign_condition(condition: bytes) -> str:
    """The text of one condition, header and value, of a field that is not in `Field`."""
    number, value = int.from_bytes(condition[:4]), condition[4:]
    kind = _BY_NUMBER.get(number >> 9)
    if kind is not None:
        if number == kind.header and len(value) == kind.size:
            text = f"{kind.name}={kind.render(int.from_bytes(value))}"
        else:
            text = _masked_text(kind, number, value)
        # Only what is read back as the same bytes is told in words.
        if text and _parse_known(text) == condition:
            return text
    return f"{_RAW}{condition.hex()}"


def foreign_oxm(text: str) -> bytes:
    """The inverse of `foreign_condition`. Raises NotEncodable for a condition that is only known as text."""
    if text.startswith(_RAW):
        try:
            return bytes.fromhex(text.removeprefix(_RAW))
        except ValueError:
            raise NotEncodable(part=text, reason="it is not hexadecimal") from None
    condition = _parse_known(text)
    if condition is None:
        raise NotEncodable(part=text, reason="xenoovs does not know its bytes")
    return condition


def _masked_text(kind: _Kind, number: int, value: bytes) -> str:
    if number != masked_header(kind.header) or len(value) != 2 * kind.size:
        return ""
    head, mask = value[: kind.size], int.from_bytes(value[kind.size :])
    length = prefix_length(mask, 128) if kind.size == 16 else None
    shown = kind.render(mask) if length is None else str(length)
    return f"{kind.name}={kind.render(int.from_bytes(head))}/{shown}"


def _parse_known(text: str) -> bytes | None:
    name, _, rest = text.partition("=")
    kind = _BY_NAME.get(name)
    if kind is None:
        return None
    value, is_masked, mask = rest.partition("/")
    try:
        packed = kind.parse(value).to_bytes(kind.size)
        if not is_masked:
            return U32.pack(kind.header) + packed
        bits = _prefix(mask) if kind.size == 16 and mask.isascii() and mask.isdigit() else kind.parse(mask)
        return U32.pack(kind.header | HAS_MASK)[:3] + bytes((2 * kind.size,)) + packed + bits.to_bytes(kind.size)
    except (ValueError, OverflowError):
        return None


def _prefix(length: str) -> int:
    return (1 << 128) - (1 << 128 - int(length)) if int(length) <= 128 else 1 << 128


def _parse_number(text: str) -> int:
    if not re.fullmatch("0x[0-9a-f]+|[0-9]+", text, re.ASCII):
        raise ValueError(text)
    return int(text, 0)


def _parse_mac(text: str) -> int:
    if not re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", text, re.ASCII):
        raise ValueError(text)
    return int(text.replace(":", ""), 16)


def _parse_ipv6(text: str) -> int:
    try:
        return int(IPv6Address(text))
    except AddressValueError as error:
        raise ValueError(text) from error


def _decimal(name: str, place: tuple[int, int], width: int) -> _Kind:
    return _Kind(name, header(*place, width=width), str, _parse_number)


def _hex(name: str, place: tuple[int, int], width: int) -> _Kind:
    return _Kind(name, header(*place, width=width), render_hex, _parse_number)


def _render_vlan(value: int) -> str:
    return str(value & ~_VLAN_PRESENT) if value & _VLAN_PRESENT else ""


_KINDS = (
    _Kind("dl_vlan", header(OXM, 6, width=16), _render_vlan, lambda text: _parse_number(text) | _VLAN_PRESENT),
    _decimal("dl_vlan_pcp", (OXM, 7), 8),
    # The specification counts in codepoints, ovs-ofctl in the whole byte, whose last two bits are ECN.
    _Kind("nw_tos", header(OXM, 8, width=8), lambda v: str(v << 2), lambda text: _parse_number(text) >> 2),
    _decimal("nw_ecn", (OXM, 9), 8),
    _decimal("nw_ttl", (NXM_NX, 29), 8),
    _hex("tun_id", (OXM, 38), 64),
    _Kind("nd_target", header(OXM, 31, width=128), render_ipv6, _parse_ipv6),
    _Kind("nd_sll", header(OXM, 32, width=48), render_mac, _parse_mac),
    _Kind("nd_tll", header(OXM, 33, width=48), render_mac, _parse_mac),
    _decimal("conj_id", (NXM_NX, 37), 32),
    _decimal("ct_zone", (NXM_NX, 106), 16),
    _hex("ct_mark", (NXM_NX, 107), 32),
    *(_hex(f"reg{number}", (NXM_NX, number), 32) for number in range(4, 16)),
)
_BY_NUMBER = {kind.header >> 9: kind for kind in _KINDS}
_BY_NAME = {kind.name: kind for kind in _KINDS}
