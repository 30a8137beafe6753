"""Values of fields as text and back, exactly as Open vSwitch writes them (lib/meta-flow.c, lib/packets.c)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from xenoovs.openflow.field import Field, Format

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+", re.ASCII)
_FLAGS = {
    1 << bit: name
    for bit, name in enumerate(
        ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]")
    )
}
"""As packet_tcp_flag_to_string() of lib/packets.c calls them."""

_FLAG_BITS = {name: bit for bit, name in _FLAGS.items()}
_FLAG = re.compile(r"([+-])([a-z0-9\[\]]+)", re.ASCII)
_FLAG_LIST = re.compile(r"([+-][a-z0-9\[\]]+)+", re.ASCII)
_BY_NAME = {field.ovs_name: field for field in Field}
_MAC = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", re.ASCII)


@lru_cache(maxsize=65536)
def render_value(field: Field, value: int) -> str:
    """One value of a field."""
    match field.form:
        case Format.DECIMAL | Format.L4_PORT:
            return str(value)
        case Format.FLAGS:
            return render_flags(value, field.all_ones)
        case Format.HEX:
            # OVS writes EtherTypes with four digits and all other numbers without leading zeros (lib/match.c).
            return f"0x{value:04x}" if field is Field.DL_TYPE else render_hex(value)
        case Format.MAC:
            return render_mac(value)
        case Format.IPV4:
            return render_ipv4(value)
        case Format.IPV6:
            return render_ipv6(value)


def render_bits(name: str, bits: int) -> str:
    """Return a value or a mask for people, short numbers in hexadecimal. `name`: of a field, also of an unknown one."""
    field = _BY_NAME.get(name)
    return f"{bits:#x}" if field is None or field.width <= 16 else render_value(field, bits)


@lru_cache(maxsize=65536)
def parse_value(field: Field, text: str) -> int:
    """The inverse of `render_value`; numbers also in the other base. Raises ValueError with the text."""
    match field.form:
        case Format.DECIMAL | Format.L4_PORT | Format.HEX | Format.FLAGS:
            value = _parse_number(text)
        case Format.MAC:
            value = _parse_mac(text)
        case Format.IPV4:
            value = int(_address(IPv4Address, text))
        case Format.IPV6:
            value = int(_address(IPv6Address, text))
    if value > field.all_ones:
        raise ValueError(f"{text!r} does not fit the {field.width} bits of {field.ovs_name}")
    return value


@lru_cache(maxsize=4096)
def render_mask(field: Field, mask: int) -> str:
    """A mask as OVS writes it behind the slash: a prefix length where the mask is one, else like a value."""
    match field.form:
        case Format.IPV4 | Format.IPV6:
            length = prefix_length(mask, field.width)
            return str(length) if length is not None else render_value(field, mask)
        case Format.DECIMAL | Format.L4_PORT:
            return f"{mask:#x}"
        case Format.HEX | Format.MAC | Format.FLAGS:
            return render_value(field, mask)


def render_mask_to_send(field: Field, mask: int) -> str:
    """A mask as ovs-ofctl reads it: like `render_mask`, but an IPv6 mask whose first 16 bits are 0 starts with `::`.

    ovs-ofctl takes a digit behind the slash for the start of a prefix length (ipv6_parse_masked_len(), lib/packets.c),
    also where its own dumps print a mask such as `0:4:0:1000::`. A mask of other first bits cannot be helped: `4000::`
    is refused.
    """
    text = render_mask(field, mask)
    if field.form is not Format.IPV6 or mask >> 112 or ":" not in text or text.startswith(":"):
        return text
    groups = (f"{mask >> shift & 0xFFFF:x}" for shift in range(96, -1, -16))
    return f"::{':'.join(groups)}"


@lru_cache(maxsize=4096)
def parse_mask(field: Field, text: str) -> int:
    """The inverse of `render_mask`. Raises ValueError with the text."""
    if field.form in (Format.IPV4, Format.IPV6) and text.isascii() and text.isdigit():
        length = int(text)
        if length > field.width:
            raise ValueError(f"prefix length {text} is above {field.width}")
        return field.all_ones >> (field.width - length) << (field.width - length)
    return parse_value(field, text)


def render_flags(value: int, mask: int) -> str:
    """TCP flags that are on (+) and off (-), the lowest bit first (format_flags_masked() in lib/flow.c)."""
    shown = (bit for bit in _FLAGS if mask & bit)
    return "".join(f"{'+' if value & bit else '-'}{_FLAGS[bit]}" for bit in shown)


def parse_flags(text: str) -> tuple[int, int] | None:
    """The inverse of `render_flags`: value and mask. None for another form, such as all flags at once."""
    if not _FLAG_LIST.fullmatch(text):
        return None
    signs = [(sign, _FLAG_BITS.get(name)) for sign, name in _FLAG.findall(text)]
    bits = [bit for _, bit in signs if bit is not None]
    if len(bits) < len(signs) or len(set(bits)) < len(bits):
        return None
    return sum(bit for sign, bit in signs if sign == "+" and bit), sum(bits)


def prefix_length(mask: int, width: int) -> int | None:
    """The length of a CIDR mask; None for a mask that is not one (such as 0.0.0.3)."""
    inverse = mask ^ ((1 << width) - 1)
    return width - inverse.bit_length() if inverse & (inverse + 1) == 0 else None


def render_hex(value: int) -> str:
    """As printf(3) does with `%#x`: zero has no prefix."""
    return f"{value:#x}" if value else "0"


def render_mac(value: int) -> str:
    return value.to_bytes(6, "big").hex(":")


def render_ipv4(value: int) -> str:
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def render_ipv6(value: int) -> str:
    """As glibc's inet_ntop(3): RFC 5952, and the last 32 bits dotted behind exactly 96 zero bits or behind ::ffff:."""
    high = value >> 32
    if (high == 0 and value >> 16) or high == 0xFFFF:
        return f"::{'ffff:' if high else ''}{render_ipv4(value & 0xFFFFFFFF)}"
    return IPv6Address(value).compressed


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


def _parse_mac(text: str) -> int:
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address")
    return int(text.replace(":", ""), 16)


def _address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> IPv4Address | IPv6Address:
    try:
        return kind(text)
    except AddressValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}") from None
