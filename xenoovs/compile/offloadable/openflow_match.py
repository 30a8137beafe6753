"""The conditions of an OpenFlow flow as topics of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.compile.offloadable.families import MATCHED, family_of
from xenoovs.compile.offloadable.seen import Seen, Width
from xenoovs.openflow.field import ETH_IPV6, Field
from xenoovs.openflow.match import Masked, Match, match_of
from xenoovs.openflow.render import render_match

_ADDRESSES = (Field.NW_SRC, Field.NW_DST, Field.IPV6_SRC, Field.IPV6_DST)
_PORTS = (Field.TP_SRC, Field.TP_DST)
_IGMP = 2
"""Assigned Internet Protocol Numbers (IANA)."""

_NO_ETHERTYPE = 0x5FF
"""What Open vSwitch calls the type of frames that have none (OFP_DL_TYPE_NOT_ETH_TYPE, OpenFlow 1.0.1, 3.4)."""

_PIPELINE = frozenset((Field.REG0, Field.REG1, Field.REG2, Field.REG3, Field.METADATA, Field.PKT_MARK))
_WORDS = {"igmp": "igmp", "eth": "header"}
_NOTHING = frozenset(("0", "0x0", "0x0000", "0xffff"))
_TAG_MASKS = frozenset(("", "0xffff", "0x1fff", "0xf000", "0xfff", "0x0fff"))


def is_ipv6(match: Match) -> bool:
    """Whether the flow is for IPv6 alone."""
    dl_type = match.get(Field.DL_TYPE)
    return dl_type is not None and dl_type.value == ETH_IPV6


def matched(match: Match) -> Iterator[Seen]:
    """What the flow matches; several of one topic where it does so more than once."""
    yield Seen("header", f"in_port={match.in_port}" if match.in_port else "in_port")
    six = is_ipv6(match)
    if six:
        yield Seen("ipv6", "ipv6")
    for masked in match.masked:
        yield from _condition(masked, six=six)
    for text in match.foreign:
        yield from _foreign(text, six=six)


def width(matches: Iterable[Match], *, written: Iterable[Field] = ()) -> Width:
    """Bytes that the megaflow compares: whole fields, and the header fields that are `written`."""
    fields = {masked.field for match in matches for masked in match.masked} | set(written)
    return Width(sum(field.width // 8 for field in fields - _PIPELINE))


def _condition(masked: Masked, *, six: bool) -> Iterator[Seen]:
    field, text = masked.field, render_match(match_of((masked,)))
    if field in _ADDRESSES and not masked.is_exact:
        yield Seen("masked-address", text)
    elif field in _PORTS and not masked.is_exact:
        yield Seen("masked-port", text)
    elif field is Field.NW_PROTO and masked.value == _IGMP and not six:
        yield Seen("igmp", text)
    elif field is Field.DL_TYPE and masked.value == _NO_ETHERTYPE:
        yield Seen("not-ethernet-ii", text)
    elif field is Field.PKT_MARK and masked.is_exact and not masked.value:
        yield Seen("no-pkt-mark", text)
    elif field in (Field.ICMP_TYPE, Field.ICMP_CODE) and six:
        yield Seen("icmpv6", text)
    else:
        yield Seen(MATCHED[family_of(field.ovs_name) or "ethernet"], text)


def _foreign(text: str, *, six: bool) -> Iterator[Seen]:
    name, is_condition, value = text.partition("=")
    if not is_condition:
        yield Seen(_WORDS.get(name, "unknown-match"), text)
        return
    family = family_of(name)
    match family:
        case None:
            yield Seen("unknown-match", text)
        case "vlan":
            yield Seen(_vlan_topic(name, value), text)
        case "fragment":
            yield Seen(_fragment_topic(value, six=six), text)
        case "ct" if name == "ct_state":
            yield from (Seen(topic, text) for topic in ct_state_topics(value))
        case "packet-type":
            yield Seen("header" if value in ("(0,0)", "(0,0x0)") else "packet-type", text)
        case "recirculation" if value in _NOTHING:
            yield Seen("header", text)
        case "icmp" if six:
            yield Seen("icmpv6", text)
        case "ipv4" | "port" | "sctp-port" if "/" in value:
            yield Seen("masked-address" if family == "ipv4" else "masked-port", text)
        case _:
            yield Seen(MATCHED[family], text)


def _vlan_topic(name: str, value: str) -> str:
    tag, _, mask = value.partition("/")
    if name == "vlan_tci" and tag in _NOTHING:
        return "header"
    return "vlan" if mask in _TAG_MASKS else "vlan-masked"


def _fragment_topic(value: str, *, six: bool) -> str:
    if value in ("no", "not_later"):
        return "header"
    return "fragment-ipv6" if six else "fragment"


def ct_state_topics(value: str) -> Iterator[str]:
    """Topics of a connection state such as `+est-rpl+trk`."""
    yield "ct"
    if any(word in value for word in ("rpl", "inv")):
        yield "ct-reply-invalid"
    if any(word in value for word in ("snat", "dnat")):
        yield "ct-nat"
