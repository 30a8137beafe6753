"""Flows written by hand: a dump of `ovs-ofctl dump-flows`, a file for `add-flows`, or `ovs-ofctl add-flow` commands."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

from xenoovs.compile.encoding import block_of, infer_key, key_bits
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.decision import Blocks
from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftBackend, DraftService, DraftTunnel, Word, name_from, use
from xenoovs.model import values
from xenoovs.model.address import Family, Mac, Vip, holds, prefix_of
from xenoovs.model.balancer import BlockKey, Claim, OtherTraffic, PortRange, Protocol
from xenoovs.model.next_hop import MAX_VLAN, NO_TAG, vlan_text
from xenoovs.model.tunnel import Reflect, TunnelType
from xenoovs.openflow.flow import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    TAGGED,
    UNTAGGED,
    Action,
    Field,
    Flow,
    Foreign,
    Masked,
    Match,
    Move,
    Normal,
    Output,
    OutputInPort,
    SetField,
    is_ours,
)
from xenoovs.openflow.text import as_dumped, parse_actions, parse_flow
from xenoovs.partition.block import MAX_WIDTH
from xenoovs.partition.solve import whole_weights
from xenoovs.regex import ASCII, regex

_OVS_OFCTL = regex(r"(?:sudo\s+)?(?:\S*/)?ovs-ofctl\s", ASCII)
_COMMAND = regex(
    rf"{_OVS_OFCTL.pattern}(?:\s*(?:-O\s*(?:OpenFlow1[0-5],?)+|--?[\w=,-]+)\s)*\s*add-flow\s+([\w.-]+)\s+(.+)", ASCII
)
_VALUES = {"local": 1, "remote": 1, "dstport": 1, "srcport": 2}
_LINK = regex(r"(?:sudo\s+)?ip\s+link\s+add\s", ASCII)
_HEADER = regex(r"[A-Z]+_(?:FLOW|GROUP_DESC) reply (?:\(OF1\.[0-5]\) )?\(xid=0x[0-9a-f]+\):", ASCII)
_GROUP_LINE = regex(
    r"group_id=([0-9]+),type=(select|ff|fast_failover)(?:,selection_[^=]+=[^,]+)*((?:,bucket=.+)+)", ASCII
)
_BUCKET = regex(r"(?:bucket_id:\d+,)?(?:weight:(\d+),)?(?:watch_(?:port|group):[^,]+,)*actions=(.+)", ASCII)
_PROTOCOLS = {6: Protocol.TCP, 17: Protocol.UDP, 132: Protocol.SCTP, 1: Protocol.ICMP, 58: Protocol.ICMP}
_OF_A_CLAIM = (Field.VLAN, Field.DL_TYPE, Field.NW_PROTO, Field.NW_DST, Field.IPV6_DST, Field.TP_DST)
_TAG_ACTION = regex(
    r"(?:mod|set)_vlan_vid:(\d+)|set_field:(\d+|0x[0-9a-f]+)->vlan_vid|(strip_vlan|pop_vlan)|push_vlan:0x8100", ASCII
)
_OF_A_KEY = (Field.NW_SRC, Field.IPV6_SRC)


@dataclass(frozen=True, slots=True)
class _Line:
    """A flow. `weight`: that of the select group's bucket whose actions it has; None if it is no bucket."""

    word: Word
    flow: Flow
    weight: Fraction | None = None


@dataclass(slots=True)
class _Group:
    """Flows for the same packets, split by their source address."""

    conditions: tuple[Masked, ...]
    lines: dict[tuple[Masked, ...], list[tuple[_Line, DraftBackend]]] = field(default_factory=dict)
    ports: set[str | None] = field(default_factory=set)

    @property
    def priority(self) -> int:
        return max(line.flow.priority for rows in self.lines.values() for line, _ in rows)

    @property
    def claim(self) -> Claim:
        """Return the packets of the group as a claim. All its conditions must be ones that a service can have."""
        conditions = Match(None, self.conditions)
        address = conditions.get(Field.NW_DST) or conditions.get(Field.IPV6_DST)
        vip, protocol = None if address is None else _vip_of(address), conditions.get(Field.NW_PROTO)
        port, tag = conditions.get(Field.TP_DST), conditions.get(Field.VLAN)
        return Claim(
            frozenset(Family),
            () if vip is None else (vip,),
            None if protocol is None else _PROTOCOLS[protocol.value],
            () if port is None else (PortRange(port.value, port.value | ~port.mask & 0xFFFF),),
            vlan=None if tag is None else tag.value & ~TAGGED,
        )

    def has_first(self, other: _Group) -> bool:
        """Return whether this group gets packets on the switch that would go to `other` in xenoovs, as that has a VLAN
        or a longer prefix. At the same priority the switch may use either, so this returns False."""
        mine, theirs = self.claim, other.claim
        if self.priority <= other.priority or not mine.vips or not theirs.vips:
            return False
        (start, length), (inner, longer) = prefix_of(mine.vips[0]), prefix_of(theirs.vips[0])
        is_same_port = None in self.ports | other.ports or bool(self.ports & other.ports)
        nested = holds(theirs.vips[0], start) or holds(mine.vips[0], inner)
        is_later = (mine.vlan is not None, length) < (theirs.vlan is not None, longer)
        return is_same_port and nested and is_later and mine.overlaps(replace(theirs, vips=mine.vips))


