"""Each link of the chains of a bridge: where it runs, its tunnel, its zones of connection tracking, its flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import Key, Megaflow, Verdict
from xenoovs.datapath.outer import Encapsulation, GeneveOption, OuterHeader, encapsulations, parse_outer
from xenoovs.datapath.ovn import LogicalFlow
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.tunnel import tunnel_kind
from xenoovs.display import duration
from xenoovs.errors import counted
from xenoovs.judge.chains import recirculations
from xenoovs.judge.findings import MegaflowState
from xenoovs.judge.trace import VisitedFlow
from xenoovs.regex import ASCII, regex

_ZONES = regex(r"\bct(?:\((?:(?:force_)?commit,?)?(?:zone=([0-9]{1,5}))?|(?=,|$))", ASCII)
"""format_odp_conntrack_action() of lib/odp-util.c prints the zone first or behind commit, and no zone 0."""
_MAIN_KEYS = frozenset(
    ("recirc_id", "ct_state", "ct_mark", "in_port", "eth", "eth_type", "encap", "ipv4", "ipv6", "tcp", "udp", "sctp")
)
_WILDCARD = regex(r"/[0:.x]+$", ASCII)
"""A mask of zeros: of a number, a MAC, or an address."""
_OVN_CLASS, _OVN_TYPE = 0x102, 0x80
"""The option of Geneve with logical ports (ovn-architecture(7), "Tunnel Encapsulations")."""
_FIRST_GROUP = 0x8000
_MAX_CHAINS, _MAX_NEXT, _MAX_LINKS = 50, 10, 300
"""Limits of the text: chains, next links of one link, and all links."""


@dataclass(frozen=True, slots=True)
class Node:
    """One line of the tree. `verdict`: shown between `name` and `text`; None if there is none."""

    name: str
    verdict: Verdict | None = None
    text: str = ""
    children: tuple[Node, ...] = ()


def tree_lines(nodes: Sequence[Node], *, indent: str = "") -> Iterator[tuple[str, Verdict | None, str]]:
    """Yield each line of a tree: the text before the verdict, the verdict, and the text after it."""
    for number, node in enumerate(nodes):
        is_last = number == len(nodes) - 1
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield f"{indent}{branch}{node.name}", node.verdict, node.text
        yield from tree_lines(node.children, indent=indent + below)


def filter_text(found: TcFilter, device: str) -> str:
    """Return a filter of traffic control with its counters, as one line."""
    counters = found.counters
    packets = "" if counters is None else f", {counted(counters.packets, 'packet')}, {counters.hw_packets} in hardware"
    return f"{found.text(device)}{packets}"


def counts_text(state: MegaflowState) -> str:
    """Return what a megaflow counted and when it was used."""
    used = "never used" if state.megaflow.used_s is None else f"used {duration(state.megaflow.used_s)} ago"
    return f"{counted(state.packets, 'packet')}, {state.hw_packets} in hardware, {used}"


def tc_to_json(found: TcFilter | None) -> dict[str, object] | None:
    if found is None:
        return None
    counters = found.counters
    return {
        "pref": found.pref,
        "handle": found.handle,
        "in_hw": found.in_hw,
        "packets": None if counters is None else counters.packets,
        "hw_packets": None if counters is None else counters.hw_packets,
    }


@dataclass(frozen=True, slots=True)
class MegaflowLink:
    """One megaflow of a chain. `is_judged`: False for packets that belong in software. `reason`: empty if unknown.

    `chain`: the verdict of the slowest link of its chains. `flows`: visited flows that do more than write registers;
    empty if not traced.
    """

    state: MegaflowState
    chain: Verdict
    is_judged: bool
    reason: str
    flows: tuple[VisitedFlow, ...] = ()

    @property
    def megaflow(self) -> Megaflow:
        return self.state.megaflow

    @property
    def zones(self) -> tuple[int, ...]:
        """Zones of connection tracking that its actions use, each once."""
        zones = (int(zone or 0) for action in self.megaflow.actions for zone in _ZONES.findall(action))
        return tuple(dict.fromkeys(zones))

    @property
    def outer(self) -> OuterHeader | None:
        """The tunnel through which its packets came; None if there was none."""
        text = self.megaflow.key("tunnel")
        return None if text is None else parse_outer(text)


class LinkTree:
    """Has a node for each chain, with next links below each link. A link with several ways to it is shown once.
    `ports`: their names outside of Open vSwitch. `logical`: flows of OVN by cookie."""

    def __init__(
        self, links: Sequence[MegaflowLink], ports: Mapping[str, str], logical: Mapping[int, LogicalFlow]
    ) -> None:
        self._links, self._ports, self._logical = links, ports, logical
        self._behind = defaultdict[tuple[str | None, int], list[int]](list)
        for number, link in enumerate(links):
            if link.megaflow.recirc_id:
                self._behind[link.megaflow.in_port, link.megaflow.recirc_id].append(number)
        self._shown = set[int]()

    def nodes(self) -> tuple[Node, ...]:
        targets = {(link.megaflow.in_port, target) for link in self._links for target in recirculations(link.megaflow)}
        roots = [
            number
            for number, link in enumerate(self._links)
            if not link.megaflow.recirc_id or (link.megaflow.in_port, link.megaflow.recirc_id) not in targets
        ]
        # The worst chains come first; the order of the dump has no meaning.
        roots.sort(key=lambda number: (not self._links[number].is_judged, -self._links[number].chain.badness))
        return self._some(roots, most=_MAX_CHAINS, of="chain")

    def _some(self, numbers: Sequence[int], *, most: int, of: str) -> tuple[Node, ...]:
        nodes = [self._node(number, is_first=of == "chain") for number in numbers[:most]]
        if len(numbers) > most:
            nodes.append(Node(f"and {counted(len(numbers) - most, f'more {of}')} (all with -o json)"))
        return tuple(nodes)

    def _node(self, number: int, *, is_first: bool) -> Node:
        link = self._links[number]
        megaflow = link.megaflow
        name = f"megaflow {megaflow.ufid or '(no ufid)'}"
        if is_first:
            port = megaflow.in_port or "-"
            logical = self._ports.get(port)
            name = f"{port} ({logical})  {name}" if logical and logical != port else f"{port}  {name}"
        if number in self._shown or len(self._shown) >= _MAX_LINKS:
            return Node(name, link.state.verdict, "see above" if number in self._shown else "(all with -o json)")
        self._shown.add(number)
        text = counts_text(link.state)
        if is_first and link.chain is not link.state.verdict:
            text = f"{text}; its chain is {link.chain.value}"
        children = [Node(line) for line in self._lines(link)]
        behind = [each for target in recirculations(megaflow) for each in self._behind[megaflow.in_port, target]]
        return Node(name, link.state.verdict, text, (*children, *self._some(behind, most=_MAX_NEXT, of="link")))

    def _lines(self, link: MegaflowLink) -> Iterator[str]:
        megaflow = link.megaflow
        # A pushed header has its own line.
        actions = ("tnl_push(..)" if each.startswith("tnl_push(") else each for each in megaflow.actions)
        yield f"{_match_text(megaflow)} -> {','.join(actions)}"
        if link.reason:
            yield f"{'reason' if link.is_judged else 'not judged'}: {link.reason}"
        if (outer := link.outer) is not None:
            yield f"came by {_tunnel_text(_came_by(megaflow, outer), 'from')}"
        yield from (f"leaves by {_tunnel_text(each, 'to')}" for each in encapsulations(megaflow.actions))
        if link.zones:
            yield f"connection tracking in zone {', '.join(map(str, link.zones))}"
        if link.state.tc is not None:
            yield filter_text(link.state.tc, megaflow.in_port or "-")
        yield from (flow_text(flow, self._logical.get(flow.cookie)) for flow in link.flows)


def _match_text(megaflow: Megaflow) -> str:
    """Return the main keys without wildcards; a tunnel has its own line."""
    shown = ((key.name, _without_wildcards(key)) for key in megaflow.keys if key.name in _MAIN_KEYS)
    return ",".join(f"{name}({inner})" for name, inner in shown if inner)


def _without_wildcards(key: Key) -> str:
    if key.name == "encap":
        return key.inner
    return ",".join(item for item in key.inner.split(",") if not _WILDCARD.search(item))


def flow_text(flow: VisitedFlow, logical: LogicalFlow | None) -> str:
    """Return a flow as one line: the logical flow of OVN if there is one, else the OpenFlow flow."""
    if logical is not None:
        place = f"{logical.datapath} {logical.stage} (table {logical.table}, priority {logical.priority})"
        return f"logical flow: {place}: {logical.match} => {logical.actions}"
    match = f" {flow.match}" if flow.match else ""
    return f"flow: {flow.bridge} table={flow.table}, cookie={flow.cookie:#x},{match} => {', '.join(flow.actions)}"


def _came_by(megaflow: Megaflow, outer: OuterHeader) -> Encapsulation:
    """Return a matched tunnel as an Encapsulation; an address of 0 is not matched."""
    matched = (each for each in outer.geneve or () if each.option_class is not None and each.option_class.mask)
    return Encapsulation(
        device=megaflow.in_port or "",
        remote=outer.source or 0,
        local=outer.destination,
        key=outer.exact("tun_id"),
        is_ipv6=outer.is_ipv6,
        options=tuple(matched),
    )


def _tunnel_text(tunnel: Encapsulation, preposition: str) -> str:
    remote = address_text(tunnel.remote, is_ipv6=tunnel.is_ipv6) if tunnel.remote else "any address"
    key = "" if tunnel.key is None else f", key {tunnel.key}"
    options = "".join(f", {_option_text(each)}" for each in tunnel.options)
    return f"{tunnel_kind(tunnel.device) or 'tunnel'} {preposition} {remote}{key}{options}"


def _option_text(option: GeneveOption) -> str:
    ports = _logical_ports(option)
    if ports is not None:
        out = "multicast group" if ports[1] >= _FIRST_GROUP else "port"
        return f"OVN's logical port {ports[0]} to {out} {ports[1]}"
    numbers = (None if each is None else each.value for each in (option.option_class, option.type, option.data))
    return "option " + "/".join("-" if each is None else f"{each:#x}" for each in numbers)


def _logical_ports(option: GeneveOption) -> tuple[int, int] | None:
    """Return the tunnel keys of OVN's logical input and output port; None if it is another option."""
    if option.option_class is None or option.type is None or option.data is None:
        return None
    is_ovn = (option.option_class.value, option.type.value, option.length) == (_OVN_CLASS, _OVN_TYPE, 4)
    return (option.data.value >> 16 & 0x7FFF, option.data.value & 0xFFFF) if is_ovn else None


