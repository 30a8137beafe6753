"""Keys and actions of a megaflow as topics of the table: names and forms of lib/odp-util.c."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from xenoovs.compile.offloadable.openflow_seen import Seen, Width, combinations, ct_state_topics
from xenoovs.datapath.megaflow import Key, Megaflow, attributes_of, split_keys

_REPLY_INVALID, _NAT = 0x08 | 0x10, 0x40 | 0x80
"""OVS_CS_F_REPLY_DIR, OVS_CS_F_INVALID; OVS_CS_F_SRC_NAT, OVS_CS_F_DST_NAT (include/uapi/linux/openvswitch.h)."""

_SIMPLE = {"skb_priority": "skb-priority", "dp_hash": "dp-hash", "ct_zone": "ct", "ct_mark": "ct", "ct_label": "ct"}
_WHOLE = {
    "eth": "header",
    "eth_type": "header",
    "in_port": "header",
    "tcp_flags": "tcp-flags",
    "arp": "arp",
    "nd": "nd",
    "nd_ext": "nd",
    "icmp": "icmp",
    "icmpv6": "icmpv6",
    "nsh": "nsh",
    "mpls": "mpls",
}
_IP = {"tos": "ip-tos", "tclass": "ip-tos", "ttl": "ip-ttl", "hlimit": "ip-ttl", "label": "ipv6-label"}
_PORTS = ("tcp", "udp", "sctp")
_SET = {
    "eth": "set-ethernet",
    "tcp": "set-l4-port",
    "udp": "set-l4-port",
    "sctp": "set-sctp-port",
    "icmp": "set-icmp",
    "icmpv6": "set-icmp",
    "arp": "set-arp",
    "nd": "set-nd",
    "nd_ext": "set-nd",
    "mpls": "mpls-action",
    "skb_mark": "set-pkt-mark",
    "skb_priority": "set-queue",
    "nsh": "nsh-action",
    "tunnel": "set-tunnel",
}
_ACTIONS = {
    "drop": "drop",
    "push_vlan": "vlan-action",
    "pop_vlan": "vlan-action",
    "push_mpls": "mpls-action",
    "add_mpls": "mpls-action",
    "pop_mpls": "mpls-action",
    "push_nsh": "nsh-action",
    "pop_nsh": "nsh-action",
    "push_eth": "nsh-action",
    "pop_eth": "nsh-action",
    "sample": "sampled",
    "psample": "sampled",
    "hash": "hash",
    "recirc": "recirculated",
    "trunc": "truncate",
    "meter": "meter",
    "ct_clear": "ct-clear",
    "tnl_push": "set-tunnel",
    "tnl_pop": "tunnel-pop",
    "check_pkt_len": "check-pkt-len",
    "lb_output": "lb-output",
}
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+", re.ASCII)
_HEAD = re.compile(r"([a-z_0-9]+)\((.*)\)", re.ASCII | re.DOTALL)
_SIZES = {"src": 4, "dst": 4, "proto": 1, "tos": 1, "ttl": 1, "tclass": 1, "hlimit": 1, "label": 4}


def seen_in_megaflow(megaflow: Megaflow, *, internal: Collection[str] = ()) -> Iterator[Seen]:
    """All that a megaflow matches and does. `internal`: names of ports that are the bridge's own."""
    found = [*_keys(megaflow.keys), *_actions(megaflow, internal)]
    yield from found
    outputs = sum(seen.topic.startswith("output") for seen in found)
    yield from combinations(found, outputs=outputs, actions=len(megaflow.actions))
    yield from Width(_width(megaflow.keys)).seen()


def _keys(keys: tuple[Key, ...], *, tags: int = 0) -> Iterator[Seen]:
    for key in keys:
        if key.name == "encap":
            yield from _keys(split_keys(key.inner), tags=tags + 1)
        elif _is_matched(key.inner):
            yield from _key(key, tags=tags)


def _key(key: Key, *, tags: int) -> Iterator[Seen]:
    name, inner, text = key.name, key.inner, f"{key.name}({key.inner})"
    if name in _SIMPLE:
        yield Seen(_SIMPLE[name], text)
    elif name == "mpls" and "lse1" in inner:
        yield Seen("mpls-stack", text)
    elif name in _WHOLE:
        yield Seen(_WHOLE[name], text)
    elif name in ("ipv4", "ipv6"):
        yield from _ip(key)
    elif name in _PORTS:
        masked = any("/" in value and _is_matched(value) for value in attributes_of(inner).values())
        yield Seen("masked-port" if masked else "header", text)
    elif name == "vlan":
        yield Seen(_vlan_topic(inner, tags), text)
    else:
        yield from _state(name, inner, text)


def _state(name: str, inner: str, text: str) -> Iterator[Seen]:
    match name:
        case "skb_mark" if _number(inner) or "/" in inner:
            yield Seen("pkt-mark", text)
        case "ct_state":
            yield from (Seen(topic, text) for topic in _ct_topics(inner))
        case "ct_tuple4" | "ct_tuple6":
            yield Seen("ct-tuple", text)
        case "recirc_id" if _number(inner):
            yield Seen("recirculated", text)
        case "packet_type" if not re.fullmatch(r"ns=0(/0)?,id=0(/0)?", inner):
            yield Seen("packet-type", text)
        case "tunnel":
            yield Seen("tunnel", text)
            if "geneve(" in inner:
                yield Seen("tunnel-options", text)
            if "+oam" in inner:
                yield Seen("tunnel-flags", text)
        case "skb_mark":
            yield Seen("no-pkt-mark", text)
        case "recirc_id" | "packet_type":
            return
        case _:
            yield Seen("unknown-match", text)


