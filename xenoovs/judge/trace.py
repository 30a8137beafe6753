"""Parses the answers of ofproto/trace and ofproto/detrace about one packet or megaflow."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.megaflow import tag_written
from xenoovs.datapath.outer import encapsulations
from xenoovs.errors import ParseError
from xenoovs.model.packet import Packet
from xenoovs.model.tunnel import RemoteEnd
from xenoovs.openflow.flow import TAGGED
from xenoovs.openflow.text import split_list
from xenoovs.regex import ASCII, IGNORECASE, MULTILINE, regex

_ACTIONS = regex(r"^Datapath actions: (.*)$", MULTILINE)
_MEGAFLOW = regex(r"^Megaflow: (.*)$", MULTILINE)
_ETH_DST = regex(r"set\(eth\([^)]*\bdst=([0-9a-f:]{17})", ASCII)
_L4_NAMES = {6: "tcp", 17: "udp", 132: "sctp"}
_ICMP = {4: 1, 6: 58}
"""IP version -> protocol number of its ICMP (RFC 792, RFC 4443)."""


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The result of a trace. `dl_dst`, `vlan`: destination MAC and tag that are written; None if unchanged."""

    dl_dst: str | None
    ports: tuple[str, ...]
    megaflow: str
    actions: tuple[str, ...] = ()
    vlan: int | None = None


def render_packet(packet: Packet) -> str:
    """Return the packet as input of ofproto/trace (ovs-fields(7))."""
    six = "6" if packet.source.version == 6 else ""
    addresses = ("ipv6_src", "ipv6_dst") if six else ("nw_src", "nw_dst")
    protocol, l4 = _upper_layer(packet, six)
    parts = {
        "in_port": packet.in_port,
        **({"dl_vlan": packet.vlan & ~TAGGED} if packet.vlan else {}),
        "dl_src": packet.dl_src,
        "dl_dst": packet.dl_dst,
        **protocol,
        addresses[0]: packet.source,
        addresses[1]: packet.destination,
        "nw_ttl": packet.ttl,
        **l4,
    }
    return ",".join(key if value is None else f"{key}={value}" for key, value in parts.items())


def _upper_layer(packet: Packet, six: str) -> tuple[dict[str, int | None], dict[str, int]]:
    """Return the keyword of the protocol, with ports, or type and code, where Open vSwitch parses them.

    Else the keyword is that of the IP version, with the protocol number.
    """
    if name := _L4_NAMES.get(packet.protocol):
        return {f"{name}{six}": None}, {f"{name}_src": packet.sport, f"{name}_dst": packet.dport}
    if packet.protocol == _ICMP[packet.source.version]:
        name = "icmpv6" if six else "icmp"
        return {f"icmp{six}": None}, {f"{name}_type": packet.sport, f"{name}_code": packet.dport}
    return {f"ip{'v6' if six else ''}": None, "nw_proto": packet.protocol}, {}


def parse_trace(text: str) -> TraceResult:
    """Parse the end of a trace made with --names. Raises ParseError if it is missing."""
    actions, megaflow = _ACTIONS.search(text), _MEGAFLOW.search(text)
    if actions is None or megaflow is None:
        raise ParseError(text=text, offset=len(text), expected="'Megaflow:' and 'Datapath actions:' of ofproto/trace")
    parts = split_list(actions[1])
    written = _ETH_DST.search(actions[1])
    tags = [tag for part in parts if (tag := tag_written(part)) is not None]
    ports = tuple(part for part in parts if "(" not in part and part not in ("drop", "pop_vlan", ""))
    return TraceResult(written[1] if written else None, ports, megaflow[1], tuple(parts), tags[-1] if tags else None)


def agrees(packet: Packet, expected: Iterable[tuple[str, int, str | None]], result: TraceResult) -> bool | None:
    """Return whether exactly the expected copies (dl_dst, tag, port) leave; None if a port is None, as by NORMAL."""
    copies = list(expected)
    if any(port is None for _, _, port in copies):
        return None
    tag = packet.vlan if result.vlan is None else result.vlan
    return copies == [(result.dl_dst or str(packet.dl_dst), tag, port) for port in result.ports]


def enters_tunnel(packet: Packet, end: RemoteEnd, result: TraceResult) -> bool:
    """Return whether the switch sends the packet to the backend at this remote end of a tunnel, and nowhere else.

    The datapath has no port for each tunnel of the bridge, so both ends and the key are compared.
    """
    local = int(end.tunnel.local)
    sent = [(each.local or local, each.remote, each.key) for each in encapsulations(result.actions)]
    return sent == [(local, int(end.remote), end.key)] and (result.dl_dst or str(packet.dl_dst)) == str(end.mac)


