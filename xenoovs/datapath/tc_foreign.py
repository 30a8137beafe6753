"""Rules of traffic control that are not of Open vSwitch, as `tc -j -s filter show` prints them: match and effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import MaskedValue, read_masked

_ETH_TYPES = {"ip": 0x0800, "ipv4": 0x0800, "ipv6": 0x86DD, "arp": 0x0806}
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
_MACS = {"src_mac": "dl_src", "dst_mac": "dl_dst"}
_PORTS = {"src_port": "tp_src", "dst_port": "tp_dst"}
"""Keys of f_flower.c of iproute2 -> fields of ovs-fields(7)."""
_GOES_ON = ("continue",)
"""Control actions after which the kernel tries the next rule (tc-actions(8)); any other one ends the search."""


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """What a rule of another program matches and does.

    Attributes:
        kind: its classifier: flower, matchall, u32, bpf ...
        match: its conditions as text; empty: none is known.
        actions: its actions as text, such as `drop` or `mirred redirect pf0hpf`.
        packets: what it has handled.
        fields: its conditions as far as they are known; it may have further ones.
        eth_type: the EtherType of its packets; None: any.
        is_final: whether rules behind it do not see its packets.
    """

    kind: str
    match: str
    actions: str
    packets: int
    fields: Mapping[str, MaskedValue] = field(default_factory=dict, hash=False)
    eth_type: int | None = None
    is_final: bool = True


def foreign_rule(row: Mapping[str, Any]) -> ForeignRule:
    """Return the match and the effect of one row. Raises KeyError and the like for what tc does not print."""
    options = row["options"]
    keys = options.get("keys") or {}
    actions = options.get("actions") or []
    protocol = str(keys.get("eth_type", row.get("protocol", "all")))
    eth_type = _ETH_TYPES.get(protocol)
    if eth_type is None and protocol != "all":
        eth_type = int(protocol, 16) if protocol[:2] == "0x" else _OTHER_PROTOCOL
    ends = [str((action.get("control_action") or {}).get("type", "")) for action in actions]
    return ForeignRule(
        kind=str(row["kind"]),
        match=" ".join(f"{name} {_shown(value)}" for name, value in keys.items()),
        actions=", ".join(map(_action, actions)) or "no action",
        packets=max((int(action.get("stats", {}).get("packets", 0)) for action in actions), default=0),
        fields=_fields(keys, eth_type),
        eth_type=eth_type,
        is_final=not ends or ends[-1] not in _GOES_ON,
    )


_OTHER_PROTOCOL = 0xFFFF
"""Stands for 802.1Q and other protocols by name, none of which is the EtherType of an untagged packet of a service."""


def _fields(keys: Mapping[str, Any], eth_type: int | None) -> dict[str, MaskedValue]:
    found: dict[str, tuple[str, int]] = {}
    for name, value in keys.items():
        if not isinstance(value, str | int):
            continue
        text = str(value)
        if name in _MACS:
            found[_MACS[name]] = text, 48
        elif name in _PORTS:
            found[_PORTS[name]] = text, 16
        elif name == "ip_proto":
            found["nw_proto"] = str(_PROTOCOLS.get(text, text)), 8
        elif name in ("src_ip", "dst_ip"):
            is_ipv6 = eth_type == _ETH_TYPES["ipv6"]
            found[f"{'ipv6' if is_ipv6 else 'nw'}_{name[:3]}"] = text, 128 if is_ipv6 else 32
    fields = {}
    for name, (text, width) in found.items():
        try:
            fields[name] = read_masked(text, width)
        except ValueError:
            # A range of ports, or what a later release prints: the condition stays unknown.
            continue
    return {name: masked for name, masked in fields.items() if masked.mask}


def _action(action: Mapping[str, Any]) -> str:
    kind = str(action.get("kind", "?"))
    control = str((action.get("control_action") or {}).get("type", ""))
    if kind == "gact":
        return control or kind
    if kind == "mirred":
        return f"mirred {action.get('mirred_action', '')} {action.get('to_dev', '')}".strip()
    return kind


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return str(value)
