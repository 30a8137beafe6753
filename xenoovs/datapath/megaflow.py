"""Megaflows: what the datapath does with packets, and whether software or hardware does it.

Fields and their order: lib/dpctl.c (format_dpif_flow), lib/odp-util.c, ovs-vswitchd(8) "DPCTL COMMANDS".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

# Values inside datapath keys: addresses and numbers with masks, by integer arithmetic alone (lib/odp-util.c).
#
# Never through network objects: `172.16.0.7/0.0.0.3` is the class of addresses that end in binary 11, while Python's
# `ipaddress` and `netaddr` take 0.0.0.3 for a host mask and answer 172.16.0.4/30.


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


MAX_IDLE_S = 10.0
"""How long a megaflow stays after its last packet where nothing else is set (ovs-vswitchd.conf.db(5), max-idle)."""


class Offloaded(Enum):
    """What the datapath says of hardware. PARTIAL: the NIC matches and marks, the CPU acts."""

    YES = "yes"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the match, `name(inner)`; `encap(...)` and `tunnel(...)` keep their keys as text.

    fields: what `match.fields_of` reads from it, kept where that was done already; no part of the value.
    """

    name: str
    inner: str
    fields: Mapping[str, MaskedValue] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Megaflow:
    """One datapath flow.

    ufid:      hash of the first packet's headers, not of this flow: never an identity over time. None without `-m`.
    keys:      the match, in the order of the dump, which differs from version to version and layer to layer.
    packets, bytes: counted where `layer` says; layers count bytes differently (software TC leaves out 14 a frame).
    used_s:    seconds since the last packet, None: never.
    flags:     TCP flags seen, `.` for none; None where the layer keeps none.
    offloaded: None: not said, so not in hardware if `layer` is known.
    layer:     ovs, tc, dpdk, doca, dummy ...; None: the dump was made without `-m`, which hides it.
    actions:   split at commas outside parentheses; `drop` is one.
    extra:     statistics and trailing remarks (`dp-extra-info`, `dp-offload-info`) that have no field here.
    """

    ufid: str | None
    keys: tuple[Key, ...]
    packets: int
    bytes: int
    used_s: float | None
    flags: str | None
    offloaded: Offloaded | None
    layer: str | None
    actions: tuple[str, ...]
    extra: tuple[tuple[str, str], ...] = ()

    def key(self, name: str) -> str | None:
        """The text inside the first key of this name, outside any encapsulation."""
        for key in self.keys:
            if key.name == name:
                return key.inner
        return None

    @property
    def in_port(self) -> str | None:
        """The datapath port: a name with `-m` or `--names`, else a number (which is not the OpenFlow one)."""
        return self.key("in_port")

    @property
    def recirc_id(self) -> int:
        """0 for packets that come from a port (also where the dump leaves it out)."""
        text = self.key("recirc_id")
        return 0 if text is None else parse_number(text)

    @property
    def eth_type(self) -> int | None:
        """The EtherType behind all VLAN tags."""
        text = innermost(self.keys, "eth_type")
        return None if text is None else parse_masked(text, 16).value

    @property
    def ipv4_src(self) -> MaskedValue | None:
        """None: no IPv4."""
        return self._address("ipv4", "src", 32)

    @property
    def ipv6_src(self) -> MaskedValue | None:
        """None: no IPv6."""
        return self._address("ipv6", "src", 128)

    def _address(self, name: str, attribute: str, width: int) -> MaskedValue | None:
        inner = innermost(self.keys, name)
        if inner is None:
            return None
        text = attributes_of(inner).get(attribute)
        return MaskedValue(0, 0) if text is None else parse_masked(text, width)


def innermost(keys: tuple[Key, ...], name: str) -> str | None:
    """The text inside the key of this name that lies deepest in nested `encap(...)`."""
    own = next((key.inner for key in keys if key.name == name), None)
    encap = next((key.inner for key in keys if key.name == "encap"), None)
    inside = innermost(split_keys(encap), name) if encap else None
    return own if inside is None else inside


