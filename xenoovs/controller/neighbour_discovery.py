"""The neighbour discovery proxy: answers solicitations for the IPv6 addresses of services (RFC 4861)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from struct import Struct
from threading import Event, Lock, Thread
from time import monotonic

from xenoovs.compile.encoding import vlan_is
from xenoovs.compile.pipeline import NEIGHBOUR_DISCOVERY_PRIORITY, Stage
from xenoovs.controller.connection import BridgeConnection
from xenoovs.controller.log import surviving
from xenoovs.controller.session import XID
from xenoovs.dataclass import dataclass
from xenoovs.errors import NotEncodable, WireError
from xenoovs.log import TokenBucket, warn
from xenoovs.model.address import Family, checksum, prefix_of
from xenoovs.model.balancer import Balancer, Protocol, share_frames
from xenoovs.model.next_hop import NO_TAG
from xenoovs.openflow.flow import (
    ANSWER_OWNER,
    ETH_IPV6,
    Command,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Output,
    exact,
    match_of,
)
from xenoovs.openflow.text import render_ipv6
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.message import WHOLE_PACKET, PacketIn, decode_packet_in, encode_packet_out

# Neighbour solicitations of IPv6 and their answers, as frames (RFC 4861, 4.3, 4.4 and 7.1.1; RFC 4443, 2.3).


_ETHERNET = 14
_TAG = 4
_TAG_TYPES = (b"\x81\x00", b"\x88\xa8")
"""IEEE 802.1Q, 9.5: EtherTypes of tags, which are sent back unchanged."""
_ETH_IPV6 = b"\x86\xdd"

_IPV6 = Struct("!IHBB16s16s")
_ICMP = Struct("!BBHI16s")
_PSEUDO = Struct("!16s16sI3xB")
"""IPv6, ICMPv6 up to the target, and the pseudo-header under the checksum (RFC 8200, 3 and 8.1)."""

_VERSION = 6 << 28
_ICMPV6 = 58
_SOLICITATION, _ADVERTISEMENT = 135, 136
_HOP_LIMIT = 255
"""The hop limit of a packet that no router has forwarded: it is of this link."""
_SOURCE_LINK, _TARGET_LINK = 1, 2
"""Options with a link-layer address (RFC 4861, 4.6.1)."""
_MAC_OPTION = 8

_SOLICITED, _OVERRIDE = 1 << 30, 1 << 29
_UNSPECIFIED = bytes(16)
_ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")
"""RFC 4291, 2.7.1: the first 104 bits."""


@dataclass(frozen=True, slots=True)
class Solicitation:
    """A neighbour solicitation for `target`. Addresses are 16 bytes, MACs 6. `source`: all zeros if a host checks
    whether an address is free (RFC 4862, 5.4). `tags`: bytes of VLAN tags."""

    target: bytes
    source: bytes
    mac: bytes
    tags: bytes = b""

    @property
    def vlan(self) -> int:
        """Return the VLAN id of the outer tag; NO_TAG without one."""
        return int.from_bytes(self.tags[2:4], "big") & 0xFFF if self.tags else NO_TAG


def parse_solicitation(frame: bytes) -> Solicitation | None:
    """Return the solicitation; None for other frames, and for a solicitation that RFC 4861 requires to drop."""
    start = _ETHERNET - 2
    while frame[start : start + 2] in _TAG_TYPES:
        start += _TAG
    if frame[start : start + 2] != _ETH_IPV6 or len(frame) < start + 2 + _IPV6.size + _ICMP.size:
        return None
    version, size, protocol, hops, source, destination = _IPV6.unpack_from(frame, start + 2)
    message = frame[start + 2 + _IPV6.size :][:size]
    if version >> 28 != 6 or protocol != _ICMPV6 or hops != _HOP_LIMIT or len(message) < max(size, _ICMP.size):
        return None
    kind, code, _, _, target = _ICMP.unpack_from(message)
    if (kind, code) != (_SOLICITATION, 0) or target[0] == 0xFF or _checksum(source, destination, message):
        return None
    link = _link_option(message[_ICMP.size :])
    mac = link or frame[6:12]
    if link is None or mac[0] & 1 or (source == _UNSPECIFIED and (link or not destination.startswith(_SOLICITED_NODE))):
        return None
    return Solicitation(target, source, mac, frame[_ETHERNET - 2 : start])


def advertisement(solicitation: Solicitation, mac: bytes) -> bytes:
    """Return the frame that advertises `mac` for the target. It goes to all nodes if the sender has no address yet."""
    is_for_all = solicitation.source == _UNSPECIFIED
    destination, to = (_ALL_NODES, _ALL_NODES_MAC) if is_for_all else (solicitation.source, solicitation.mac)
    flags = _OVERRIDE if is_for_all else _OVERRIDE | _SOLICITED
    option = bytes((_TARGET_LINK, 1)) + mac
    unsigned = _ICMP.pack(_ADVERTISEMENT, 0, 0, flags, solicitation.target) + option
    found = _checksum(solicitation.target, destination, unsigned)
    message = _ICMP.pack(_ADVERTISEMENT, 0, found, flags, solicitation.target) + option
    header = _IPV6.pack(_VERSION, len(message), _ICMPV6, _HOP_LIMIT, solicitation.target, destination)
    return to + mac + solicitation.tags + _ETH_IPV6 + header + message


def _link_option(options: bytes) -> bytes | None:
    """Return the MAC in the options, empty if none; None if an option has no length, or is cut (RFC 4861, 7.1.1)."""
    found, rest = b"", options
    while rest:
        size = 8 * rest[1] if len(rest) > 1 else 0
        if not 0 < size <= len(rest):
            return None
        if rest[0] == _SOURCE_LINK and size == _MAC_OPTION:
            found = rest[2:8]
        rest = rest[size:]
    return found


def _checksum(source: bytes, destination: bytes, message: bytes) -> int:
    """Return the checksum of a message whose checksum is 0; 0 for a message with a correct checksum."""
    return checksum(_PSEUDO.pack(source, destination, len(message), _ICMPV6) + message)


# Packet-in to packet-out, and the flows that send solicitations to the controller.
#
# Open vSwitch makes an answer to ARP out of the request; a neighbour solicitation has no room for one, because the
# option with the sender's address may be missing. So those for our VIPs come to the controller. Their flows are no part
# of the program: they would be wrong without a controller, so they last for seconds only and are added repeatedly.


LEASE_S = 10
"""After this time without a controller, neighbour discovery is forwarded as without one."""

PRIORITY = NEIGHBOUR_DISCOVERY_PRIORITY + 1
"""Above the flows that exclude neighbour discovery from services."""

_BITS = Family.IPV6.bits
_TO_CONTROLLER = Foreign(f"CONTROLLER:{WHOLE_PACKET}")

Macs = Mapping[tuple[int | None, int], Mapping[int, bytes]]
"""The MAC that answers for IPv6 addresses, 6 bytes, by VLAN (as `Claim.vlan`) and prefix length, then by first address;
in the order in which services get packets."""


def macs_of(balancer: Balancer) -> Macs:
    """Return the MACs of all services with a `vip_mac`, by the rules of ARP for IPv4 addresses."""
    found = defaultdict[tuple[int | None, int], dict[int, bytes]](dict)
    for service in balancer.services:
        if service.vip_mac is not None:
            for first, length in map(prefix_of, service.claim.vips_of(Family.IPV6)):
                found[service.claim.vlan, length][int(first)] = service.vip_mac.value.to_bytes(6, "big")
    return dict(sorted(found.items(), key=lambda item: (item[0][0] is not None, item[0][1]), reverse=True))


def answer_flows(balancer: Balancer) -> Iterator[Flow]:
    """Yield the flows that send solicitations here: one for each ingress port, VLAN and VIP."""
    vips = [(vlan, first, length) for (vlan, length), macs in macs_of(balancer).items() for first in macs]
    vips.sort(key=lambda each: (each[0] or 0, *each[1:]))
    for in_port, (vlan, first, length) in product(balancer.uplinks.ingress, vips):
        conditions = (
            exact(Field.DL_TYPE, ETH_IPV6),
            *vlan_is(vlan),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV6)),
            exact(Field.ICMP_TYPE, _SOLICITATION),
            exact(Field.ICMP_CODE, 0),
        )
        mask = "" if length == _BITS else f"/{length}"
        match = match_of(conditions, in_port=in_port, foreign=(f"nd_target={render_ipv6(first)}{mask}",))
        key = FlowKey(Stage.CLASSIFY.table, PRIORITY, match)
        yield Flow(key, ANSWER_OWNER << 48, (_TO_CONTROLLER,), (f"hard_timeout={LEASE_S}",))


def answer(packet: PacketIn, macs: Macs, ofports: Mapping[str, int]) -> bytes | None:
    """Return the request to send the answer through the ingress port; None for a packet that asks for none of these
    addresses. `ofports`: OpenFlow port numbers by name. Raises NotEncodable."""
    solicitation = parse_solicitation(packet.data)
    if solicitation is None or packet.match.in_port is None:
        return None
    target = int.from_bytes(solicitation.target, "big")
    found = (
        by_first.get(target >> _BITS - length << _BITS - length)
        for (vlan, length), by_first in macs.items()
        if share_frames(vlan, solicitation.vlan)
    )
    mac = next((mac for mac in found if mac is not None), None)
    if mac is None:
        return None
    out = Output(packet.match.in_port)
    return encode_packet_out((out,), advertisement(solicitation, mac), ofports, xid=XID)


RATE_PER_S, BURST = 200.0, 400.0
"""Packets per second from a switch that are processed. Hosts retry after a second (RFC 4861, 10: RETRANS_TIMER)."""

_STEP_S = LEASE_S / 3
_QUIET_S = 60.0


class NeighbourProxy:
    """Answers solicitations for the addresses of the services of one bridge. Above RATE_PER_S they are only counted, in
    `dropped`. Reading threads call `receive`, any thread `follow`; another thread renews the flows until `close`."""

    def __init__(
        self,
        connection: Callable[[], BridgeConnection | None],
        *,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._connection, self._now_s = connection, now_s
        self._macs: Macs = {}
        self._flows: tuple[Flow, ...] = ()
        self._balancer: Balancer | None = None
        self._bucket = TokenBucket(rate=RATE_PER_S, size=BURST, now_s=now_s())
        self._quiet_until_s = 0.0
        self._lock = Lock()
        self._sent: tuple[BridgeConnection | None, tuple[Flow, ...]] = None, ()
        self._wake, self._is_closing = Event(), False
        self._thread: Thread | None = None
        self.answered = self.dropped = 0

    def follow(self, balancer: Balancer) -> None:
        """Answer for the addresses of this balancer from now on, and update the flows of the bridge."""
        if balancer is not self._balancer:
            self._balancer = balancer
            self._macs, self._flows = macs_of(balancer), tuple(answer_flows(balancer))
        if self._macs and self._thread is None:
            self._thread = Thread(target=self._run, name="xenoovs-neighbours", daemon=True)
            self._thread.start()
        self._wake.set()

    def receive(self, connection: BridgeConnection, frame: bytes) -> None:
        """Process a packet-in; above the rate that takes a few microseconds. Only the master answers."""
        if connection.is_standby:
            return
        with self._lock:
            may = self._bucket.take(self._now_s())
            self.dropped += not may
        if not may:
            self._warn(connection, "packets come faster than they are answered", limit_pps=RATE_PER_S)
            return
        try:
            packed = answer(decode_packet_in(frame, connection.names), self._macs, connection.numbers)
            if packed is not None:
                self.answered += 1
                connection.session.send(packed)
        except (WireError, NotEncodable) as problem:
            self._warn(connection, "a packet-in cannot be parsed", reason=str(problem))

    def close(self) -> None:
        """Remove the flows, so that neighbour discovery is forwarded as without a controller at once."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(_STEP_S)
            self._wake.clear()
            with surviving("neighbour discovery"):
                self._renew()

    def _renew(self) -> None:
        connection, balancer = self._connection(), self._balancer
        last, sent = self._sent
        if connection is None or connection.is_standby or balancer is None:
            self._sent = None, ()
            return
        is_over = self._is_closing or balancer.uplinks.bridge != connection.bridge
        flows = () if is_over else self._flows
        keys = {flow.key for flow in flows}
        gone = (flow for flow in sent if flow.key not in keys and last is connection)
        mods = [*(FlowMod(Command.ADD, flow) for flow in flows), *(FlowMod(Command.DELETE, flow) for flow in gone)]
        try:
            packed = b"".join(encode_flow_mod(mod, xid=XID, ofports=connection.numbers) for mod in mods)
        except NotEncodable:
            # A port is missing: the agent reports it, and this is tried again.
            return
        if packed:
            connection.session.send(packed)
        self._sent = connection, flows

    def _warn(self, connection: BridgeConnection, event: str, **facts: object) -> None:
        """Warn, but only once a minute: the switch decides how often there is a reason."""
        now_s = self._now_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _QUIET_S
            warn(event, bridge=connection.label, **facts)
