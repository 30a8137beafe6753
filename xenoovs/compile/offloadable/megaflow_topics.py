"""The topics of the offload table that a megaflow touches. Names and forms are those of lib/odp-util.c."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from xenoovs.compile.offloadable.openflow_topics import TopicUse, combinations, ct_state_topics
from xenoovs.compile.offloadable.table import DATAPATH_ACTIONS, DATAPATH_KEYS, DATAPATH_SETS
from xenoovs.datapath.megaflow import Key, Megaflow, attributes_of, is_matched, split_keys
from xenoovs.datapath.parse import split_actions
from xenoovs.regex import regex

_REPLY_INVALID, _NAT = 0x08 | 0x10, 0x40 | 0x80
"""OVS_CS_F_REPLY_DIR, OVS_CS_F_INVALID; OVS_CS_F_SRC_NAT, OVS_CS_F_DST_NAT (include/uapi/linux/openvswitch.h)."""

_ESTABLISHED = 0x02
"""OVS_CS_F_ESTABLISHED."""

_TUPLE = regex(r"set\((?:ipv[46]\((?:[^)]*,)?(?:src|dst)=|(?:tcp|udp)\()", re.ASCII)
"""The keys of the look-up of connections."""

_PORTS = ("tcp", "udp")
_NUMBER = regex(r"0[xX][0-9a-fA-F]+|[0-9]+", re.ASCII)
_HEAD = regex(r"([a-z_0-9]+)\((.*)\)", re.ASCII | re.DOTALL)
_BRANCH = regex(r"\b(?:gt|le)\(", re.ASCII)
"""The two lists of actions of check_pkt_len (format_odp_check_pkt_len_action of lib/odp-util.c)."""
_ADDRESS_BYTES = {"eth": 6, "ipv4": 4, "ipv6": 16, "tcp": 2, "udp": 2, "sctp": 2}


def megaflow_topics(megaflow: Megaflow, *, internal_ports: Collection[str] = ()) -> Iterator[TopicUse]:
    """Yield the topics of what a megaflow matches and does. `internal_ports`: those of type internal."""
    uses = [*_keys(megaflow.keys), *_actions(megaflow, internal_ports)]
    yield from uses
    yield from _tracked(megaflow)
    outputs = sum(use.topic.startswith("output") for use in uses)
    yield from combinations(
        uses, outputs=outputs, actions=len(megaflow.actions), match_bytes=_match_bytes(megaflow.keys)
    )


def _tracked(megaflow: Megaflow) -> Iterator[TopicUse]:
    """Yield the topics of a megaflow that depend on its connection tracking."""
    names = {key.name for key in megaflow.keys}
    state = megaflow.key("ct_state") or ""
    is_established = "+est" in state or bool(_NUMBER.match(state) and _number(state) & _ESTABLISHED)
    if is_established and names & {"icmp", "icmpv6"}:
        yield TopicUse("ct-of-icmp", f"ct_state({state})")
    written = None
    for text in megaflow.actions:
        if _TUPLE.match(text):
            written = text
        elif text.startswith("ct(") and written is not None:
            yield TopicUse("set-before-ct", f"{written},{text}")
            return


def _keys(keys: tuple[Key, ...], *, tags: int = 0) -> Iterator[TopicUse]:
    for key in keys:
        if key.name == "encap":
            yield from _keys(split_keys(key.inner), tags=tags + 1)
        elif is_matched(key.inner):
            yield from _key(key, tags=tags)


def _key(key: Key, *, tags: int) -> Iterator[TopicUse]:
    name, inner, text = key.name, key.inner, f"{key.name}({key.inner})"
    if name == "mpls" and "lse1" in inner:
        yield TopicUse("mpls-stack", text)
    elif name in DATAPATH_KEYS:
        yield TopicUse(DATAPATH_KEYS[name], text)
    elif name in ("ipv4", "ipv6"):
        yield from _ip(key)
    elif name in _PORTS:
        masked = any("/" in value and is_matched(value) for value in attributes_of(inner).values())
        yield TopicUse("masked-port" if masked else "header", text)
    elif name == "vlan":
        yield TopicUse(_vlan_topic(inner, tags), text)
    else:
        yield from _state(name, inner, text)


def _state(name: str, inner: str, text: str) -> Iterator[TopicUse]:
    match name:
        case "skb_mark" if _number(inner) or "/" in inner:
            yield TopicUse("pkt-mark", text)
        case "ct_state":
            yield from (TopicUse(topic, text) for topic in _ct_topics(inner))
        case "ct_tuple4" | "ct_tuple6":
            yield TopicUse("ct-tuple", text)
        case "recirc_id" if _number(inner):
            yield TopicUse("recirculated", text)
        case "packet_type" if not re.fullmatch(r"ns=0(/0)?,id=0(/0)?", inner):
            yield TopicUse("packet-type", text)
        case "tunnel":
            yield TopicUse("tunnel", text)
            if "geneve(" in inner:
                yield TopicUse("tunnel-options", text)
            if "+oam" in inner:
                yield TopicUse("tunnel-flags", text)
        case "skb_mark":
            yield TopicUse("no-pkt-mark", text)
        case "recirc_id" | "packet_type":
            return
        case _:
            yield TopicUse("unknown-match", text)


def _ip(key: Key) -> Iterator[TopicUse]:
    six = key.name == "ipv6"
    if six:
        yield TopicUse("ipv6", f"ipv6({key.inner})")
    for name, value in attributes_of(key.inner).items():
        text = f"{key.name}({name}={value})"
        if name == "frag" and value not in ("no", "any"):
            yield TopicUse("fragment-ipv6" if six else "fragment", text)
        elif name in ("src", "dst") and is_matched(value):
            yield TopicUse("masked-address" if "/" in value else "header", text)
        elif name == "proto" and value == "2" and not six:
            yield TopicUse("igmp", text)
        elif (topic := DATAPATH_KEYS.get(f"{key.name}.{name}")) and is_matched(value):
            yield TopicUse(topic, text)


def _vlan_topic(inner: str, tags: int) -> str:
    if tags:
        return "qinq"
    attributes = attributes_of(inner)
    vid, pcp = attributes.get("vid", "0/0"), attributes.get("pcp", "0/0")
    whole = all("/" not in value or not is_matched(value) for value in (vid, pcp))
    return "vlan" if whole and (is_matched(vid) or is_matched(pcp)) else "vlan-masked"


def _ct_topics(inner: str) -> Iterator[str]:
    if not _NUMBER.match(inner):
        yield from ct_state_topics(inner)
        return
    mask = _number(inner.partition("/")[2] or "0xff")
    yield "ct"
    if mask & _REPLY_INVALID:
        yield "ct-reply-invalid"
    if mask & _NAT:
        yield "ct-nat"


def _actions(megaflow: Megaflow, internal_ports: Collection[str]) -> Iterator[TopicUse]:
    for text in megaflow.actions:
        head = _HEAD.fullmatch(text)
        if head is None:
            yield TopicUse(_plain_topic(text, megaflow.in_port, internal_ports), text)
        else:
            yield from _called(head[1], head[2], text)


def _plain_topic(text: str, in_port: str | None, internal_ports: Collection[str]) -> str:
    if text in DATAPATH_ACTIONS:
        return DATAPATH_ACTIONS[text]
    if text in internal_ports:
        return "output-local"
    return "output-in-port" if text == in_port else "output"


def _called(name: str, inner: str, text: str) -> Iterator[TopicUse]:
    match name:
        case "set":
            yield from _written(inner, text)
        case "userspace":
            sampled = any(word in inner for word in ("sFlow(", "flow_sample(", "ipfix("))
            yield TopicUse("controller" if "controller(" in inner else "sampled" if sampled else "slow-path", text)
        case "ct":
            yield TopicUse("ct-action", text)
            if "helper=" in inner:
                yield TopicUse("ct-helper", text)
        case "clone" if "tnl_push(" in inner:
            yield TopicUse("set-tunnel", text)
        case "clone":
            yield TopicUse("clone", text)
            yield from _nested(inner)
        case "check_pkt_len":
            yield TopicUse("check-pkt-len", text)
            for branch in _BRANCH.finditer(inner):
                yield from _nested(inner[branch.end() : _closing(inner, branch.end() - 1)])
        case _:
            yield TopicUse(DATAPATH_ACTIONS.get(name, "unknown-action"), text)


def _nested(actions: str) -> Iterator[TopicUse]:
    """Yield the topics of nested actions that Open vSwitch refuses wherever they are."""
    for text in split_actions(actions):
        head = _HEAD.fullmatch(text)
        if head is not None and head[1] != "set":
            yield from _called(head[1], head[2], text)


def _closing(text: str, opening: int) -> int:
    """Return the index of the parenthesis that closes the one at `opening`; the length of the text if none does."""
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return len(text)


def _written(inner: str, text: str) -> Iterator[TopicUse]:
    try:
        keys = split_keys(inner)
    except ValueError:
        yield TopicUse("unknown-action", text)
        return
    for key in keys:
        if key.name in ("ipv4", "ipv6"):
            topics = (DATAPATH_SETS.get(f"{key.name}.{name}") for name in attributes_of(key.inner))
            yield from (TopicUse(topic, text) for topic in topics if topic)
        else:
            yield TopicUse(DATAPATH_SETS.get(key.name, "unknown-action"), text)
        if key.name == "tunnel" and "geneve(" in key.inner:
            yield TopicUse("set-tunnel-options", text)
        if key.name == "tunnel" and "tp_src=" in key.inner:
            yield TopicUse("set-tunnel-tp-src", text)


def _match_bytes(keys: tuple[Key, ...]) -> int:
    """Return the bytes of all header fields with a bit in their mask."""
    total = 0
    for key in keys:
        if key.name == "encap":
            total += 2 + _match_bytes(split_keys(key.inner))
        elif key.name == "eth_type":
            total += 2
        elif key.name in _ADDRESS_BYTES:
            matched = [name for name, value in attributes_of(key.inner).items() if name != "frag" and is_matched(value)]
            total += sum(_bytes_of(key.name, name) for name in matched)
    return total


def _bytes_of(key: str, attribute: str) -> int:
    if attribute in ("src", "dst"):
        return _ADDRESS_BYTES[key]
    return 4 if attribute == "label" else 1


def _number(text: str) -> int:
    found = _NUMBER.match(text)
    return int(found[0], 16 if found[0][:2] in ("0x", "0X") else 10) if found else 0
