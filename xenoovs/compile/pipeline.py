"""All numbers of the program: tables in their order, priorities, registers and cookies.

No other module writes a table number, a priority or a register. The laws behind the priorities:
- In `balance`, priority falls with the depth of a block, from one base that all services share. A packet then visits
  the masks of its service from short to long and stops at its own: one megaflow a block.
- In `classify`, priority falls as a claim gets more specific, for the same reason. Only claims of prefixes can nest:
  their priority rises with the length, below that of whole addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from xenoovs.model.address import Family, IPNetwork, Vip, family_of
from xenoovs.model.balancer import Claim
from xenoovs.model.values import SHORTEST_PREFIX
from xenoovs.openflow.flow import OURS, WHOLE_COOKIE, CookieMask, Cookies, Field, Resubmit, all_but, encode_cookie

GENERATION = 1
"""Version of this layout. Flows of xenoovs of another generation are replaced."""

SERVICE_ID = Field.REG0
"""Carries the service's id from `classify` to `balance`. Registers are in the first stage of the classifier's look-up
(lib/flow.h, FLOW_SEGMENT_1_ENDS_AT), so another service's masks never widen a megaflow."""

OUTPUT_PORT = Field.REG1
"""Carries the number of a port into a flow that Open vSwitch learns in `drain`."""

PATH_NUMBER = Field.REG2
"""Holds the number of a path, from 1, in the flows of HOME. A path whose source port is not known has no flow; without
the number, the paths after it would get other names when the flows are read back."""

SWAPPED_MAC = Field.METADATA
"""Holds a MAC while two are exchanged; a register is too narrow. Packets of services do not use it."""

SWAPPED_ADDRESS = Field.REG3
"""Holds the target address of an ARP request while it is exchanged with the sender's."""


class Stage(Enum):
    """The stages a packet passes, in order; the value is the table number and the stage number of the cookie."""

    CLASSIFY = 0
    BALANCE = 1
    DRAIN = 2
    """Packets of draining blocks only: its flows match whole addresses and ports, and so do the megaflows of all
    packets that pass it."""
    # 3 stays free: bridges hold flows of earlier versions, and an upgrade in place must move no client.
    HOME = 4
    """Memory: the home blocks of backends that do not serve all of theirs now. No packet enters this table."""
    DRAIN_TARGET = 5
    """Memory: the blocks in DRAIN as they will be in BALANCE. The age of the flow is that of the drain. No packet is
    sent here."""
    LEARNED = 6
    """Flows of connections, which Open vSwitch itself adds to the table of DRAIN."""

    @property
    def table(self) -> int:
        return Stage.DRAIN.value if self is Stage.LEARNED else self.value


NESTED_RULES = 3
"""The stage number of overlapping rules, the longest of which won; earlier versions wrote such rules."""

_OURS, _STAGE_BITS = OURS[0], 0b111
"""Three bits distinguish all stages of any generation. Each further bit would cost a request in every dump."""

LEARNED: Cookies = (CookieMask(_OURS.value | Stage.LEARNED.value << 32, _OURS.mask | _STAGE_BITS << 32),)
"""The flows that Open vSwitch has learned for drains. There may be thousands of them."""

PROGRAM: Cookies = all_but(LEARNED[0], among=_OURS)
"""All flows of xenoovs but the learned ones."""

PROBE_PRIORITY = 2100
ALIAS_PRIORITY = 2050
"""Probes of paths, their answers, and packets to another address of the host: above all services, as they are for the
host. A probe is also a packet to an address of the host, and comes first."""

NEIGHBOUR_DISCOVERY_PRIORITY = 2000
"""Above all services, so that none of them matches it."""

SERVICE_PRIORITY = 1000
VLAN_STEP = 500
"""Claims of a VLAN, from 1001 to 1500, are above claims of a VIP in every VLAN and have the same order."""
ANY_STEP = 600
"""Claims of no VIP in every VLAN are above both, up to 1600."""
_VIP_STEP = 64
"""More than all other conditions together: 1 for the protocol and 2 for each of 16 bits of the port."""
_PREFIX_PRIORITY = 501
_PREFIX_STEP = {Family.IPV4: 16, Family.IPV6: 4}
"""Priorities of each length of a prefix: all end at 884, above ARP and below whole addresses."""

BLOCK_PRIORITY = 1000

ARP_PRIORITY = 500
"""ARP for a VIP: below all services. Open vSwitch keeps arp_op and arp_tpa where it keeps nw_proto and nw_dst (struct
flow, lib/flow.h), so these flows lie in the subtable of the services with a VIP and a protocol; from higher up they
would make every packet pass it first and be matched by its destination. Those of prefixes are below it, to 476. Those
of a VLAN are above all others, from 501 to 525, as the services are."""
ARP_VLAN_STEP = 25

