"""Flows as values: fields, matches, actions, cookies, and the bundles that change flows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from xenoovs.dataclass import dataclass

# The header and metadata fields that flows match and set. Names, widths and formats: ovs-fields(7).


class Format(Enum):
    """How ovs-ofctl(8) writes a value of a field."""

    DECIMAL = "decimal"
    HEX = "hex"
    L4_PORT = "l4 port"
    MAC = "mac"
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    FLAGS = "flags"
    VLAN = "vlan"


class Field(Enum):
    """A field: name in ovs-ofctl, width in bits, format, NXM/OXM name; in the order in which Open vSwitch prints."""

    PKT_MARK = ("pkt_mark", 32, Format.HEX, "NXM_NX_PKT_MARK")
    REG0 = ("reg0", 32, Format.HEX, "NXM_NX_REG0")
    REG1 = ("reg1", 32, Format.HEX, "NXM_NX_REG1")
    REG2 = ("reg2", 32, Format.HEX, "NXM_NX_REG2")
    REG3 = ("reg3", 32, Format.HEX, "NXM_NX_REG3")
    TUN_ID = ("tun_id", 64, Format.HEX, "NXM_NX_TUN_ID")
    TUN_SRC = ("tun_src", 32, Format.IPV4, "NXM_NX_TUN_IPV4_SRC")
    TUN_DST = ("tun_dst", 32, Format.IPV4, "NXM_NX_TUN_IPV4_DST")
    METADATA = ("metadata", 64, Format.HEX, "OXM_OF_METADATA")
    VLAN = ("dl_vlan", 13, Format.VLAN, "NXM_OF_VLAN_TCI")
    DL_SRC = ("dl_src", 48, Format.MAC, "NXM_OF_ETH_SRC")
    DL_DST = ("dl_dst", 48, Format.MAC, "NXM_OF_ETH_DST")
    DL_TYPE = ("dl_type", 16, Format.HEX, "NXM_OF_ETH_TYPE")
    NW_SRC = ("nw_src", 32, Format.IPV4, "NXM_OF_IP_SRC")
    NW_DST = ("nw_dst", 32, Format.IPV4, "NXM_OF_IP_DST")
    IPV6_SRC = ("ipv6_src", 128, Format.IPV6, "NXM_NX_IPV6_SRC")
    IPV6_DST = ("ipv6_dst", 128, Format.IPV6, "NXM_NX_IPV6_DST")
    ARP_SPA = ("arp_spa", 32, Format.IPV4, "NXM_OF_ARP_SPA")
    ARP_TPA = ("arp_tpa", 32, Format.IPV4, "NXM_OF_ARP_TPA")
    NW_PROTO = ("nw_proto", 8, Format.DECIMAL, "NXM_OF_IP_PROTO")
    ARP_OP = ("arp_op", 16, Format.DECIMAL, "NXM_OF_ARP_OP")
    ARP_SHA = ("arp_sha", 48, Format.MAC, "NXM_NX_ARP_SHA")
    ARP_THA = ("arp_tha", 48, Format.MAC, "NXM_NX_ARP_THA")
    NW_TOS = ("nw_tos", 8, Format.DECIMAL, "NXM_OF_IP_TOS")
    ICMP_TYPE = ("icmp_type", 8, Format.DECIMAL, "NXM_OF_ICMP_TYPE")
    ICMP_CODE = ("icmp_code", 8, Format.DECIMAL, "NXM_OF_ICMP_CODE")
    TP_SRC = ("tp_src", 16, Format.L4_PORT, "NXM_OF_TCP_SRC")
    TP_DST = ("tp_dst", 16, Format.L4_PORT, "NXM_OF_TCP_DST")
    TCP_FLAGS = ("tcp_flags", 12, Format.FLAGS, "NXM_NX_TCP_FLAGS")

    def __init__(self, ovs_name: str, width: int, form: Format, nxm: str) -> None:
        self.ovs_name = ovs_name
        self.width = width
        self.form = form
        self.nxm = nxm
        # The last two bits of the type of service are a field of their own, nw_ecn (ovs-fields(7), "IPv4/IPv6").
        self.all_ones = 0xFC if ovs_name == "nw_tos" else (1 << width) - 1
        self.rank = len(type(self).__members__)

    @property
    def place(self) -> str:
        """What actions write, as Open vSwitch prints it: the priority in a tag is no part of `VLAN`."""
        return f"{self.nxm}[0..12]" if self is Field.VLAN else f"{self.nxm}[]"

    # Enum hashes its name in Python at each look-up; members are singletons, so identity serves and is 10 times faster.
    __hash__ = object.__hash__


UNTAGGED = 0
"""`Field.VLAN` of a frame without a tag."""
TAGGED = 0x1000
"""The bit of `Field.VLAN` that says that there is a tag; the VLAN id is below it (OpenFlow 1.4.0, 7.2.2.7:
OFPVID_PRESENT). Written, the value adds a tag, changes its id or removes it, and keeps the priority."""


def tag_of(vlan: int) -> int:
    """Return what `Field.VLAN` has of frames in a VLAN; 0: of those without a tag."""
    return TAGGED | vlan if vlan else UNTAGGED


ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_IPV6 = 0x86DD
"""EtherTypes (IEEE 802 Numbers, IANA)."""

TCP = 6
"""Assigned Internet Protocol Numbers (IANA)."""

TCP_SYN, TCP_ACK = 0x002, 0x010
"""Flags of a TCP header (RFC 9293, 3.1)."""


# What a flow matches: an ingress port and masked fields, in one canonical form: equal matches are equal values.


class Masked(NamedTuple):
    """`field & mask == value`. Integers, never network objects: 0.0.0.3 is a mask here, not a host mask."""

    field: Field
    value: int
    mask: int

    @property
    def is_exact(self) -> bool:
        return self.mask == self.field.all_ones


def exact(field: Field, value: int) -> Masked:
    """Return the condition that the whole field equals `value`."""
    return Masked(field, value, field.all_ones)


@dataclass(frozen=True, slots=True)
class Match:
    """All conditions of a flow; build it with `match_of`. `masked`: in the order of `Field`, one per field, none with
    mask 0, no value bit outside its mask. `foreign`: conditions that xenoovs does not know, as ovs-ofctl writes them,
    so that nothing is lost."""

    in_port: str | None = None
    masked: tuple[Masked, ...] = ()
    foreign: tuple[str, ...] = ()

    def get(self, field: Field) -> Masked | None:
        for masked in self.masked:
            if masked.field is field:
                return masked
        return None


def match_of(conditions: Iterable[Masked], *, in_port: str | None = None, foreign: Iterable[str] = ()) -> Match:
    """Return the canonical match of `conditions`: masks of 0 are dropped. Raises ValueError for a value outside its
    mask and for two conditions on one field."""
    ordered = sorted([c for c in conditions if c.mask], key=_rank)
    before: Field | None = None
    for field, value, mask in ordered:
        if value & ~mask or mask > field.all_ones:
            raise ValueError(f"{field.ovs_name}: value {value:#x} outside mask {mask:#x}")
        if field is before:
            raise ValueError(f"{field.ovs_name} is matched twice")
        before = field
    return Match(in_port, tuple(ordered), tuple(sorted(foreign)))


_rank = attrgetter("field.rank")


# What a flow does with a packet. A flow with no action drops it. Names: ovs-actions(7).


LOCAL = "LOCAL"
"""The bridge's own port, which ovs-ofctl never calls by its name (OpenFlow 1.4.0, 7.2.1: OFPP_LOCAL)."""

