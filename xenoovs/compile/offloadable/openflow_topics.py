"""The topics of the offload table that an OpenFlow flow touches, by its match, its actions and its groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from xenoovs.compile.offloadable.table import FIELD_FAMILIES, OPENFLOW_ACTIONS, FieldFamily
from xenoovs.dataclass import dataclass
from xenoovs.errors import ParseError, assert_never
from xenoovs.openflow.flow import (
    ETH_IPV6,
    LOCAL,
    Action,
    Failover,
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
from xenoovs.regex import regex


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A topic of a flow or megaflow. `evidence`: the text of the condition, action or key."""

    topic: str
    evidence: str


_DOCA_MATCH_BYTES = 32
"""Bytes that one rule of OVS-DOCA can match."""

_MAX_ACTIONS = 16
"""TCA_ACT_MAX_NUM in lib/tc.h."""

_L4_SETS = frozenset(("set-l4-port", "set-ip", "set-ipv6"))
"""Fields for which TC updates the checksum of TCP or UDP (tc_will_add_l4_checksum(), lib/netdev-offload-tc.c)."""

_FRAGMENTS = frozenset(("fragment", "fragment-ipv6"))


def combinations(uses: Iterable[TopicUse], *, outputs: int, actions: int, match_bytes: int) -> Iterator[TopicUse]:
    """Yield the topics that several parts of one flow make together. `actions`: number of datapath actions with
    outputs. `match_bytes`: bytes that the megaflow compares, which NVIDIA calls the match size."""
    topics = {use.topic: use for use in uses}
    if outputs > 1:
        yield TopicUse("several-outputs", f"{outputs} outputs")
    if actions > _MAX_ACTIONS:
        yield TopicUse("many-actions", f"{actions} actions")
    fragment = next((use for name, use in topics.items() if name in _FRAGMENTS), None)
    l4_set = next((use for name, use in topics.items() if name in _L4_SETS), None)
    if fragment is not None and l4_set is not None:
        yield TopicUse("set-port-of-fragment", f"{fragment.evidence} with {l4_set.evidence}")
    if match_bytes > _DOCA_MATCH_BYTES:
        yield TopicUse("wide-match", f"{match_bytes} bytes")


def each_topic_once(uses: Iterable[TopicUse]) -> tuple[TopicUse, ...]:
    """Return the first use of each topic, in order."""
    return tuple({use.topic: use for use in reversed(tuple(uses))}.values())[::-1]


_PREFIX = regex(r"(nxm_of_|nxm_nx_|nxm_nxm_|oxm_of_|nxoxm_et_|nxoxm_nsh_|erxoxm_)")


@lru_cache(maxsize=1024)
def family_of(name: str) -> FieldFamily | None:
    """Return the family of a field (`nw_src`, `NXM_OF_IP_SRC[]`, `tun_id`); None if the name is unknown."""
    plain = _PREFIX.sub("", name.partition("[")[0].lower(), count=1)
    return next((family for family in FIELD_FAMILIES if re.fullmatch(family.names, plain)), None)


