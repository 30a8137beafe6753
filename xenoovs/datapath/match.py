"""The match of a megaflow as masked header fields, under the names that ovs-fields(7) gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from xenoovs.datapath.megaflow import Key, Megaflow, split_keys
from xenoovs.datapath.value import MaskedValue, read_masked

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