MAX_PORT_NAME = 15
"""Bytes of a port name in OpenFlow; longer ones are cut, and two that become equal lose their names
(OpenFlow 1.4.0, 7.2.1: OFP_MAX_PORT_NAME_LEN with its final zero)."""

_RESERVED_WORDS = frozenset(
    ("in_port", "table", "normal", "flood", "all", "controller", "local", "any", "none", "unset", "drop")
)
"""Names that ovs-ofctl(8) reads as reserved ports or as an action, in any case of letters (OFPUTIL_NAMED_PORTS in
include/openvswitch/ofp-port.h)."""


def why_unusable(name: str) -> str | None:
    """Return why no flow can name a port of this name, as the end of a sentence; None if flows can name it."""
    if name.isdigit():
        return "is a number, which OpenFlow reads as the number of a port"
    if name.lower() in _RESERVED_WORDS:
        return "is a reserved word of OpenFlow flows"
    if "action" in name:
        # parse_ofp_str__() of lib/ofp-flow.c looks for the word anywhere in a flow.
        return "contains 'action', with which ovs-ofctl starts the actions of a flow"
    if any(char in name for char in ' ,\t\n"\\'):
        return "contains characters that separate the parts of a flow"
    if len(name.encode()) > MAX_PORT_NAME:
        return f"has more than {MAX_PORT_NAME} bytes, and OpenFlow cuts longer names"
    return None


WIDEST_LOAD = 64
"""Bits that one action writes (NXAST_REG_LOAD, include/openvswitch/ofp-actions.h)."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send a copy out of the port of this name, or of `LOCAL`."""

    port: str


@dataclass(frozen=True, slots=True)
class OutputInPort:
    """Send a copy back where the packet came from (OpenFlow 1.4.0, 7.2.1: OFPP_IN_PORT)."""


@dataclass(frozen=True, slots=True)
class Normal:
    """Forward as a learning switch does (OFPP_NORMAL)."""