def split_keys(text: str) -> tuple[Key, ...]:
    """`name(inner),name(inner)`. Raises KeyTextError where the text stops to have this form."""
    keys, start, end = list[Key](), 0, len(text)
    while start < end:
        opening = text.find("(", start)
        name = text[start:opening]
        if opening < 0 or not (name.isascii() and name.isidentifier()):
            raise KeyTextError(start, "a key of the form name(...)")
        closing = _closing(text, opening)
        keys.append(Key(name, text[opening + 1 : closing]))
        start = closing + 1
        if start < end and (text[start] != "," or start + 1 == end):
            raise KeyTextError(start, "a comma and another key")
        start += 1
    return tuple(keys)


def _closing(text: str, opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`."""
    closing, nested = text.find(")", opening), text.find("(", opening + 1)
    depth, i = 1, opening
    if closing >= 0 and (nested < 0 or closing < nested):
        return closing
    while depth:
        closing, nested = text.find(")", i + 1), text.find("(", i + 1)
        if closing < 0:
            raise KeyTextError(len(text), "a closing parenthesis")
        depth += 1 if 0 <= nested < closing else -1
        i = nested if 0 <= nested < closing else closing
    return i


class KeyTextError(ValueError):
    """Where, counted from the start of the key text, and what was expected; the parser turns it into a ParseError."""

    def __init__(self, offset: int, expected: str) -> None:
        self.offset, self.expected = offset, expected
        super().__init__(expected)


def attributes_of(inner: str) -> dict[str, str]:
    """`src=..,dst=..` of one key without nesting."""
    return dict(item.partition("=")[::2] for item in inner.split(","))


# The match of a megaflow as masked header fields, under the names that ovs-fields(7) gives them.


_ATTRIBUTES: Mapping[tuple[str, str], tuple[str, int]] = {
    ("eth", "src"): ("dl_src", 48),
    ("eth", "dst"): ("dl_dst", 48),
    ("ipv4", "src"): ("nw_src", 32),
    ("ipv4", "dst"): ("nw_dst", 32),
    ("ipv4", "proto"): ("nw_proto", 8),
    ("ipv4", "tos"): ("nw_tos", 8),
    ("ipv4", "ttl"): ("nw_ttl", 8),
    ("ipv6", "src"): ("ipv6_src", 128),
    ("ipv6", "dst"): ("ipv6_dst", 128),
    ("ipv6", "proto"): ("nw_proto", 8),
    ("ipv6", "tclass"): ("nw_tos", 8),
    ("ipv6", "hlimit"): ("nw_ttl", 8),
    ("arp", "sip"): ("arp_spa", 32),
    ("arp", "tip"): ("arp_tpa", 32),
    ("arp", "op"): ("arp_op", 16),
    ("arp", "sha"): ("arp_sha", 48),
    ("arp", "tha"): ("arp_tha", 48),
    ("icmp", "type"): ("icmp_type", 8),
    ("icmp", "code"): ("icmp_code", 8),
    ("icmpv6", "type"): ("icmp_type", 8),
    ("icmpv6", "code"): ("icmp_code", 8),
    **{(l4, end): (f"tp_{end}", 16) for l4 in ("tcp", "udp", "sctp") for end in ("src", "dst")},
}
"""(key, attribute) of lib/odp-util.c -> field of ovs-fields(7) and its width."""

_WHOLE: Mapping[str, tuple[str, int]] = {"eth_type": ("dl_type", 16), "skb_mark": ("pkt_mark", 32)}
_FLAGS = ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns")
"""TCP flags by bit (packet_tcp_flag_to_string() in lib/packets.c)."""

_LONG = 256
"""Characters. Longer text is no address or number, and is not kept to be found again."""

_FLAG = re.compile(r"([+-])([a-z]+)", re.ASCII)
_PARSED = frozenset({name for name, _ in _ATTRIBUTES} | set(_WHOLE) | {"tcp_flags"})


def match_of(megaflow: Megaflow) -> dict[str, MaskedValue]:
    """Field name -> value and mask, for each known field with any bit in its mask; of VLANs the inside alone."""
    return _match_of(megaflow.keys)


def _match_of(keys: tuple[Key, ...]) -> dict[str, MaskedValue]:
    match: dict[str, MaskedValue] = {}
    inside: dict[str, MaskedValue] = {}
    for key in keys:
        fields = key.fields
        if fields:
            match.update(fields)
        elif fields is None and key.name == "encap":
            inside = _match_of(split_keys(key.inner))
        elif fields is None:
            match.update(fields_of(key.name, key.inner))
    match.update(inside)
    return match


def fields_of(name: str, inner: str) -> Mapping[str, MaskedValue]:
    """The fields that the key `name(inner)` matches; none for a key of another kind.

    Raises ValueError for a value that is none.
    """
    if name in _WHOLE:
        field, width = _WHOLE[name]
        found = read_masked(inner, width)
        return {field: found} if found.mask else {}
    if name not in _PARSED or not inner:
        return {}
    if name == "tcp_flags":
        flags = [(sign, 1 << _FLAGS.index(flag)) for sign, flag in _FLAG.findall(inner) if flag in _FLAGS]
        on, seen = sum(bit for sign, bit in flags if sign == "+"), sum(bit for _, bit in flags)
        return {name: MaskedValue(on, seen)} if seen else {}
    fields = {}
    for item in inner.split(","):
        attribute = (_attribute if len(item) <= _LONG else _attribute.__wrapped__)(name, item)
        if attribute is not None:
            fields[attribute[0]] = attribute[1]
    return fields


@lru_cache(maxsize=65536)
def _attribute(key: str, text: str) -> tuple[str, MaskedValue] | None:
    """None: of no known field, or with no bit in its mask."""
    name, _, value = text.partition("=")
    known = _ATTRIBUTES.get((key, name))
    if known is None:
        return None
    found = read_masked(value, known[1])
    return (known[0], found) if found.mask else None


# Where a megaflow runs, from one line of `dpctl/dump-flows -m` alone.


class Verdict(Enum):
    """From best to worst; ABSENT is neither good nor bad: no megaflow, so nothing to judge.

    HW:      the NIC forwards it (`offloaded:yes`, whatever the layer but `dummy`).
    PARTIAL: the NIC matches and marks, the CPU acts (`offloaded:partial`).
    TC_SW:   in the kernel's traffic control, which the driver did not take (`dp:tc` without `offloaded`).
    SW:      in the software of the datapath itself; also `dp:dummy`, the pretended NIC of OVS in tests.
    ABSENT:  no packet yet, or none for longer than max-idle (ovs-vswitchd.conf.db(5)).
    """

    HW = "HW"
    PARTIAL = "PARTIAL"
    TC_SW = "TC_SW"
    SW = "SW"
    ABSENT = "ABSENT"

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves.
    __hash__ = object.__hash__

    @property
    def badness(self) -> int:
        """0: nothing to say (ABSENT), then higher is worse."""
        order = (Verdict.ABSENT, Verdict.HW, Verdict.PARTIAL, Verdict.TC_SW, Verdict.SW)
        return order.index(self)


def verdict_of(megaflow: Megaflow) -> Verdict | None:
    """Never ABSENT. None: the dump was made without `-m`, which hides where a megaflow runs."""
    if megaflow.layer == "dummy":
        return Verdict.SW
    if megaflow.offloaded is Offloaded.YES:
        return Verdict.HW
    if megaflow.offloaded is Offloaded.PARTIAL:
        return Verdict.PARTIAL
    if megaflow.layer is None:
        return None
    return Verdict.TC_SW if megaflow.layer == "tc" else Verdict.SW