def link_to_json(link: MegaflowLink, ports: Mapping[str, str], logical: Mapping[int, LogicalFlow]) -> dict[str, object]:
    """Return a link for JSON. `ports`, `logical`: as in LinkTree."""
    megaflow, outer = link.megaflow, link.outer
    return {
        "ufid": megaflow.ufid,
        "in_port": megaflow.in_port,
        "logical_port": ports.get(megaflow.in_port or ""),
        "recirc_id": megaflow.recirc_id,
        "recirculates_to": list(recirculations(megaflow)),
        "match": ",".join(f"{key.name}({key.inner})" for key in megaflow.keys),
        "actions": list(megaflow.actions),
        "verdict": link.state.verdict.value,
        "chain_verdict": link.chain.value,
        "judged": link.is_judged,
        "reason": link.reason,
        "packets": link.state.packets,
        "hw_packets": link.state.hw_packets,
        "used_s": megaflow.used_s,
        "ct_zones": list(link.zones),
        "tunnel_in": None if outer is None else _tunnel_to_json(_came_by(megaflow, outer)),
        "tunnels_out": [_tunnel_to_json(each) for each in encapsulations(megaflow.actions)],
        "tc": tc_to_json(link.state.tc),
        "flows": [_flow_to_json(flow, logical.get(flow.cookie)) for flow in link.flows],
    }