@dataclass(frozen=True, slots=True)
class SetField:
    """Overwrite a whole field of the packet or a register. Raises ValueError for a field of more than 64 bits: Open
    vSwitch would show two actions (NXAST_REG_LOAD)."""

    field: Field
    value: int

    def __post_init__(self) -> None:
        if self.field.width > WIDEST_LOAD:
            raise ValueError(f"{self.field.ovs_name} has more than {WIDEST_LOAD} bits and cannot be set at once")


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the whole of one field into another; of fields of unlike width, the low bits of the wider one."""

    source: Field
    target: Field

    @property
    def width(self) -> int:
        """How many bits are copied."""
        return min(self.source.width, self.target.width)


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Look the packet up in another table, and continue here afterwards."""

    table: int


@dataclass(frozen=True, slots=True)
class Learn:
    """Add a flow for the connection that this packet opens (ovs-actions(7), "The learn action").

    The new flow is in `table` with `priority` and `cookie`, and expires after `idle_timeout_s` (1..65535) without a
    packet. It matches dl_type, nw_proto and what this packet has in the fields `same`; it executes `writes`, then sends
    to the port whose number is in the register `output` now. No more than `limit` (1 or more) flows of this cookie are
    learned; all of them go with the last flow that learns them (`delete_learned`).
    """

    table: int
    priority: int
    cookie: int
    idle_timeout_s: int
    limit: int
    dl_type: int
    nw_proto: int
    same: tuple[Field, ...]
    writes: tuple[SetField, ...]
    output: Field


@dataclass(frozen=True, slots=True)
class Foreign:
    """An action that xenoovs never writes, as ovs-ofctl prints it."""

    text: str


@dataclass(frozen=True, slots=True)
class Failover:
    """Execute the first bucket whose port is live; none: drop. A bucket is rewrites and then an `Output`. On a bridge
    it is a fast-failover group (OpenFlow 1.4.0, 5.6.1), which `openflow/group.py` makes of it and back."""

    buckets: tuple[tuple[SetField | Output, ...], ...]

    @property
    def ports(self) -> tuple[str, ...]:
        """The port that each bucket watches and sends to."""
        return tuple(action.port for bucket in self.buckets for action in bucket if isinstance(action, Output))

    def live_bucket(self, live: Collection[str]) -> tuple[SetField | Output, ...]:
        """Return the actions of the first bucket whose port is among these; empty for none."""
        pairs = zip(self.ports, self.buckets, strict=True)
        return next((bucket for port, bucket in pairs if port in live), ())


Action = Output | OutputInPort | Normal | SetField | Move | Resubmit | Learn | Failover | Foreign


# Cookies: which program owns a flow, and which part of it. 64 bits: owner 16, generation 8, stage 8, service 32.


OWNER = 0x786F
"""ASCII "xo". Flows whose cookie starts otherwise are foreign: never changed, listed or counted."""

OWNER_MASK = 0xFFFF << 48

LEASE_OWNER, ANSWER_OWNER = 0x786C, 0x786E
"""ASCII "xl" and "xn": flows of a running controller beside the program, as leases (controller/mastership.py) and for
the neighbour discovery proxy (controller/neighbour_discovery.py). No program has them, and they do not affect the
packets of a service."""

_FAMILY, _FAMILY_MASK = 0x786C << 48, 0xFFFC << 48
"""All owners that are xenoovs: ASCII "xl" to "xo"."""


def encode_cookie(generation: int, stage: int, service_id: int) -> int:
    """Return a cookie of the program. `generation`: of the pipeline's layout, 0..255. `stage`: index in the pipeline,
    0..255. `service_id`: 0 for no service."""
    return OWNER << 48 | generation << 40 | stage << 32 | service_id


@dataclass(frozen=True, slots=True)
class CookieMask:
    """The cookies that have `value` in the bits of `mask`: a switch selects flows so (OpenFlow 1.4.0, 7.3.5.2)."""

    value: int
    mask: int

    def __contains__(self, cookie: int) -> bool:
        return cookie & self.mask == self.value


WHOLE_COOKIE = (1 << 64) - 1
"""The mask of a single cookie. Open vSwitch finds its flows by an index; for any other mask it visits all flows
(collect_rules_loose() of ofproto/ofproto.c)."""


Cookies = tuple[CookieMask, ...]
"""Disjoint masks, so that no flow is listed twice."""

OURS: Cookies = (CookieMask(OWNER << 48, OWNER_MASK),)


def all_but(excluded: CookieMask, *, among: CookieMask) -> Cookies:
    """Return the cookies of `among` without those of `excluded`, which is a part of it. OpenFlow has no negated filter:
    there is one mask for each bit by which a cookie can differ from `excluded`."""
    found, mask = [], among.mask
    for bit in (1 << position for position in reversed(range(64))):
        if excluded.mask & ~among.mask & bit:
            mask |= bit
            found.append(CookieMask(excluded.value & mask ^ bit, mask))
    return tuple(found)


