"""Which topics of the offload table an OpenFlow flow touches, by its conditions, its actions and its groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from xenoovs.errors import ParseError
from xenoovs.openflow.flow import (
    ETH_IPV6,
    LOCAL,
    Action,
    Field,
    Foreign,
    Learn,
    Masked,
    Match,
    Move,
    Normal,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
    match_of,
)
from xenoovs.openflow.text import parse_actions, render_actions, render_match

# What was seen in a flow or megaflow, by the names of the table's topics.


@dataclass(frozen=True, slots=True)
class Seen:
    """`topic`: a name of the table. `evidence`: the condition, action or key as it is written."""

    topic: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Width:
    """How many bytes a match compares; what NVIDIA calls the match size."""

    size_bytes: int

    def seen(self) -> Iterator[Seen]:
        """One rule of OVS-DOCA matches 32 bytes."""
        if self.size_bytes > _DOCA_MATCH_BYTES:
            yield Seen("wide-match", f"{self.size_bytes} bytes")


_DOCA_MATCH_BYTES = 32
_MOST_ACTIONS = 16
"""TCA_ACT_MAX_NUM in lib/tc.h."""

_L4_SETS = frozenset(("set-l4-port", "set-ip", "set-ipv6"))
"""What makes TC mend the checksum of TCP or UDP (tc_will_add_l4_checksum() in lib/netdev-offload-tc.c)."""

_FRAGMENTS = frozenset(("fragment", "fragment-ipv6"))


def combinations(found: Iterable[Seen], *, outputs: int, actions: int) -> Iterator[Seen]:
    """What several things of one flow make together. `actions`: of the datapath, outputs included."""
    topics = {seen.topic: seen for seen in found}
    if outputs > 1:
        yield Seen("several-outputs", f"{outputs} outputs")
    if actions > _MOST_ACTIONS:
        yield Seen("many-actions", f"{actions} actions")
    fragment = next((seen for name, seen in topics.items() if name in _FRAGMENTS), None)
    written = next((seen for name, seen in topics.items() if name in _L4_SETS), None)
    if fragment is not None and written is not None:
        yield Seen("set-port-of-fragment", f"{fragment.evidence} with {written.evidence}")


def without_repetition(found: Iterable[Seen]) -> tuple[Seen, ...]:
    """Each topic once, with its first evidence, in the order of `found`."""
    return tuple({seen.topic: seen for seen in reversed(tuple(found))}.values())[::-1]


# Names of header fields, in each of the spellings of Open vSwitch, to what they are about (ovs-fields(7)).


_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"reg\d+|x+reg\d+|pkt_reg\d+|metadata|conj_id|actset_output|in_port(_oxm)?|phy_port", "pipeline"),
    (r"recirc_id", "recirculation"),
    (r"pkt_mark", "mark"),
    (r"skb_priority", "priority"),
    (r"dp_hash", "dp-hash"),
    (r"packet_type", "packet-type"),
    (r"(dl|eth)_(src|dst)|eth|dl_type|eth_type", "ethernet"),
    (r"dl_vlan|dl_vlan_pcp|vlan_(tci|vid|pcp)\d?", "vlan"),
    (r"mpls_\w+", "mpls"),
    (r"(nw|ip|ipv4)_(src|dst)", "ipv4"),
    (r"ipv6_(src|dst)", "ipv6"),
    (r"ipv6_label", "label"),
    (r"(nw|ip)_(tos|ecn|dscp)(_shifted)?|dscp", "tos"),
    (r"(nw|ip)_ttl", "ttl"),
    (r"(nw|ip)_frag", "fragment"),
    (r"(nw|ip)_proto", "protocol"),
    (r"tcp_flags", "tcp-flags"),
    (r"(tp|tcp|udp)_(src|dst)", "port"),
    (r"sctp_(src|dst)", "sctp-port"),
    (r"(icmp|icmpv4)_(type|code)", "icmp"),
    (r"icmpv6_(type|code)", "icmpv6"),
    (r"nd_\w+", "nd"),
    (r"arp_\w+", "arp"),
    (r"ct_(state|zone|mark|label)", "ct"),
    (r"ct_(nw|ipv6|tp)_\w+", "ct-tuple"),
    (r"tun_metadata\d+", "tunnel-options"),
    (r"tun_flags", "tunnel-flags"),
    (r"(tun|tunnel)(6)?_\w+", "tunnel"),
    (r"nsh_\w+", "nsh"),
)
"""Of several that fit, the first counts."""

_COMPILED = tuple((re.compile(pattern), family) for pattern, family in _FAMILIES)
_PREFIX = re.compile(r"(nxm_of_|nxm_nx_|nxm_nxm_|oxm_of_|nxoxm_et_|nxoxm_nsh_|erxoxm_)")

MATCHED = {
    "pipeline": "pipeline-field",
    "recirculation": "recirculated",
    "mark": "pkt-mark",
    "priority": "skb-priority",
    "dp-hash": "dp-hash",
    "packet-type": "packet-type",
    "ethernet": "header",
    "vlan": "vlan",
    "mpls": "mpls",
    "ipv4": "header",
    "ipv6": "ipv6",
    "label": "ipv6-label",
    "tos": "ip-tos",
    "ttl": "ip-ttl",
    "fragment": "fragment",
    "protocol": "header",
    "tcp-flags": "tcp-flags",
    "port": "header",
    "sctp-port": "header",
    "icmp": "icmp",
    "icmpv6": "icmpv6",
    "nd": "nd",
    "arp": "arp",
    "ct": "ct",
    "ct-tuple": "ct-tuple",
    "tunnel": "tunnel",
    "tunnel-options": "tunnel-options",
    "tunnel-flags": "tunnel-flags",
    "nsh": "nsh",
}
"""Family -> topic where it is matched."""

WRITTEN = {
    "pipeline": "pipeline-action",
    "recirculation": "pipeline-action",
    "mark": "set-pkt-mark",
    "priority": "set-queue",
    "ethernet": "set-ethernet",
    "vlan": "vlan-action",
    "mpls": "mpls-action",
    "ipv4": "set-ip",
    "ipv6": "set-ipv6",
    "label": "set-ipv6-label",
    "tos": "set-tos",
    "ttl": "set-ttl",
    "port": "set-l4-port",
    "sctp-port": "set-sctp-port",
    "icmp": "set-icmp",
    "icmpv6": "set-icmp",
    "nd": "set-nd",
    "arp": "set-arp",
    "tunnel": "set-tunnel",
    "tunnel-options": "set-tunnel-options",
    "tunnel-flags": "set-tunnel",
    "nsh": "nsh-action",
}
"""Family -> topic where it is written."""


@lru_cache(maxsize=1024)
def family_of(name: str) -> str | None:
    """The family of a field: `nw_src`, `NXM_OF_IP_SRC[]`, `tun_id`; None for a name that is not known."""
    plain = _PREFIX.sub("", name.partition("[")[0].lower(), count=1)
    return next((family for pattern, family in _COMPILED if pattern.fullmatch(plain)), None)


# The groups of a bridge, as far as the kind of choice goes: `ovs-ofctl -O OpenFlow15 dump-groups BRIDGE`.


_GROUP = re.compile(r"\s*group_id=([0-9]+),type=(all|select|indirect|ff|fast_failover)(?:,(.*))?", re.ASCII)
_HEADER = re.compile(r"\s*(?:OFPST|NXST|OFPMP)_GROUP.* reply .*:?|\s*(?:#.*)?", re.ASCII)
_METHOD = re.compile(r"selection_method=([a-z_]+)", re.ASCII)
_FIELDS = re.compile(r"fields\(([^()]*)\)|fields=([a-z0-9_]+)", re.ASCII)
_BUCKET_ACTIONS = re.compile(r"actions=(.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Group:
    """topic: what the table calls it. text: as it was printed. buckets: the actions of each, as text."""

    topic: str
    text: str
    buckets: tuple[str, ...]


def parse_groups(text: str) -> Mapping[int, Group]:
    """Groups by their number. Raises ParseError with the line."""
    groups: dict[int, Group] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _GROUP.fullmatch(line):
            head, *buckets = (found[3] or "").split("bucket=")
            actions = (_BUCKET_ACTIONS.search(bucket) for bucket in buckets)
            texts = tuple(hit[1].rstrip(",") for hit in actions if hit)
            groups[int(found[1])] = Group(_topic(found[2], head), line.strip(), texts)
        elif not _HEADER.fullmatch(line):
            raise ParseError(text=line, offset=0, expected="a group as ovs-ofctl dumps it", line=number)
    return groups


def _topic(kind: str, head: str) -> str:
    if kind == "all":
        return "group-all"
    if kind != "select":
        return "group-one"
    method = _METHOD.search(head)
    if method is None or method[1] == "dp_hash":
        return "group-dp-hash"
    if method[1] != "hash":
        return "group"
    fields = _FIELDS.search(head)
    # Without fields the hash covers addresses and ports (ovs-ofctl(8), "selection_method").
    return "group-hash-masked" if fields and fields[1] and "=" in fields[1] else "group-hash-exact"


# The conditions of an OpenFlow flow as topics of the table.


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


# The actions of an OpenFlow flow as topics of the table (ovs-actions(7)).


_NAME = re.compile(r"[A-Za-z_0-9]+", re.ASCII)
_TARGET = re.compile(r"->\s*([A-Za-z0-9_]+)", re.ASCII)
_INSIDE = re.compile(r"[a-z_]+\((.*)\)", re.ASCII)

_BY_NAME = {
    "mod_nw_src": "set-ip",
    "mod_nw_dst": "set-ip",
    "mod_nw_tos": "set-tos",
    "mod_nw_ecn": "set-tos",
    "mod_nw_ttl": "set-ttl",
    "dec_ttl": "set-ttl",
    "mod_vlan_vid": "vlan-action",
    "mod_vlan_pcp": "vlan-action",
    "set_vlan_vid": "vlan-action",
    "set_vlan_pcp": "vlan-action",
    "strip_vlan": "vlan-action",
    "pop_vlan": "vlan-action",
    "push_vlan": "vlan-action",
    "push_mpls": "mpls-action",
    "pop_mpls": "mpls-action",
    "set_mpls_label": "mpls-action",
    "set_mpls_tc": "mpls-action",
    "set_mpls_ttl": "mpls-action",
    "dec_mpls_ttl": "mpls-action",
    "set_tunnel": "set-tunnel",
    "set_tunnel64": "set-tunnel",
    "set_queue": "set-queue",
    "pop_queue": "set-queue",
    "controller": "controller",
    "CONTROLLER": "controller",
    "learn": "learn",
    "sample": "sample",
    "meter": "meter",
    "check_pkt_larger": "check-pkt-len",
    "encap": "nsh-action",
    "decap": "nsh-action",
    "dec_nsh_ttl": "nsh-action",
    "multipath": "multipath",
    "bundle": "multipath",
    "bundle_load": "multipath",
    "ct_clear": "ct-clear",
    "debug_recirc": "recirculated",
    "debug_slow": "slow-path",
    "FLOOD": "normal",
    "ALL": "normal",
    "note": "pipeline-action",
    "conjunction": "pipeline-action",
    "resubmit": "pipeline-action",
    "goto_table": "pipeline-action",
    "TABLE": "pipeline-action",
    "exit": "pipeline-action",
    "push": "pipeline-action",
    "pop": "pipeline-action",
    "fin_timeout": "pipeline-action",
    "write_metadata": "pipeline-action",
    "clear_actions": "pipeline-action",
    "delete_field": "set-tunnel-options",
}

_SCTP = 132
"""Assigned Internet Protocol Numbers (IANA)."""

_GROUP_DIGITS = 10
"""Group numbers have 32 bits (OpenFlow 1.4.0, 7.3.4.3)."""


class ActionReader:
    """Reads actions. `protocol`: IP protocol of the flow, None: any. `groups`: those of the bridge, by number."""

    __slots__ = ("_entered", "_groups", "_protocol", "count", "outputs")

    def __init__(self, *, protocol: int | None, groups: Mapping[int, Group]) -> None:
        self._protocol, self._groups = protocol, groups
        self._entered: tuple[int, ...] = ()
        """Groups that are being read: a dump may show one that leads back to itself."""
        self.outputs = 0
        self.count = 0
        """Actions of the datapath so far: outputs, and headers written before each."""

    def read(self, actions: Iterable[Action]) -> Iterator[Seen]:
        """What the actions do."""
        for action in actions:
            yield from self._action(action)

    def _action(self, action: Action) -> Iterator[Seen]:
        text = render_actions((action,))
        match action:
            case Output(port):
                yield self._output("output-local" if port == LOCAL else "output", text)
            case OutputInPort():
                yield self._output("output-in-port", text)
            case Normal():
                yield self._output("normal", text)
            case Move(source, target) if source is target:
                # Writes nothing; it makes the megaflow match the whole field.
                yield Seen("pipeline-action", text)
            case SetField(target, _) | Move(_, target):
                yield self._write(target.ovs_name, text)
            case Resubmit(_):
                yield Seen("pipeline-action", text)
            case Learn() | Foreign():
                yield from self._foreign(text)
            case _:
                assert_never(action)

    def _output(self, topic: str, text: str) -> Seen:
        self.outputs += 1
        self.count += 1
        return Seen(topic, text)

    def _write(self, name: str, text: str) -> Seen:
        family = family_of(name)
        if family == "port" and self._protocol == _SCTP:
            family = "sctp-port"
        topic = WRITTEN.get(family or "", "unknown-action")
        self.count += topic != "pipeline-action"
        return Seen(topic, text)

    def _foreign(self, text: str) -> Iterator[Seen]:
        found = _NAME.match(text)
        name = found[0] if found else ""
        match name:
            case "load" | "set_field" | "move":
                target = _TARGET.search(text)
                yield self._write(target[1] if target else "", text)
            case "mod_tp_src" | "mod_tp_dst":
                yield self._write(name.removeprefix("mod_"), text)
            case "output":
                # Else a register that names the port, or OVS 2.x's `output:NXM_NX_REG0[]`.
                yield self._output("truncate" if "max_len" in text else "output", text)
            case "enqueue":
                yield Seen("set-queue", text)
                yield self._output("output", text)
            case "group":
                yield from self._group(text)
            case "ct":
                yield from self._ct(text)
            case "clone" | "write_actions" | "apply_actions":
                yield from self._nested(name, text)
            case _:
                self.count += 1
                yield Seen(_BY_NAME.get(name, "unknown-action"), text)

    def _group(self, text: str) -> Iterator[Seen]:
        word = text.partition(":")[2]
        number = int(word) if word.isascii() and word.isdigit() and len(word) <= _GROUP_DIGITS else -1
        group = self._groups.get(number)
        if group is None or number in self._entered:
            yield Seen("group", text)
            return
        yield Seen(group.topic, group.text)
        self._entered = (*self._entered, number)
        yield from self._buckets(group)
        self._entered = self._entered[:-1]

    def _buckets(self, group: Group) -> Iterator[Seen]:
        """All buckets; where one is chosen, the one with most outputs counts."""
        before, most = self.outputs, 0
        for bucket in group.buckets:
            yield from self._parsed(bucket)
            if group.topic != "group-all":
                most, self.outputs = max(most, self.outputs - before), before
        self.outputs += most

    def _ct(self, text: str) -> Iterator[Seen]:
        self.count += 1
        yield Seen("ct-action", text)
        if "alg=" in text:
            yield Seen("ct-helper", text)
        if "table=" in text:
            yield Seen("recirculated", text)

    def _nested(self, name: str, text: str) -> Iterator[Seen]:
        if name == "clone":
            yield Seen("clone", text)
        inside = _INSIDE.fullmatch(text)
        if inside and inside[1]:
            yield from self._parsed(inside[1])

    def _parsed(self, text: str) -> Iterator[Seen]:
        """Actions inside of others, which nobody has parsed before."""
        try:
            actions = parse_actions(text)
        except ValueError:
            yield Seen("unknown-action", text)
            return
        yield from self.read(actions)
