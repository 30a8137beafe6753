"""Megaflows: what the datapath does with packets, and where; one line of `ovs-appctl dpctl/dump-flows -m`.

Fields and their order: lib/dpctl.c (format_dpif_flow), lib/odp-util.c, ovs-vswitchd(8) "DPCTL COMMANDS".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from xenoovs.datapath.value import MaskedValue, parse_masked, parse_number

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
