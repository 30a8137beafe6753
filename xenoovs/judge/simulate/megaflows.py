"""Predicts the megaflows that ovs-vswitchd installs for given flows and packets, before any traffic.

Beyond the classifier it simulates what the translation itself matches (ofproto/ofproto-dpif-xlate.c: xlate_wc_init,
xlate_wc_finish, commit_odp_actions in lib/odp-util.c). recirc_id, packet type and fragment state are matched always and
are the same for all packets here (0, Ethernet, none), so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import MaskedValue
from xenoovs.judge.simulate.classifier import PREFIX_FIELDS, Classifier, Wildcards, classifier_of
from xenoovs.judge.simulate.walk import Copy, Headers, Walk, by_table, field_of, headers_of, slot_of
from xenoovs.model.next_hop import remote_of_port
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import TAGGED, Field, Flow, Masked
from xenoovs.openflow.text import render_value

_TUNNEL = (Field.TUN_ID, Field.TUN_SRC, Field.TUN_DST)
"""Packets of clients come through no tunnel, so the datapath does not match these."""
_NO_HEADER = frozenset({Field.REG0, Field.REG1, Field.REG2, Field.REG3, Field.METADATA, *_TUNNEL})
_ECN = 0x03
"""The bits of ECN in the type of service (RFC 3168, 5)."""
_L4 = (Field.TP_SRC, Field.TP_DST, Field.ICMP_TYPE, Field.ICMP_CODE)
_HEADERS = {
    "eth": (Field.DL_SRC, Field.DL_DST),
    "ipv4": (Field.NW_SRC, Field.NW_DST),
    "l4": (Field.TP_SRC, Field.TP_DST),
}
"""The headers that actions rewrite, in the order in which Open vSwitch does it."""
_L4_NAMES = {6: "tcp", 17: "udp", 132: "sctp"}


@dataclass(frozen=True, slots=True)
class PredictedMegaflow:
    """One megaflow. `match`: in the order of `Field`; value bits outside a mask are 0. `actions`: as the datapath
    prints them; empty if MAC learning decides (NORMAL). They are `userspace(slow_path(action))`, without a pid, if
    ovs-vswitchd itself rewrites ARP."""

    in_port: str
    match: tuple[Masked, ...]
    actions: tuple[str, ...]

    def fields(self) -> dict[str, MaskedValue]:
        """Return the match as `datapath.megaflow.match_of` returns it for a megaflow of a dump."""
        return {masked.field.ovs_name: MaskedValue(masked.value, masked.mask) for masked in self.match}


Pipeline = Mapping[int, Classifier]
"""All tables as classifiers; `pipeline_of` builds them."""


def predict(pipeline: Pipeline, packet: Packet | Headers) -> tuple[PredictedMegaflow, Walk]:
    """Return the megaflow that the switch installs for this packet, and the way of the packet."""
    wildcards = Wildcards()

    def lookup(table: int, headers: Headers) -> Flow | None:
        return None if table not in pipeline else pipeline[table].lookup(headers, wildcards)

    translation = _Translation(lookup, headers_of(packet), wildcards=wildcards)
    translation.run()
    return translation.megaflow(), translation


def pipeline_of(flows: Iterable[Flow], prefix_fields: Iterable[Field] = PREFIX_FIELDS) -> Pipeline:
    """Build the classifiers once for many packets. Raises SimulateError for an unsupported condition."""
    tries = tuple(prefix_fields)
    return {table: classifier_of(each, prefix_fields=tries) for table, each in by_table(flows).items()}


def _retagged(before: int, after: int) -> Iterator[str]:
    """Yield the actions that change a tag (commit_vlan_action of lib/odp-util.c)."""
    if before != after and before & TAGGED:
        yield "pop_vlan"
    if before != after and after & TAGGED:
        yield f"push_vlan(vid={after & ~TAGGED},pcp=0)"


@dataclass(slots=True)
class _Translation(Walk):
    """Collects the mask and the datapath actions of one packet. `original`: the packet as it came; `base`: at the last
    output."""

    original: Headers = field(init=False)
    base: Headers = field(init=False)
    wildcards: Wildcards = field(default_factory=Wildcards)
    actions: list[str] = field(default_factory=list)
    slow: bool = False

    def __post_init__(self) -> None:
        self.original = self.base = self.headers
        self.touched(Field.DL_TYPE)

    def touched(self, touched: Field) -> None:
        self.wildcards.add(slot_of(touched), touched.all_ones & slot_of(touched).all_ones)
        if touched in _L4:
            # Whether there is such a field depends on the protocol (mf_are_prereqs_ok, lib/meta-flow.c).
            self.wildcards.add(Field.NW_PROTO, Field.NW_PROTO.all_ones)

    def sent(self, copy: Copy) -> None:
        if copy.port is not None and copy.headers.get(Field.TUN_ID) != self.base.get(Field.TUN_ID):
            self.enters_tunnel(copy.port, copy.headers)
        # One action sets the fields of a header that have changed (commit_set_ether_action, commit_set_nw_action and
        # commit_set_port_action, and keycmp_mask for the others, lib/odp-util.c).
        for header, fields in _HEADERS.items():
            changed = [field for field in fields if copy.headers.get(field) != self.base.get(field)]
            if changed:
                inner = ",".join(
                    f"{field.ovs_name.partition('_')[2]}={render_value(field, copy.headers.get(field))}"
                    for field in changed
                )
                name = _L4_NAMES.get(self.original.get(Field.NW_PROTO), header) if header == "l4" else header
                self.actions.append(f"set({name}({inner}))")
                if header == "ipv4":
                    # Only packets with a protocol have addresses to set (commit_set_nw_action of lib/odp-util.c).
                    self.wildcards.add(Field.NW_PROTO, Field.NW_PROTO.all_ones)
        self.actions += _retagged(self.base.get(Field.VLAN), copy.headers.get(Field.VLAN))
        self.slow = self.slow or any(self._is_arp_change(slot, copy) for slot in copy.headers.values)
        self.base = copy.headers
        self.actions.append(copy.port or "NORMAL")

    def enters_tunnel(self, port: str, headers: Headers) -> None:
        """Add mask and action of a tunnel port, which copies ECN outwards (tnl_port_send() of ofproto/tunnel.c)."""
        remote = remote_of_port(port) or IPv4Address(headers.get(Field.TUN_DST))
        self.wildcards.add(Field.NW_TOS, _ECN)
        self.actions.append(f"set(tunnel(tun_id={headers.get(Field.TUN_ID):#x},dst={remote}))")

    def megaflow(self) -> PredictedMegaflow:
        self.wildcards.add(Field.VLAN, TAGGED)
        masks = {field_of(slot, self.original): mask for slot, mask in self.wildcards.items()}
        if Field.ARP_OP in masks:
            # ovs-vswitchd stores 8 bits; the datapath matches all 16.
            masks[Field.ARP_OP] = Field.ARP_OP.all_ones
        match = (
            Masked(name, self.original.get(name) & bits, bits)
            for name, mask in masks.items()
            if name not in _NO_HEADER
            and (bits := mask & (name.all_ones | (_ECN if name is Field.NW_TOS else 0)))
            # The EtherType implies that there is no tag.
            and (name is not Field.VLAN or self.original.get(name))
            # The datapath has flags only in keys of TCP (odp_flow_key_from_flow__, lib/odp-util.c).
            and (name is not Field.TCP_FLAGS or self.original.has(name))
        )
        ordered = tuple(sorted(match, key=lambda masked: masked.field.rank))
        return PredictedMegaflow(self.original.in_port, ordered, self._actions())

    def _actions(self) -> tuple[str, ...]:
        if any(copy.port is None for copy in self.copies):
            return ()
        # The datapath cannot rewrite ARP: ovs-vswitchd does it itself for each packet (commit_set_arp_action).
        if self.slow:
            return ("userspace(slow_path(action))",)
        return tuple(self.actions) if self.copies else ("drop",)

    def _is_arp_change(self, slot: Field, copy: Copy) -> bool:
        name = field_of(slot, self.original)
        return name.ovs_name.startswith("arp_") and copy.headers.get(slot) != self.original.get(slot)