def read_flows(text: str) -> Draft:
    """Convert flows: those that set a MAC and send to a port become services. Raises ParseError without any flow."""
    draft = Draft(is_dsr=True)
    lines, links = list(_flows(text, draft)), list(_links(text))
    draft.words += [word for words in links for word in words]
    if not lines:
        raise ParseError(text=text[:200], offset=0, expected="flows as `ovs-ofctl dump-flows` prints them")
    groups: dict[tuple[Masked, ...], _Group] = {}
    across: dict[str, tuple[_Line, str | None]] = {}
    reflectors: list[tuple[_Line, int]] = []
    for line in lines:
        match, delivery = line.flow.match, _delivery(line.flow)
        # All packets of a port, or all its IPv4 or IPv6 packets.
        is_for_all = all(c.field is Field.DL_TYPE and c.value in (ETH_IPV4, ETH_IPV6) for c in match.masked)
        use((line.word,))
        if is_ours(line.flow.cookie):
            draft.omissions.add((line.word,), "a flow of xenoovs itself")
            draft.own_flows += 1
        elif line.flow.key.table:
            draft.omissions.add((line.word,), "a flow of another table than 0, which does not see all packets")
        elif not match.masked and not match.foreign and (policy := _policy(line.flow)) is not None:
            if draft.switch.other_traffic is None or match.in_port is None:
                draft.switch.other_traffic = policy
        elif _is_flood_of_arp(line.flow):
            reason = "other_traffic is normal: the bridge floods ARP, and switches all that belongs to no service"
            draft.omissions.add((line.word,), reason)
            draft.switch.other_traffic = OtherTraffic.NORMAL
        elif (tos := _reflected_tos(line.flow)) is not None:
            reflectors.append((line, tos))
        elif delivery is None or match.foreign:
            draft.omissions.add((line.word,), _reason(line.flow))
        elif delivery.mac is None and match.in_port and is_for_all:
            across[match.in_port] = line, delivery.egress
        else:
            # Flows of single connections are counted as those of single clients.
            of_a_key = (*_OF_A_KEY, Field.TP_SRC) if _is_of_a_client(match) else _OF_A_KEY
            conditions = tuple(c for c in match.masked if c.field not in of_a_key)
            group = groups.setdefault(conditions, _Group(conditions))
            keys = tuple(c for c in match.masked if c.field in _OF_A_KEY)
            group.lines.setdefault(keys, []).append((line, delivery))
            group.ports.add(match.in_port)
            if _may_tag_twice(line.flow):
                draft.omissions.add((line.word,), "frames with a tag get a second one there, and another one here")
            if line.flow.options:
                draft.omissions.add((line.word,), f"flows of a service have no {', '.join(line.flow.options)}")
    known = [group for group in groups.values() if all(map(_is_of_a_claim, group.conditions))]
    served = [group for group in groups.values() if _add_service(draft, group, known)]
    _add_tunnels(draft, reflectors, links)
    _set_switch(draft, served, across)
    for words in links:
        draft.omissions.rest(words, "no part of a tunnel with a flow that reflects probes")
    return draft.finish()