# ofproto_rule_stats_ds() of ofproto/ofproto.c in 3.4.0 to 3.7.0: a cookie of 0, table 0 and the default priority are
# left out; the items that are no statistics are the cookie, table_id and what follows them.
_FLOW = regex(
    r"\s*(?:cookie=0x([0-9a-fA-F]{1,16}), )?(?:table_id=([0-9]{1,3}), )?duration=[^,]*, (?:[a-z_]+=[^,]*, )*"
    r",?(\S.*actions=.*|actions=.*)",
    ASCII,
)


def parse_detrace(text: str) -> tuple[str, ...]:
    """Return the flows behind a megaflow in order of the path (ovs-vswitchd(8), since 3.4): cookie and table, which may
    be left out, and what Open vSwitch prints of priority, match and actions. Skip other lines."""
    found = (_FLOW.fullmatch(line.rstrip()) for line in text.splitlines())
    return tuple(f"cookie={int(flow[1] or '0', 16):#x}, table={int(flow[2] or 0)}, {flow[3]}" for flow in found if flow)


# ofproto/trace of a megaflow: the flows that its packets visit in one pass of the datapath. Forms: xlate_report_table()
# and do_xlate_actions() of ofproto/ofproto-dpif-xlate.c, oftrace_node_print_details() of ofproto/ofproto-dpif-trace.c,
# as 3.1.0 prints them.

_NEXT_PASS = regex(r"^={20,}$", MULTILINE)
_BRIDGE = regex(r'bridge\("([^"]+)"\)')
_VISITED = regex(r"([0-9]{1,3})\. (?:(.*), )?(priority [0-9]+)(?:, cookie 0x([0-9a-f]{1,16}))?", ASCII)
_NO_MATCH = regex(r"[0-9]{1,3}\. No match\.", ASCII)
_RESUMED = regex(r"unroll_xlate\(table=([0-9]{1,3}), cookie=([0-9]{1,20})\)", ASCII)
"""After recirculation, the remaining actions are those of this flow."""
_TO_REGISTER = regex(
    r"(?:set_field|load|move):.*->(?:(?:NXM_NX_|OXM_OF_)?(?:x{0,2}reg[0-9]|metadata|tun_|ct_|in_port))",
    IGNORECASE | ASCII,
)
"""Fields of ct are written by `exec(..)` of ct."""
_END = ("Final flow:", "Megaflow:", "Datapath actions:")
_NO_EFFECT = (
    "resubmit(",
    "->",
    "thaw",
    "Resuming ",
    "Restoring ",
    "restored ",
    "bucket ",
    "nat",
    "drop",
    "-----",
    "stack_",
)


@dataclass(frozen=True, slots=True)
class VisitedFlow:
    """A flow that packets of a megaflow visit. `actions`: without resubmit or writes of registers, metadata, tunnel."""

    bridge: str
    table: int
    cookie: int
    match: str
    actions: tuple[str, ...]


def parse_visited(text: str) -> tuple[VisitedFlow, ...]:
    """Return the flows of the first pass that do more than write registers, in the order of the packet's path."""
    visited = list[VisitedFlow | None]()
    # Column and index of the flows around a line. An entry of `visited` is None if no flow matched.
    around, bridges = list[tuple[int, int]](), list[tuple[int, str]]()
    for line in _NEXT_PASS.split(text, maxsplit=1)[0].splitlines():
        entry = line.lstrip()
        column = len(line) - len(entry)
        if entry.startswith(_END):
            break
        # Behind a patch port or a tunnel, the flows of another bridge stand further right.
        bridges = [each for each in bridges if each[0] <= column] if entry else bridges
        if found := _BRIDGE.fullmatch(entry):
            bridges.append((column, found[1]))
            continue
        flow = _visited(entry, bridges[-1][1] if bridges else "")
        if flow is not None or _NO_MATCH.fullmatch(entry):
            # Numbers of tables are right-aligned in two columns. Remaining actions of a resumed flow are beside it.
            start = column - 1 if entry[1:2] == "." or entry.startswith("unroll") else column
            around = [each for each in around if each[0] < start] + [(start, len(visited))]
            visited.append(flow)
            continue
        around = [each for each in around if each[0] < column]
        owner = visited[around[-1][1]] if around else None
        if owner is not None and entry and not entry.startswith(_NO_EFFECT) and not _TO_REGISTER.match(entry):
            visited[around[-1][1]] = replace(owner, actions=(*owner.actions, entry))
    return tuple(flow for flow in visited if flow is not None and flow.actions)


def _visited(entry: str, bridge: str) -> VisitedFlow | None:
    if found := _RESUMED.fullmatch(entry):
        return VisitedFlow(bridge, int(found[1]), int(found[2]), "", ())
    found = _VISITED.fullmatch(entry)
    if found is None:
        return None
    match = ", ".join(filter(None, (found[2], found[3])))
    return VisitedFlow(bridge, int(found[1]), int(found[4] or "0", 16), match, ())