_GROUP = regex(r"\s*group_id=([0-9]+),type=(all|select|indirect|ff|fast_failover)(?:,(.*))?", re.ASCII)
_HEADER = regex(r"\s*(?:OFPST|NXST|OFPMP)_GROUP.* reply .*:?|\s*(?:#.*)?", re.ASCII)
_METHOD = regex(r"selection_method=([a-z_]+)", re.ASCII)
_FIELDS = regex(r"fields\(([^()]*)\)|fields=([a-z0-9_]+)", re.ASCII)
_WATCHED = regex(r"(?:(?:bucket_id|weight):\d+,)*(?:watch_port:([^,]+),)?(?:watch_group:(\d+),)?", re.ASCII)
_BUCKET_ACTIONS = regex(r"actions=(.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class OpenFlowGroup:
    """A group of a bridge. `buckets`: the actions of each bucket, as text. `watched`: port and group that each watches,
    or empty."""

    topic: str
    text: str
    buckets: tuple[str, ...]
    kind: str = ""
    watched: tuple[tuple[str, str], ...] = ()


def parse_groups(text: str) -> Mapping[int, OpenFlowGroup]:
    """Return the groups in `ovs-ofctl -O OpenFlow15 dump-groups BRIDGE` by their numbers. Raises ParseError."""
    groups: dict[int, OpenFlowGroup] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _GROUP.fullmatch(line):
            head, *buckets = (found[3] or "").split("bucket=")
            actions = (_BUCKET_ACTIONS.search(bucket) for bucket in buckets)
            texts = tuple(hit[1].rstrip(",") for hit in actions if hit)
            watched = tuple((hit[1] or "", hit[2] or "") for hit in map(_WATCHED.match, buckets) if hit)
            topic = _topic(found[2], head)
            groups[int(found[1])] = OpenFlowGroup(topic, line.strip(), texts, found[2], watched)
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


_ADDRESSES = (Field.NW_SRC, Field.NW_DST, Field.IPV6_SRC, Field.IPV6_DST)
_PORTS = (Field.TP_SRC, Field.TP_DST)
_IGMP, _SCTP = 2, 132
"""Assigned Internet Protocol Numbers (IANA)."""

_NO_ETHERTYPE = 0x5FF
"""The EtherType that Open vSwitch gives to frames without one (OFP_DL_TYPE_NOT_ETH_TYPE, OpenFlow 1.0.1, 3.4)."""

_PIPELINE = frozenset((Field.REG0, Field.REG1, Field.REG2, Field.REG3, Field.METADATA, Field.PKT_MARK))
_FLAGS = {"igmp": "igmp", "eth": "header"}
_NOTHING = frozenset(("0", "0x0", "0x0000", "0xffff"))
_TAG_MASKS = frozenset(("", "0xffff", "0x1fff", "0xf000", "0xfff", "0x0fff"))


def protocol_of(match: Match) -> int | None:
    """Return the IP protocol that the flow matches; None if it matches any."""
    condition = match.get(Field.NW_PROTO)
    return None if condition is None else condition.value


def match_topics(match: Match) -> Iterator[TopicUse]:
    """Yield the topics of what a flow matches; a topic may occur several times."""
    yield TopicUse("header", f"in_port={match.in_port}" if match.in_port else "in_port")
    dl_type = match.get(Field.DL_TYPE)
    is_ipv6 = dl_type is not None and dl_type.value == ETH_IPV6
    if is_ipv6:
        yield TopicUse("ipv6", "ipv6")
    protocol = protocol_of(match)
    for masked in match.masked:
        topic = _condition_topic(masked, is_ipv6=is_ipv6, protocol=protocol)
        yield TopicUse(topic, render_match(match_of((masked,))))
    for text in match.foreign:
        yield from _foreign_topics(text, is_ipv6=is_ipv6)


def match_bytes(matches: Iterable[Match], *, written: Iterable[Field] = ()) -> int:
    """Return the number of bytes that the megaflow compares: whole fields, and the header fields in `written`."""
    fields = {masked.field for match in matches for masked in match.masked} | set(written)
    return sum(field.width // 8 for field in fields - _PIPELINE)


def _condition_topic(masked: Masked, *, is_ipv6: bool, protocol: int | None) -> str:
    field = masked.field
    if field in _ADDRESSES and not masked.is_exact:
        return "masked-address"
    if field in _PORTS and protocol == _SCTP:
        return "sctp-port"
    if field in _PORTS and not masked.is_exact:
        return "masked-port"
    if field is Field.NW_PROTO and masked.value == _IGMP and not is_ipv6:
        return "igmp"
    if field is Field.DL_TYPE and masked.value == _NO_ETHERTYPE:
        return "not-ethernet-ii"
    if field is Field.PKT_MARK and masked.is_exact and not masked.value:
        return "no-pkt-mark"
    if field in (Field.ICMP_TYPE, Field.ICMP_CODE) and is_ipv6:
        return "icmpv6"
    if field is Field.VLAN:
        return "vlan" if masked.is_exact and masked.value else "vlan-masked" if masked.value else "header"
    family = family_of(field.ovs_name)
    return "header" if family is None else family.match


def _foreign_topics(text: str, *, is_ipv6: bool) -> Iterator[TopicUse]:
    name, is_condition, value = text.partition("=")
    family = family_of(name) if is_condition else None
    match family and family.family:
        case None:
            yield TopicUse("unknown-match" if is_condition else _FLAGS.get(name, "unknown-match"), text)
        case "ct" if name == "ct_state":
            yield from (TopicUse(topic, text) for topic in ct_state_topics(value))
        case _ if family:
            yield TopicUse(_foreign_topic(family, name, value, is_ipv6=is_ipv6), text)


def _foreign_topic(family: FieldFamily, name: str, value: str, *, is_ipv6: bool) -> str:
    match family.family:
        case "vlan":
            return _vlan_topic(name, value)
        case "fragment" if value in ("no", "not_later"):
            return "header"
        case "fragment":
            return "fragment-ipv6" if is_ipv6 else "fragment"
        case "packet-type":
            return "header" if value in ("(0,0)", "(0,0x0)") else "packet-type"
        case "recirculation" if value in _NOTHING:
            return "header"
        case "icmp" if is_ipv6:
            return "icmpv6"
        case "ipv4" | "port" if "/" in value:
            return "masked-address" if family.family == "ipv4" else "masked-port"
        case _:
            return family.match


def _vlan_topic(name: str, value: str) -> str:
    tag, _, mask = value.partition("/")
    if name == "vlan_tci" and tag in _NOTHING:
        return "header"
    return "vlan" if mask in _TAG_MASKS else "vlan-masked"


def ct_state_topics(value: str) -> Iterator[str]:
    """Yield the topics of a connection state such as `+est-rpl+trk`."""
    yield "ct"
    if any(word in value for word in ("rpl", "inv")):
        yield "ct-reply-invalid"
    if any(word in value for word in ("snat", "dnat")):
        yield "ct-nat"


_NAME = regex(r"[A-Za-z_0-9]+", re.ASCII)
_TARGET = regex(r"->\s*([A-Za-z0-9_]+)", re.ASCII)
_INSIDE = regex(r"[a-z_]+\((.*)\)", re.ASCII)

_GROUP_DIGITS = 10
"""OpenFlowGroup numbers have 32 bits (OpenFlow 1.4.0, 7.3.4.3)."""


class ActionReader:
    """Yields the topics of actions (ovs-actions(7)), and counts the actions. `protocol`: IP protocol; None for any."""

    __slots__ = ("_entered", "_groups", "_protocol", "count", "outputs")

    def __init__(self, *, protocol: int | None, groups: Mapping[int, OpenFlowGroup]) -> None:
        self._protocol, self._groups = protocol, groups
        self._entered: tuple[int, ...] = ()
        """Groups that are being read: in a dump, a group may refer to itself."""
        self.outputs = 0
        self.count = 0
        """Datapath actions so far: outputs, and headers written before each."""

    def read(self, actions: Iterable[Action]) -> Iterator[TopicUse]:
        """Yield the topics of the actions."""
        for action in actions:
            yield from self._action(action)

    def _action(self, action: Action) -> Iterator[TopicUse]:
        text = render_actions((action,))
        match action:
            case Output(port):
                yield self._output("output-local" if port == LOCAL else "output", text)
            case OutputInPort():
                yield self._output("output-in-port", text)
            case Normal():
                yield self._output("normal", text)
            case Move(source, target) if source is target:
                # It writes nothing but makes the megaflow match the whole field.
                yield TopicUse("pipeline-action", text)
            case SetField(target, _) | Move(_, target):
                yield self._write(target.ovs_name, text)
            case Resubmit(_):
                yield TopicUse("pipeline-action", text)
            case Learn() | Foreign():
                yield from self._foreign(text)
            case Failover(buckets):
                texts = tuple(render_actions(bucket) for bucket in buckets)
                yield from self._buckets(OpenFlowGroup("group-one", text, texts))
            case _:
                assert_never(action)

    def _output(self, topic: str, text: str) -> TopicUse:
        self.outputs += 1
        self.count += 1
        return TopicUse(topic, text)

    def _write(self, name: str, text: str) -> TopicUse:
        family = family_of(name)
        topic = (family and family.set) or "unknown-action"
        if topic == "set-l4-port" and self._protocol == _SCTP:
            topic = "set-sctp-port"
        self.count += topic != "pipeline-action"
        return TopicUse(topic, text)

    def _foreign(self, text: str) -> Iterator[TopicUse]:
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
                yield TopicUse("set-queue", text)
                yield self._output("output", text)
            case "group":
                yield from self._group(text)
            case "ct":
                yield from self._ct(text)
            case "clone" | "write_actions" | "apply_actions":
                yield from self._nested(name, text)
            case _:
                self.count += 1
                yield TopicUse(OPENFLOW_ACTIONS.get(name, "unknown-action"), text)

    def _group(self, text: str) -> Iterator[TopicUse]:
        word = text.partition(":")[2]
        number = int(word) if word.isascii() and word.isdigit() and len(word) <= _GROUP_DIGITS else -1
        group = self._groups.get(number)
        if group is None or number in self._entered:
            yield TopicUse("group", text)
            return
        yield TopicUse(group.topic, group.text)
        self._entered = (*self._entered, number)
        yield from self._buckets(group)
        self._entered = self._entered[:-1]

    def _buckets(self, group: OpenFlowGroup) -> Iterator[TopicUse]:
        """Read all buckets. If the group chooses one bucket, count only the outputs of the bucket with most outputs."""
        before, most = self.outputs, 0
        for bucket in group.buckets:
            yield from self._parsed(bucket)
            if group.topic != "group-all":
                most, self.outputs = max(most, self.outputs - before), before
        self.outputs += most

    def _ct(self, text: str) -> Iterator[TopicUse]:
        self.count += 1
        yield TopicUse("ct-action", text)
        if "alg=" in text:
            yield TopicUse("ct-helper", text)
        if "table=" in text:
            yield TopicUse("recirculated", text)

    def _nested(self, name: str, text: str) -> Iterator[TopicUse]:
        if name == "clone":
            yield TopicUse("clone", text)
        inside = _INSIDE.fullmatch(text)
        if inside and inside[1]:
            yield from self._parsed(inside[1])

    def _parsed(self, text: str) -> Iterator[TopicUse]:
        """Parse and read actions inside of other actions."""
        try:
            actions = parse_actions(text)
        except ValueError:
            yield TopicUse("unknown-action", text)
            return
        yield from self.read(actions)