def _flows(text: str, draft: Draft) -> Iterable[_Line]:
    groups = dict[Action, tuple[Word, str, str]]()
    words = [Word(line.strip(), number) for number, line in enumerate(text.split("\n"), start=1)]
    for word in words:
        if (found := _GROUP_LINE.fullmatch(word)) is not None:
            groups[Foreign(f"group:{found[1]}")] = word, found[2], found[3]
    for word in words:
        if not word or word.startswith("#") or _HEADER.fullmatch(word) or _LINK.match(word):
            continue
        draft.words.append(word)
        if word.startswith("group_id="):
            continue
        written = str(word)
        try:
            if command := _COMMAND.fullmatch(word):
                (written,) = shlex.split(command[2], comments=True)
                draft.switch.bridge = draft.switch.bridge or command[1]
            if _OVS_OFCTL.match(written) or (command and command[1] != draft.switch.bridge):
                raise ValueError
            # A dump shows dl_vlan=0xffff of OpenFlow 1.0, untagged, like this (match_set_dl_vlan() of lib/match.c).
            flow = parse_flow(as_dumped(written.replace("vlan_tci=0x0000,", "dl_vlan=0xffff,")))
            group = groups.get(flow.actions[0]) if len(flow.actions) == 1 else None
            lines = [] if group is None else _bucket_lines(word, flow, group[2])
            if group is not None and group[1] != "select" and lines:
                draft.switch.depth = max(draft.switch.depth, len(lines))
                draft.omissions.add((group[0],), "failover: in_switch; who takes over follows from the weights here")
                lines = [replace(lines[0], weight=None)]
            yield from lines or (_Line(word, flow),)
            use((group[0],) if group is not None and lines else ())
        except ParseError as error:
            draft.omissions.add((word,), str(error).splitlines()[0])
        except ValueError:
            draft.omissions.add((word,), "not `ovs-ofctl add-flow BRIDGE FLOW` with one flow for the first bridge")


def _links(text: str) -> Iterator[list[Word]]:
    """Yield the words of each `ip link add` command (ip-link(8))."""
    for number, line in enumerate(text.split("\n"), start=1):
        if _LINK.match(line.strip()):
            yield [Word(word, number) for word in line.split()]


def script_flows(text: str) -> tuple[Flow, ...]:
    """Return the flows of `ovs-ofctl add-flow` commands in a script; empty for any other text."""
    draft = Draft()
    return tuple(line.flow for line in _flows(text, draft) if _COMMAND.match(line.word))


def _reflected_tos(flow: Flow) -> int | None:
    """Return the TOS of the probes that a flow reflects; None if it reflects none."""
    tos, port = flow.match.get(Field.NW_TOS), flow.match.get(Field.TP_DST)
    writes = {action.field for action in flow.actions if isinstance(action, SetField)}
    is_reflector = OutputInPort() in flow.actions and Field.TP_DST in writes and not flow.match.foreign
    return tos.value if is_reflector and tos is not None and port is not None else None


def _add_tunnels(draft: Draft, reflectors: Iterable[tuple[_Line, int]], links: Iterable[list[Word]]) -> None:
    """Add the tunnels of `ip link add` commands whose probes are reflected by flows."""
    devices = [(words, found) for words in links if (found := _device(words)) is not None]
    for line, tos in reflectors:
        port = line.flow.match.get(Field.TP_DST)
        mine = [pair for pair in devices if port is not None and pair[1].dst_port == port.value]
        swaps = any(isinstance(action, Move) and action.target is Field.NW_DST for action in line.flow.actions)
        for words, device in mine:
            use(words[: [*words].index(Word("type", 0)) + 2])
            for index, word in enumerate(words):
                use(words[index : index + _VALUES.get(word, 0) + 1] if word in _VALUES else ())
            reflect = Reflect.L3 if swaps else Reflect.L2
            draft.tunnels.append(replace(device, tos=tos, reflect=reflect))
        if not mine:
            reason = (
                "it reflects probes of a tunnel, and no `ip link add ... type vxlan` with `local` and `remote` says of "
                "which: write it as `tunnels:`"
            )
            draft.omissions.add((line.word,), reason)


