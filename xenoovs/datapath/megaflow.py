"""Megaflows: what the datapath matches and does, and whether software or hardware does it.

Fields and their order: lib/dpctl.c (format_dpif_flow), lib/odp-util.c, ovs-vswitchd(8) "DPCTL COMMANDS".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from xenoovs.dataclass import dataclass, field
from xenoovs.regex import ASCII, regex

# Values in datapath keys (lib/odp-util.c): addresses and numbers with masks, by integer arithmetic alone. Python's
# `ipaddress` and `netaddr` would read 0.0.0.3 in `172.16.0.7/0.0.0.3` as a host mask and return 172.16.0.4/30, but it
# means addresses that end in binary 11.


_NUMBER = regex(r"0[xX][0-9a-fA-F]{1,248}|[0-9]{1,39}", ASCII)
"""The longest is the data of an option of Geneve: 124 bytes (RFC 8926, 3.5)."""
_MAC = regex(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", ASCII)
_IPV4 = regex(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", ASCII)
_LENGTH = regex(r"[0-9]{1,3}", ASCII)


@dataclass(frozen=True, slots=True)
class MaskedValue:
    """A condition `field & mask == value` of non-negative numbers. Value bits outside the mask are 0."""

    value: int
    mask: int


def read_masked(text: str, width: int) -> MaskedValue:
    """Parse `value` or `value/mask`: a MAC, an IPv4 or IPv6 address, or a number.

    `text`: the mask has the form of the value, or is a prefix length behind an IP address. `width`: bits of the field:
    MAC 48, IPv4 32, IPv6 128. Raises ValueError: with the text.
    """
    value_text, is_masked, mask_text = text.partition("/")
    value = parse_value(value_text, width)
    if not is_masked:
        return MaskedValue(value, (1 << width) - 1)
    mask = _parse_mask(mask_text, width, is_address="." in value_text or ":" in value_text)
    return MaskedValue(value & mask, mask)


def parse_number(text: str) -> int:
    """Parse a decimal number, or a hexadecimal one with 0x. Raises ValueError with the text."""
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
    """Parse an address or a number of `width` bits without a mask. Raises ValueError with the text."""
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
"""How long a megaflow stays after its last packet by default (ovs-vswitchd.conf.db(5), max-idle)."""


class Offloaded(Enum):
    """What the datapath reports about hardware. PARTIAL: the NIC matches and marks, the CPU acts."""

    YES = "yes"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the match, `name(inner)`. The keys inside `encap(...)` and `tunnel(...)` stay text. `fields`: cached
    result of `fields_of`; no part of the value."""

    name: str
    inner: str
    fields: Mapping[str, MaskedValue] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Megaflow:
    """One datapath flow.

    Attributes:
        ufid: hash of the first packet's headers, so no identity over time; None without `-m`.
        keys: the match, in the order of the dump, which depends on version and layer.
        bytes: bytes counted in `layer`; layers count differently (software TC omits 14 bytes of each frame).
        used_s: seconds since the last packet; None if never.
        flags: TCP flags seen, `.` for none; None if the layer has none.
        offloaded: None: not reported, so not in hardware if `layer` is known.
        layer: ovs, tc, dpdk, doca, dummy ...; None if the dump was made without `-m`.
        actions: split at commas outside parentheses; `drop` is one.
        extra: statistics and trailing remarks (`dp-extra-info`, `dp-offload-info`) without a field here.
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
        """Return the text inside the first key with this name, outside any encapsulation."""
        for key in self.keys:
            if key.name == name:
                return key.inner
        return None

    @property
    def in_port(self) -> str | None:
        """The datapath port: a name with `-m` or `--names`, else a number (not that of OpenFlow)."""
        return self.key("in_port")

    @property
    def recirc_id(self) -> int:
        """0 for packets from a port, and if the dump omits it."""
        text = self.key("recirc_id")
        return 0 if text is None else parse_number(text)

    def source(self, version: int) -> MaskedValue | None:
        """Return the source address of packets of an IP version, 4 or 6; None if they are of another one."""
        inner = innermost(self.keys, f"ipv{version}")
        if inner is None:
            return None
        text = attributes_of(inner).get("src")
        return MaskedValue(0, 0) if text is None else read_masked(text, 128 if version == 6 else 32)


_WORDS = frozenset(("drop", "pop_vlan", "ct_clear", "pop_eth", "pop_nsh", "ct"))
"""Actions that are one word and no port (format_odp_action of lib/odp-util.c)."""


def output_ports(megaflow: Megaflow) -> tuple[str, ...]:
    return tuple(action for action in megaflow.actions if "(" not in action and action not in _WORDS)


_PUSH_VLAN = regex(r"push_vlan\(vid=([0-9]{1,4})[,)]", ASCII)


def tag_written(action: str) -> int | None:
    """Return the outer tag after an action that changes it, as in `match_of`, 0 for none; None for another action."""
    if action == "pop_vlan":
        return 0
    pushed = _PUSH_VLAN.match(action)
    return None if pushed is None else _TAGGED | int(pushed[1])


def innermost(keys: tuple[Key, ...], name: str) -> str | None:
    """The text inside the key of this name that lies deepest in nested `encap(...)`."""
    own = next((key.inner for key in keys if key.name == name), None)
    encap = next((key.inner for key in keys if key.name == "encap"), None)
    inside = innermost(split_keys(encap), name) if encap else None
    return own if inside is None else inside


def split_keys(text: str) -> tuple[Key, ...]:
    """Split `name(inner),name(inner)`. Raises KeyTextError where the text deviates from this form."""
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
    """Return the index of the parenthesis that closes the one at `opening`."""
    depth, i = 1, opening
    while depth:
        closing, nested = text.find(")", i + 1), text.find("(", i + 1)
        if closing < 0:
            raise KeyTextError(len(text), "a closing parenthesis")
        depth += 1 if 0 <= nested < closing else -1
        i = nested if 0 <= nested < closing else closing
    return i


class KeyTextError(ValueError):
    """Unreadable keys: the offset in their text and what was expected. The parser turns it into a ParseError."""

    def __init__(self, offset: int, expected: str) -> None:
        self.offset, self.expected = offset, expected
        super().__init__(expected)


def is_matched(inner: str) -> bool:
    """Return whether any bit is in a mask of `value`, `value/mask` or `name=value/mask,..`."""
    items = inner.split(",") if inner else ()
    return any("/" not in item or item.rpartition("/")[2].strip("0:.x") for item in items)


def attributes_of(inner: str) -> dict[str, str]:
    """Return the attributes of a key without nesting, such as `src=..,dst=..`."""
    return dict(item.partition("=")[::2] for item in inner.split(","))


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
"""Characters. Longer text is neither address nor number, and is not cached."""

_FLAG = regex(r"([+-])([a-z]+)", ASCII)
_VLAN, _TAGGED = "dl_vlan", 0x1000
"""The outer tag: its id below a bit for the tag itself, as `openflow.flow.Field.VLAN` has it. The megaflow of a packet
without a tag has no such field, and that of one with a tag always matches the bit (ovs-fields(7), "VLAN")."""
NO_VALUES = "vid=0,pcp=0"
_PARSED = frozenset({name for name, _ in _ATTRIBUTES} | set(_WHOLE) | {"tcp_flags", "vlan"})


def match_of(megaflow: Megaflow) -> dict[str, MaskedValue]:
    """Return the match: field name of ovs-fields(7) -> value and mask, for known fields, also behind VLAN tags."""
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
    outer = match.get(_VLAN)
    match.update(inside)
    if outer is not None:
        match[_VLAN] = outer
    return match


def fields_of(name: str, inner: str) -> Mapping[str, MaskedValue]:
    """Return the fields that a key matches; none if it is unknown. Raises ValueError for a bad value."""
    if name in _WHOLE:
        field, width = _WHOLE[name]
        found = read_masked(inner, width)
        return {field: found} if found.mask else {}
    if name not in _PARSED or not inner:
        return {}
    if name == "vlan":
        # The kernel's traffic control shows a rule for any tag so.
        vid = read_masked("0/0" if inner == NO_VALUES else attributes_of(inner).get("vid", "0/0"), 12)
        return {_VLAN: MaskedValue(_TAGGED | vid.value, _TAGGED | vid.mask)}
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
    """Return a field and its value; None if the field is unknown, or its mask is 0."""
    name, _, value = text.partition("=")
    known = _ATTRIBUTES.get((key, name))
    if known is None:
        return None
    found = read_masked(value, known[1])
    return (known[0], found) if found.mask else None


class Verdict(Enum):
    """Where a megaflow runs. ABSENT is neither good nor bad.

    HW:           the NIC forwards it (`offloaded:yes` with any layer but `dummy` and `ovs`).
    UNCONFIRMED:  the NIC holds it, but its counters do not show that it forwards by it.
    PARTIAL:      the NIC matches and marks, the CPU acts (`offloaded:partial`, or `userspace` among the actions).
    TC_SW:        in the kernel's traffic control, but not in the driver (`dp:tc` without `offloaded`).
    IDLE_HW:      the NIC holds it, but the packets that came were counted in software alone.
    SW:           in the software datapath; also `dp:dummy`, the simulated NIC in tests of OVS.
    CONTRADICTED: the NIC counts its packets, but counters of the port show that the CPU got them.
    ABSENT:       there is no megaflow: no packet yet, or none for longer than max-idle (ovs-vswitchd.conf.db(5)).

    Open vSwitch alone shows HW, PARTIAL, TC_SW and SW. The others need the counters of traffic control and of ports.
    """

    HW = "HW"
    UNCONFIRMED = "UNCONFIRMED"
    PARTIAL = "PARTIAL"
    TC_SW = "TC_SW"
    IDLE_HW = "IDLE_HW"
    SW = "SW"
    CONTRADICTED = "CONTRADICTED"
    ABSENT = "ABSENT"

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves.
    __hash__ = object.__hash__

    @property
    def badness(self) -> int:
        """0 for ABSENT; higher is worse."""
        return _BY_BADNESS.index(self)

    @property
    def is_software(self) -> bool:
        """Whether the CPU forwards such packets, or some."""
        return self not in (Verdict.HW, Verdict.UNCONFIRMED, Verdict.ABSENT)


_BY_BADNESS = (Verdict.ABSENT, *(verdict for verdict in Verdict if verdict is not Verdict.ABSENT))


def verdict_of(megaflow: Megaflow) -> Verdict | None:
    """Return where a megaflow runs by the dump alone, never ABSENT; None if it was made without `-m`."""
    if megaflow.layer == "dummy":
        return Verdict.SW
    if megaflow.offloaded is not None:
        # Open vSwitch calls every offloaded megaflow of its own layer partial (flow_passes_type_filter of lib/dpctl.c).
        is_acted_on_by_cpu = megaflow.layer == "ovs" or any(each.startswith("userspace(") for each in megaflow.actions)
        return Verdict.PARTIAL if megaflow.offloaded is Offloaded.PARTIAL or is_acted_on_by_cpu else Verdict.HW
    if megaflow.layer is None:
        return None
    return Verdict.TC_SW if megaflow.layer == "tc" else Verdict.SW