def _ip(key: Key) -> Iterator[Seen]:
    six = key.name == "ipv6"
    if six:
        yield Seen("ipv6", f"ipv6({key.inner})")
    for name, value in attributes_of(key.inner).items():
        text = f"{key.name}({name}={value})"
        if name == "frag" and value not in ("no", "any"):
            yield Seen("fragment-ipv6" if six else "fragment", text)
        elif name in ("src", "dst") and _is_matched(value):
            yield Seen("masked-address" if "/" in value else "header", text)
        elif name == "proto" and value == "2" and not six:
            yield Seen("igmp", text)
        elif name in _IP and _is_matched(value):
            yield Seen(_IP[name], text)


def _vlan_topic(inner: str, tags: int) -> str:
    if tags:
        return "qinq"
    attributes = attributes_of(inner)
    vid, pcp = attributes.get("vid", "0/0"), attributes.get("pcp", "0/0")
    whole = all("/" not in value or not _is_matched(value) for value in (vid, pcp))
    return "vlan" if whole and (_is_matched(vid) or _is_matched(pcp)) else "vlan-masked"


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


def _actions(megaflow: Megaflow, internal: Collection[str]) -> Iterator[Seen]:
    for text in megaflow.actions:
        head = _HEAD.fullmatch(text)
        if head is None:
            yield Seen(_plain_topic(text, megaflow.in_port, internal), text)
        else:
            yield from _called(head[1], head[2], text)


def _plain_topic(text: str, in_port: str | None, internal: Collection[str]) -> str:
    if text in _ACTIONS:
        return _ACTIONS[text]
    if text in internal:
        return "output-local"
    return "output-in-port" if text == in_port else "output"


def _called(name: str, inner: str, text: str) -> Iterator[Seen]:
    match name:
        case "set":
            yield from _written(inner, text)
        case "userspace":
            sampled = any(word in inner for word in ("sFlow(", "flow_sample(", "ipfix("))
            yield Seen("controller" if "controller(" in inner else "sampled" if sampled else "slow-path", text)
        case "ct":
            yield Seen("ct-action", text)
            if "helper=" in inner:
                yield Seen("ct-helper", text)
        case "clone":
            yield Seen("set-tunnel" if "tnl_push(" in inner else "clone", text)
        case _:
            yield Seen(_ACTIONS.get(name, "unknown-action"), text)


def _written(inner: str, text: str) -> Iterator[Seen]:
    try:
        keys = split_keys(inner)
    except ValueError:
        yield Seen("unknown-action", text)
        return
    for key in keys:
        if key.name in ("ipv4", "ipv6"):
            yield from (Seen(topic, text) for topic in _written_ip(key))
        else:
            yield Seen(_SET.get(key.name, "unknown-action"), text)
        if key.name == "tunnel" and "geneve(" in key.inner:
            yield Seen("set-tunnel-options", text)
        if key.name == "tunnel" and "tp_src=" in key.inner:
            yield Seen("set-tunnel-tp-src", text)


def _written_ip(key: Key) -> Iterator[str]:
    names = {"src": "set-ip", "dst": "set-ip", "ttl": "set-ttl", "hlimit": "set-ttl", "label": "set-ipv6-label"}
    for name in attributes_of(key.inner):
        if name in ("tos", "tclass"):
            yield "set-tos"
        elif name in names:
            yield "set-ipv6" if key.name == "ipv6" and name in ("src", "dst") else names[name]


def _width(keys: tuple[Key, ...]) -> int:
    """Bytes of all header fields with a bit in their mask."""
    total = 0
    for key in keys:
        if key.name == "encap":
            total += 2 + _width(split_keys(key.inner))
        elif key.name == "eth_type":
            total += 2
        elif key.name in ("eth", "ipv4", "ipv6", *_PORTS) and key.inner:
            each = {"eth": 6, "ipv6": 16}.get(key.name, 2)
            sizes = _SIZES if key.name in ("ipv4", "ipv6") else {}
            matched = (
                name for name, value in attributes_of(key.inner).items() if name != "frag" and _is_matched(value)
            )
            total += sum(
                each if key.name == "ipv6" and name in ("src", "dst") else sizes.get(name, each) for name in matched
            )
    return total


def _is_matched(inner: str) -> bool:
    """Whether any bit is in the mask: of `value`, `value/mask` or `name=value/mask,..`."""
    if not inner:
        return False
    return any(not re.fullmatch(r"[0:.x]+", item.rpartition("/")[2]) or "/" not in item for item in inner.split(","))


def _number(text: str) -> int:
    found = _NUMBER.match(text)
    return int(found[0], 16 if found[0][:2] in ("0x", "0X") else 10) if found else 0