def _device(words: list[Word]) -> DraftTunnel | None:
    """Return the tunnel of an `ip link add NAME type vxlan ...` command (ip-link(8)); None if it adds no tunnel."""
    values: dict[str, str] = dict(pairwise(words))
    try:
        kind = TunnelType(values["type"])
        local, remote = IPv4Address(values["local"]), IPv4Address(values["remote"])
        dst_port = int(values.get("dstport", kind.dst_port))
    except (KeyError, ValueError):
        return None
    bounds = next((words[i + 1 : i + 3] for i, word in enumerate(words) if word == "srcport"), [])
    is_bounded = len(bounds) == 2 and all(bound.isascii() and bound.isdigit() for bound in bounds)
    # The second port is excluded (udp_flow_src_port() of the kernel).
    ports = PortRange(int(bounds[0]), int(bounds[1]) - 1) if is_bounded else None
    name = name_from(values.get("dev", values["add"]) if values["add"] == "dev" else values["add"])
    return DraftTunnel(name, kind, local, remote, dst_port, 0, Reflect.L2, ports)


def _is_flood_of_arp(flow: Flow) -> bool:
    ether = flow.match.get(Field.DL_TYPE)
    is_arp = ether is not None and ether.value == ETH_ARP and len(flow.match.masked) == 1
    return is_arp and flow.actions in ((Foreign("FLOOD"),), (Foreign("ALL"),), (Normal(),))


def _bucket_lines(word: Word, flow: Flow, buckets: str) -> list[_Line]:
    """Return the buckets of a group as flows; empty if any bucket does anything but send to one port."""
    lines = []
    for text in buckets.split(",bucket=")[1:]:
        if (bucket := _BUCKET.fullmatch(text)) is None:
            return []
        one = replace(flow, actions=parse_actions(bucket[2]))
        lines.append(_Line(word, one, Fraction(bucket[1] or 1)))
    return lines if all(_delivery(line.flow) for line in lines) else []


def _is_of_a_client(match: Match) -> bool:
    return any(condition.field in _OF_A_KEY and condition.is_exact for condition in match.masked)


_PUSHED = -1
"""A pushed tag whose VLAN is not set yet."""


def _is_vlan(tag: int) -> bool:
    """Return whether `tag` is untagged, or a VLAN that a service can have. VLAN 0 is a priority tag."""
    return tag == UNTAGGED or 0 < tag & ~TAGGED <= MAX_VLAN


def _delivery(flow: Flow) -> DraftBackend | None:
    """Return the backend to which a flow sends, without name and weight; None if the flow does more than to set
    addresses or a tag, and to send to one port."""
    mac, port, address = None, None, None
    tag = flow.match.get(Field.VLAN)
    before = tag.value if tag is not None and tag.is_exact else None
    vlan = None
    for action in flow.actions:
        match action:
            case SetField(Field.DL_SRC, _) if port is None:
                pass
            case SetField(Field.DL_DST, value) if port is None:
                mac = Mac(value)
            case SetField(Field.NW_DST, value) if port is None:
                address = IPv4Address(value)
            case SetField(Field.VLAN, value) if port is None and _is_vlan(value):
                vlan = value & ~TAGGED
            case Foreign(text) if port is None and (found := _TAG_ACTION.fullmatch(text)):
                is_push = text.startswith("push")
                if is_push and (before or 0) & TAGGED and vlan != NO_TAG:
                    return None
                number = int(found[1] or found[2] or "0", 0) | TAGGED
                if not (is_push or found[3] or _is_vlan(number)):
                    return None
                vlan = NO_TAG if found[3] else _PUSHED if is_push else number & ~TAGGED
            case Output(name) if port is None:
                port = name
            case _:
                return None
    if port is None or vlan == _PUSHED:
        return None
    return DraftBackend("", Fraction(0), mac, address, port, vlan=vlan)


def _may_tag_twice(flow: Flow) -> bool:
    tags = [each.text for each in flow.actions if isinstance(each, Foreign) and _TAG_ACTION.fullmatch(each.text)]
    return flow.match.get(Field.VLAN) is None and bool(tags) and tags[0].startswith("push")


def _policy(flow: Flow) -> OtherTraffic | None:
    """Return the policy for other traffic that a flow without match conditions implies."""
    if flow.actions == (Normal(),):
        return OtherTraffic.NORMAL
    return OtherTraffic.DROP if not flow.actions else None


def _reason(flow: Flow) -> str:
    if flow.match.foreign:
        return f"xenoovs does not match {', '.join(flow.match.foreign)}"
    ether = flow.match.get(Field.DL_TYPE)
    if ether is None or ether.value not in (ETH_IPV4, ETH_IPV6):
        return "not IP: other_traffic decides, and vip_mac answers ARP for a VIP"
    if any(isinstance(action, Foreign) and "vlan" in action.text for action in flow.actions):
        return "it adds a tag without a VLAN from 1 to 4094, or a second one: two tags (IEEE 802.1ad) are not supported"
    return "more than to set MACs and send to one port"