FOREIGN = all_but(CookieMask(_FAMILY, _FAMILY_MASK), among=CookieMask(0, 0))
"""Foreign cookies, as `is_foreign` defines them."""


def is_ours(value: int) -> bool:
    """Whether a cookie is of xenoovs."""
    return value & OWNER_MASK == OWNER << 48


def is_foreign(value: int) -> bool:
    """Return whether a cookie is foreign: neither of the program nor of a controller of xenoovs."""
    return value & _FAMILY_MASK != _FAMILY


def stage_of(value: int) -> int | None:
    """Return the stage in a cookie of the program; None for any other."""
    return value >> 32 & 0xFF if is_ours(value) else None


def service_of(value: int) -> int:
    """Return the service id in a cookie of the program; 0 for no service."""
    return value & 0xFFFFFFFF


DEFAULT_PRIORITY = 0x8000
"""What ovs-ofctl leaves out of a dump (OFP_DEFAULT_PRIORITY, lib/match.c)."""

MAX_PRIORITY = 0xFFFF
MAX_TABLE = 254
"""OpenFlow 1.4.0, 7.3.4.1: priorities are 16 bits; table 255 means all tables (OFPTT_ALL)."""


@dataclass(frozen=True, slots=True)
class FlowKey:
    """What a strict flow-mod identifies a flow by (OpenFlow 1.4.0, 6.4); the cookie is not part of it."""

    table: int
    priority: int
    match: Match


@dataclass(frozen=True, slots=True)
class Flow:
    """One rule. `actions` empty: drop. `options`: Timeouts, flags and importance as ovs-ofctl writes them
    (`idle_timeout=10`, `send_flow_rem`), in its order. Programs have none. Only adding the flow again changes them
    (OpenFlow 1.4.0, 6.4)."""

    key: FlowKey
    cookie: int
    actions: tuple[Action, ...]
    options: tuple[str, ...] = ()

    @property
    def table(self) -> int:
        return self.key.table

    @property
    def priority(self) -> int:
        return self.key.priority

    @property
    def match(self) -> Match:
        return self.key.match

    @property
    def failover(self) -> Failover | None:
        """The failover that it does at last; None if it does something else."""
        return last if self.actions and isinstance(last := self.actions[-1], Failover) else None


def alternatives(actions: tuple[Action, ...]) -> tuple[tuple[Action, ...], ...]:
    """Return the lists of actions one of which is done: with each bucket of a failover, or the actions themselves."""
    if not actions or not isinstance(last := actions[-1], Failover):
        return (actions,)
    return tuple((*actions[:-1], *bucket) for bucket in last.buckets)


def output_ports(actions: tuple[Action, ...]) -> Iterator[str]:
    """Yield the names of the ports that actions may send to."""
    return (each.port for done in alternatives(actions) for each in done if isinstance(each, Output))


@dataclass(frozen=True, slots=True)
class ObservedFlow:
    """A flow read back from a switch, with its counters. `duration_s`: time since it was installed."""

    flow: Flow
    packets: int
    bytes: int
    duration_s: float


# A bundle: the ordered flow-mods that a switch takes all or none (OpenFlow 1.4.0, 7.3.9).


class Command(Enum):
    """Flow-mod commands as ovs-ofctl(8) writes them in a flow file. Only strict ones: they name exactly one flow."""

    ADD = "add"
    MODIFY = "modify_strict"
    DELETE = "delete_strict"


@dataclass(frozen=True, slots=True)
class FlowMod:
    command: Command
    flow: Flow


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a bridge. `number`: 32 bits. `failover`: None if it is no group that xenoovs could have made.
    `protocol`: whose L4 port its actions set; None if they set none."""

    number: int
    failover: Failover | None
    protocol: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMod:
    """`command`: ADD or DELETE; groups are never changed."""

    command: Command
    group: Group


@dataclass(frozen=True, slots=True)
class Bundle:
    """Flow-mods in the order in which they are sent: adds and changes before deletes, so that no packet is lost.
    `has_groups`: Whether flows before or after it have a `Failover`, for which it still needs groups. `added, deleted`:
    Groups that are sent before and behind the flow-mods."""

    mods: tuple[FlowMod, ...]
    has_groups: bool = False
    added: tuple[Group, ...] = ()
    deleted: tuple[Group, ...] = ()

    @property
    def in_order(self) -> tuple[FlowMod | GroupMod, ...]:
        """All that is sent."""
        if not (self.added or self.deleted):
            return self.mods
        deletes = (GroupMod(Command.DELETE, group) for group in self.deleted)
        return (*(GroupMod(Command.ADD, group) for group in self.added), *self.mods, *deletes)

    def __len__(self) -> int:
        return len(self.added) + len(self.mods) + len(self.deleted)