RETURN_PRIORITY = 400
"""Packets that backends send back: above other traffic, below ARP and all services, so that clients' packets do not
pass them."""
_RETURN_VLAN_STEP = 150
"""More than all other conditions on them together."""

TUNNEL_RETURN_PRIORITY = 100
"""Answers out of tunnels: below all services and ARP, which enter through other ports. Prefixes are below it, to 4."""

OTHER_PRIORITY = 1
"""Packets of no service; above the default flow of a fresh bridge (priority 0, NORMAL)."""


def service_priority(claim: Claim, vip: Vip | None, *, port_bits: int) -> int:
    """Priority of a claim's flow in `classify` for one of its VIPs.

    Claims of no VIP or of addresses never overlap, so the order is free for the choice that widens megaflows least:
    claims without a VIP first, or their packets would be matched by destination, of which clients have as many as they
    like; then fewer conditions first. Of claims without a VIP, those of every VLAN are above those of one VLAN, whose
    flows would add the VLAN to their megaflows. Flows with different conditions never share a priority, because Open
    vSwitch leaves the order of equal priorities undefined.

    Claims of prefixes come last, the longest first. Of one length they never overlap, and those with fewer conditions
    come first as far as there is room: of IPv4 masks of up to 3 bits of the port share a priority, of IPv6 all but 16.
    `vip` is None if the claim has none. `port_bits`: Bits of the destination port that the flow matches, 0..16.
    """
    has_protocol = claim.protocol is not None
    base = VLAN_STEP if claim.vlan is not None else ANY_STEP if vip is None else 0
    if isinstance(vip, IPNetwork):
        step = _PREFIX_STEP[family_of(vip)]
        rank = min(step - 3, 16 - port_bits) if port_bits else step - 1 - has_protocol
        return base + _PREFIX_PRIORITY + step * (vip.prefixlen - SHORTEST_PREFIX[vip.version]) + rank
    return base + SERVICE_PRIORITY - has_protocol - 2 * port_bits - _VIP_STEP * (vip is not None)


def arp_priority(vip: Vip, vlan: int | None) -> int:
    """Return the priority of the flow that answers ARP for a VIP. The service that would get the packet answers."""
    return below(ARP_PRIORITY + ARP_VLAN_STEP * (vlan is not None), vip)


def below(priority: int, vip: Vip) -> int:
    """Return the priority of a VIP's flow among those for ARP, or for answers: longer prefixes above shorter ones."""
    return priority - (family_of(vip).bits - vip.prefixlen if isinstance(vip, IPNetwork) else 0)


def return_priority(*, has_protocol: bool, port_bits: int, client_bits: int, has_vlan: bool = False) -> int:
    """Return the priority of a flow for packets that a backend sends back.

    As in `service_priority`, fewer conditions come first. Bits of the client's address come last, as megaflows of
    packets that pass such a flow match their destination. `port_bits`: of the source port, 0..16; `client_bits`: of the
    destination, 0..32.
    """
    priority = RETURN_PRIORITY - _RETURN_VLAN_STEP * has_vlan
    return priority - has_protocol - 2 * port_bits - _VIP_STEP * bool(client_bits) - client_bits


def block_priority(depth: int) -> int:
    """Priority of a block in `balance`: shorter masks first."""
    return BLOCK_PRIORITY - depth


class DrainPriority(Enum):
    """The priorities in `drain`, the most specific first; the value is that of depth 0."""

    LEARNED = 400
    NEW_CONNECTION = 300
    OPEN_CONNECTION = 200
    REST = 100


def drain_priority(kind: DrainPriority, depth: int = 0) -> int:
    """Priority in `drain`: shorter masks first, as in `balance`."""
    return kind.value - depth


def cookie_of(stage: Stage, service_id: int = 0) -> int:
    """The cookie of a flow of this stage; service id 0 for no service."""
    return encode_cookie(GENERATION, stage.value, service_id)


TO_DRAIN = (Resubmit(Stage.DRAIN.table),)
"""The actions of the flow of a draining block in `balance`."""

_PROGRAM_STAGES = tuple(stage for stage in Stage if stage is not Stage.LEARNED)


def of_service(service_id: int, stages: Iterable[Stage] = _PROGRAM_STAGES) -> Cookies:
    """Return the cookies of one service (id 0 for no service) in the stages of its program or in others. A switch finds
    these flows at once, however many it has learned. They do not match flows of another generation."""
    return tuple(CookieMask(cookie_of(stage, service_id), WHOLE_COOKIE) for stage in stages)