def _add_service(draft: Draft, group: _Group, groups: Iterable[_Group]) -> bool:
    rows = [(line, delivery) for lines in group.lines.values() for line, delivery in lines]
    first = rows[0][0]
    unknown = [c for c in group.conditions if not _is_of_a_claim(c)]
    if unknown:
        names = ", ".join(condition.field.ovs_name for condition in unknown)
        for line, _ in rows:
            draft.omissions.add((line.word,), f"a service does not match {names}")
        return False
    claim = group.claim
    protocol, vlan = claim.protocol, claim.vlan
    words = ("service", vlan_text(vlan).removeprefix("+"), *map(str, claim.vips), protocol.value if protocol else "")
    name = "-".join(filter(None, (*words, *map(str, claim.ports)))).replace(":", "-")
    service = DraftService(name_from(name, draft.services), claim.vips, protocol, claim.ports, vlan=vlan)
    key = infer_key(key_bits(line.flow)[1] for line, _ in rows)
    shares = _counted(rows)
    blocks = Blocks.of(()) if shares else _blocks(rows, key, service)
    if not (shares or blocks.rows):
        for line, _ in rows:
            draft.omissions.add((line.word,), "for single clients, or what a server answers: other_traffic decides")
        return False
    if any(other.has_first(group) for other in groups):
        what = "flows of a higher priority have packets of it, but here a VLAN or a longer prefix goes first"
        draft.omissions.add((line.word for line, _ in rows), what)
        return False
    other = next((one for one in draft.services if vlan != one.vlan and claim.overlaps(_claim(one))), None)
    if other is not None:
        what = f"it has packets of {other.name} too: services of one VLAN and of every VLAN cannot share a VIP and port"
        draft.omissions.add((line.word for line, _ in rows), what)
        return False
    draft.services.append(service)
    _set_source_mac(service, [line for line, _ in rows])
    shares = shares or blocks.shares()
    # The layout gives the first blocks to the first backend: in this order most clients keep their server.
    owners = list(dict.fromkeys((*(owner for _, owner in blocks.rows), *(_owner(delivery) for _, delivery in rows))))
    by_owner = {_owner(delivery): delivery for _, delivery in rows}
    usual = by_owner[max(owners, key=lambda owner: shares.get(owner, Fraction(0)))].egress
    draft.switch.egress = draft.switch.egress or usual
    weights = whole_weights(shares.get(owner, Fraction(0)) for owner in owners)
    for number, (owner, weight) in enumerate(zip(owners, weights, strict=True), start=1):
        found = by_owner[owner]
        found.name, found.weight = f"server-{number}", Fraction(weight)
        found.egress = None if found.egress == draft.switch.egress else found.egress
        found.vlan = None if found.vlan == vlan else found.vlan
        service.backends.append(found)
    if any(backend.address for backend in service.backends):
        reason = service.why_no_nat(draft.services[:-1])
        service.is_nat = reason is None
        service.omissions.add((first.word,), reason or "it sets the address of a server: answers are set back too")
    if not blocks.rows:
        what = "a select group chooses for each connection" if first.weight else f"{len(rows)} flows of single clients"
        reason = f"{what}; here a block of clients has one server, as one flow and one megaflow"
        service.omissions.add((first.word,), reason)
        return True
    missing = 1 - sum(shares.values(), Fraction(0))
    if missing:
        reason = f"{float(missing):.1%} of the clients match none of these flows; here they get a backend too"
        service.omissions.add((first.word,), reason)
    if key.positions != tuple(range(len(key.positions or ()))):
        positions = ", ".join(map(str, key.positions or ()))
        reason = f"it matches bits {positions}: write `match: {{bits: [{positions}]}}` to use the same"
        service.omissions.add((first.word,), reason)
    return True


def _claim(service: DraftService) -> Claim:
    return Claim(frozenset(Family), service.vips, service.protocol, service.ports, vlan=service.vlan)


def _counted(rows: Iterable[tuple[_Line, DraftBackend]]) -> dict[str, Fraction]:
    """Return the servers' shares of buckets in a select group, or of flows for single clients; empty for masks."""
    found = defaultdict[str, Fraction](Fraction)
    for line, delivery in rows:
        if line.weight is None and (delivery.mac is None or not _is_of_a_client(line.flow.match)):
            return {}
        found[_owner(delivery)] += 1 if line.weight is None else line.weight
    # Flows with a single destination are the answers of servers to clients.
    total = 0 if len(found) == 1 else sum(found.values())
    return {owner: count / total for owner, count in found.items()} if total else {}