def _tunnel_to_json(tunnel: Encapsulation) -> dict[str, object]:
    addresses = {"remote": tunnel.remote or None, "local": tunnel.local}
    return {
        "type": tunnel_kind(tunnel.device),
        **{
            name: None if value is None else address_text(value, is_ipv6=tunnel.is_ipv6)
            for name, value in addresses.items()
        },
        "key": tunnel.key,
        "options": [_option_to_json(each) for each in tunnel.options],
    }


def _option_to_json(option: GeneveOption) -> dict[str, object]:
    ports = _logical_ports(option)
    masked = {"class": option.option_class, "type": option.type, "data": option.data}
    return {
        **{name: None if value is None else f"{value.value:#x}/{value.mask:#x}" for name, value in masked.items()},
        "length": option.length,
        "ovn_logical_ports": None if ports is None else list(ports),
    }


_LOGICAL = ("datapath", "pipeline", "table", "stage", "priority", "match", "actions")


def _flow_to_json(flow: VisitedFlow, logical: LogicalFlow | None) -> dict[str, object]:
    return {
        "bridge": flow.bridge,
        "table": flow.table,
        "cookie": f"{flow.cookie:#x}",
        "match": flow.match,
        "actions": list(flow.actions),
        "logical_flow": None if logical is None else {name: getattr(logical, name) for name in _LOGICAL},
    }
