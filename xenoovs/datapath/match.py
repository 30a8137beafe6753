"""The match of a megaflow as masked header fields, under the names that ovs-fields(7) gives them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from xenoovs.datapath.megaflow import Key, Megaflow, split_keys
from xenoovs.datapath.value import MaskedValue, parse_masked

_ATTRIBUTES: Mapping[tuple[str, str], tuple[str, int]] = {
    ("eth", "src"): ("dl_src", 48),
    ("eth", "dst"): ("dl_dst", 48),
    ("ipv4", "src"): ("nw_src", 32),
    ("ipv4", "dst"): ("nw_dst", 32),
    ("ipv4", "proto"): ("nw_proto", 8),
    ("ipv4", "ttl"): ("nw_ttl", 8),
    ("ipv6", "src"): ("ipv6_src", 128),
    ("ipv6", "dst"): ("ipv6_dst", 128),
    ("ipv6", "proto"): ("nw_proto", 8),
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
_PARSED = frozenset({name for name, _ in _ATTRIBUTES} | set(_WHOLE))


def match_of(megaflow: Megaflow) -> dict[str, MaskedValue]:
    """Field name -> value and mask, for each known field with any bit in its mask; of VLANs the inside alone."""
    return _match_of(megaflow.keys)


def _match_of(keys: tuple[Key, ...]) -> dict[str, MaskedValue]:
    match: dict[str, MaskedValue] = {}
    for key in keys:
        if key.name == "encap":
            match.update(_match_of(split_keys(key.inner)))
        elif key.name in _PARSED:
            match.update(key_fields(key))
    return match


@lru_cache(maxsize=65536)
def key_fields(key: Key) -> Mapping[str, MaskedValue]:
    """The fields that one key matches; none for a key of another kind. Raises ValueError for a value that is none."""
    if key.name not in _PARSED or not key.inner:
        return {}
    if key.name in _WHOLE:
        field, width = _WHOLE[key.name]
        found = {field: parse_masked(key.inner, width)}
    else:
        found = dict(filter(None, (_attribute(key.name, item) for item in key.inner.split(","))))
    return {field: value for field, value in found.items() if value.mask}


@lru_cache(maxsize=65536)
def _attribute(key: str, text: str) -> tuple[str, MaskedValue] | None:
    name, _, value = text.partition("=")
    known = _ATTRIBUTES.get((key, name))
    return None if known is None else (known[0], parse_masked(value, known[1]))