def _is_of_a_claim(condition: Masked) -> bool:
    if condition.field not in _OF_A_CLAIM:
        return False
    if condition.field is Field.TP_DST:
        # A prefix of the 16 bits is a range of ports.
        return (~condition.mask & 0xFFFF) & ((~condition.mask & 0xFFFF) + 1) == 0
    if condition.field is Field.VLAN:
        return (
            _is_vlan(condition.value) and bool(condition.mask & TAGGED) and (condition.is_exact or not condition.value)
        )
    if condition.field is Field.DL_TYPE:
        return condition.value in (ETH_IPV4, ETH_IPV6)
    if condition.field in (Field.NW_DST, Field.IPV6_DST):
        return _vip_of(condition) is not None
    return condition.is_exact and (condition.field is not Field.NW_PROTO or condition.value in _PROTOCOLS)


def _blocks(rows: Iterable[tuple[_Line, DraftBackend]], key: BlockKey, service: DraftService) -> Blocks:
    found = []
    for line, delivery in sorted(rows, key=lambda row: row[0].flow.priority):
        value, mask = key_bits(line.flow)
        try:
            if mask.bit_count() > MAX_WIDTH:
                raise ValueError(mask)
            found.append((block_of(value, mask, key), _owner(delivery)))
        except ValueError:
            reason = f"its mask is no part of the others' masks, or has more than {MAX_WIDTH} bits: write a weight"
            service.omissions.add((line.word,), reason)
    return Blocks.of(found)


def _owner(delivery: DraftBackend) -> str:
    return f"{delivery.mac}{vlan_text(delivery.vlan)}@{delivery.egress}"


def _set_source_mac(service: DraftService, lines: Sequence[_Line]) -> None:
    macs = [_source_mac(line.flow) for line in lines]
    if len({*macs}) == 1:
        service.source_mac = macs[0]
        return
    for line, mac in zip(lines, macs, strict=True):
        if mac is not None:
            service.omissions.add((line.word,), "these flows set several source MACs: write one as rewrite_source_mac")


def _source_mac(flow: Flow) -> Mac | None:
    """Return the source MAC that a flow sets at last; None if it sets none."""
    set_macs = [Mac(each.value) for each in flow.actions if isinstance(each, SetField) and each.field is Field.DL_SRC]
    return set_macs[-1] if set_macs else None


def _vip_of(condition: Masked) -> Vip | None:
    """Return a condition's address or prefix as a VIP; None if the config cannot have it."""
    address = IPv4Address if condition.field is Field.NW_DST else IPv6Address
    free = condition.mask ^ condition.field.all_ones
    try:
        return None if free & (free + 1) else values.vip(f"{address(condition.value)}/{condition.mask.bit_count()}")
    except ValueError:
        return None


def _set_switch(draft: Draft, groups: Iterable[_Group], across: dict[str, tuple[_Line, str | None]]) -> None:
    """Set the ports, and the policy for other traffic that flows between ports imply."""
    switch = draft.switch
    entered = sorted({port for group in groups for port in group.ports if port is not None} if draft.services else ())
    switch.ingress = tuple(entered) or tuple(sorted(across))[:1] or None
    if switch.egress is None and across:
        switch.egress = across[sorted(across)[0]][1]
    back = {port: target for port, (_, target) in across.items()}
    ingress = switch.ingress or ()
    first, egress = next(iter(ingress), None), switch.egress
    if switch.other_traffic is OtherTraffic.NORMAL:
        across = {port: found for port, found in across.items() if {port, found[1]} != {first, egress}}
    is_crossing = first is not None and egress is not None and (back.get(first), back.get(egress)) == (egress, first)
    if is_crossing:
        switch.other_traffic = OtherTraffic.PASSTHROUGH
        across = {port: found for port, found in across.items() if port not in (first, egress)}
    policy = switch.other_traffic = switch.other_traffic or OtherTraffic.DROP
    for line, target in across.values():
        reason = f"packets of no service: other_traffic is {policy.value}, which does not send to {target}"
        draft.omissions.add((line.word,), reason)
