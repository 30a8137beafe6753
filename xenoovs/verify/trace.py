"""What Open vSwitch itself says of one packet or megaflow: ofproto/trace and ofproto/detrace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.errors import ParseError
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import is_ours
from xenoovs.openflow.text import split_list

_ACTIONS = re.compile(r"^Datapath actions: (.*)$", re.MULTILINE)
_MEGAFLOW = re.compile(r"^Megaflow: (.*)$", re.MULTILINE)
_ETH_DST = re.compile(r"set\(eth\([^)]*\bdst=([0-9a-f:]{17})", re.ASCII)
_L4_NAMES = {6: "tcp", 17: "udp", 132: "sctp"}
_ICMP = {4: 1, 6: 58}
"""IP protocol of the ICMP of each IP version (RFC 792, RFC 4443); the other one's is a protocol without ports."""


@dataclass(frozen=True, slots=True)
class TraceResult:
    """`dl_dst`: the MAC written into the packet, None when it stays. `ports`: where it leaves. `megaflow`: as text."""

    dl_dst: str | None
    ports: tuple[str, ...]
    megaflow: str


def render_packet(packet: Packet) -> str:
    """The packet as ofproto/trace takes it (ovs-fields(7))."""
    six = "6" if packet.source.version == 6 else ""
    addresses = ("ipv6_src", "ipv6_dst") if six else ("nw_src", "nw_dst")
    parts = {
        "in_port": packet.in_port,
        "dl_src": packet.dl_src,
        "dl_dst": packet.dl_dst,
        **_protocol(packet, six),
        addresses[0]: packet.source,
        addresses[1]: packet.destination,
        "nw_ttl": packet.ttl,
        **_l4(packet, six),
    }
    return ",".join(key if value is None else f"{key}={value}" for key, value in parts.items())


def _protocol(packet: Packet, six: str) -> dict[str, int | None]:
    """The keyword of the protocol, or that of the IP version and the number."""
    if name := _L4_NAMES.get(packet.protocol):
        return {f"{name}{six}": None}
    if packet.protocol == _ICMP[packet.source.version]:
        return {f"icmp{six}": None}
    return {f"ip{'v6' if six else ''}": None, "nw_proto": packet.protocol}


def _l4(packet: Packet, six: str) -> dict[str, int]:
    """Ports, or type and code; nothing for protocols that Open vSwitch does not look into."""
    if name := _L4_NAMES.get(packet.protocol):
        return {f"{name}_src": packet.sport, f"{name}_dst": packet.dport}
    if packet.protocol == _ICMP[packet.source.version]:
        name = "icmpv6" if six else "icmp"
        return {f"{name}_type": packet.sport, f"{name}_code": packet.dport}
    return {}


def parse_trace(text: str) -> TraceResult:
    """The end of a trace (with --names). Raises ParseError where it has none."""
    actions, megaflow = _ACTIONS.search(text), _MEGAFLOW.search(text)
    if actions is None or megaflow is None:
        raise ParseError(text=text, offset=len(text), expected="'Megaflow:' and 'Datapath actions:' of ofproto/trace")
    parts = split_list(actions[1])
    written = _ETH_DST.search(actions[1])
    ports = tuple(part for part in parts if "(" not in part and part not in ("drop", ""))
    return TraceResult(written[1] if written else None, ports, megaflow[1])


def agrees(packet: Packet, wanted: Iterable[tuple[str, str | None]], answer: TraceResult) -> bool | None:
    """Whether the switch sends the packet as `wanted`: pairs of dl_dst and port; None where MAC learning decides.

    A port of None stands for the learning switch (NORMAL).
    """
    copies = list(wanted)
    if any(port is None for _, port in copies):
        return None
    return copies == [(answer.dl_dst or str(packet.dl_dst), port) for port in answer.ports]


# The answer of ofproto/detrace: from which OpenFlow flows a megaflow was made (ovs-vswitchd(8), Open vSwitch 3.4).


# ofproto_rule_stats_ds() of ofproto/ofproto.c in 3.4.0 to 3.7.0: a cookie of 0, table 0 and the default priority are
# left out; the items that are no statistics are the cookie, table_id and what follows them.
_FLOW = re.compile(
    r"\s*(?:cookie=0x([0-9a-fA-F]{1,16}), )?(?:table_id=([0-9]{1,3}), )?duration=[^,]*, (?:[a-z_]+=[^,]*, )*"
    r",?(\S.*actions=.*|actions=.*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """One flow. `text`: priority, match and actions as Open vSwitch writes them, ports by number."""

    cookie: int
    table: int
    text: str

    @property
    def is_ours(self) -> bool:
        return is_ours(self.cookie)

    def __str__(self) -> str:
        return f"cookie={self.cookie:#x}, table={self.table}, {self.text}"


def parse_detrace(text: str) -> tuple[Origin, ...]:
    """The flows in the order in which the packet met them; lines of another form (groups, complaints) are left out."""
    found = (_FLOW.fullmatch(line.rstrip()) for line in text.splitlines())
    return tuple(Origin(int(line[1] or "0", 16), int(line[2] or 0), line[3]) for line in found if line)
