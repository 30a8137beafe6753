"""Neighbour discovery for the IPv6 addresses of services: solicitations that a bridge sends, and our answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import product
from struct import Struct
from threading import Event, Lock, Thread
from time import monotonic

from xenoovs.compile.pipeline import NEIGHBOUR_DISCOVERY_PRIORITY, Stage
from xenoovs.controller.bridge import full_bucket, take
from xenoovs.controller.connection import Line
from xenoovs.controller.log import Voice
from xenoovs.errors import NotEncodable, WireError
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer, Protocol
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
from xenoovs.openflow.wire.controller import PacketIn, PacketOut
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.message import decode, encode
from xenoovs.openflow.wire.switch import WHOLE_PACKET

# Neighbour solicitations of IPv6 and their answers, as frames (RFC 4861, 4.3, 4.4 and 7.1.1; RFC 4443, 2.3).


_ETHERNET = 14
_TAG = 4
_TAG_TYPES = (b"\x81\x00", b"\x88\xa8")
"""IEEE 802.1Q, 9.5: what stands before a tag. Tags are sent back as they came."""
_ETH_IPV6 = b"\x86\xdd"

_IPV6 = Struct("!IHBB16s16s")
_ICMP = Struct("!BBHI16s")
_PSEUDO = Struct("!16s16sI3xB")
"""IPv6, ICMPv6 up to the target, and the pseudo-header under the checksum (RFC 8200, 3 and 8.1)."""

_VERSION = 6 << 28
_ICMPV6 = 58
_SOLICITATION, _ADVERTISEMENT = 135, 136
_HOP_LIMIT = 255
"""No router has passed it on: it is of this link."""
_SOURCE_LINK, _TARGET_LINK = 1, 2
"""Options with a link-layer address (RFC 4861, 4.6.1)."""
_MAC_OPTION = 8

_SOLICITED, _OVERRIDE = 1 << 30, 1 << 29
_NOBODY = bytes(16)
_ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")
"""RFC 4291, 2.7.1: the first 104 bits."""


@dataclass(frozen=True, slots=True)
class Solicitation:
    """Who has `target`? Addresses are 16 bytes, MACs 6.

    source: all zeros where a host asks whether an address is free (RFC 4862, 5.4). tags: bytes of VLAN tags.
    """

    target: bytes
    source: bytes
    mac: bytes
    tags: bytes = b""


def parse_solicitation(frame: bytes) -> Solicitation | None:
    """None for all other frames, and for a solicitation that RFC 4861 tells to drop."""
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
    if link is None or mac[0] & 1 or (source == _NOBODY and (link or not destination.startswith(_SOLICITED_NODE))):
        return None
    return Solicitation(target, source, mac, frame[_ETHERNET - 2 : start])


def advertisement(asked: Solicitation, mac: bytes) -> bytes:
    """The answer: `mac` has the target. To all nodes where the asker has no address yet."""
    is_for_all = asked.source == _NOBODY
    destination, to = (_ALL_NODES, _ALL_NODES_MAC) if is_for_all else (asked.source, asked.mac)
    flags = _OVERRIDE if is_for_all else _OVERRIDE | _SOLICITED
    option = bytes((_TARGET_LINK, 1)) + mac
    unsigned = _ICMP.pack(_ADVERTISEMENT, 0, 0, flags, asked.target) + option
    checksum = _checksum(asked.target, destination, unsigned)
    message = _ICMP.pack(_ADVERTISEMENT, 0, checksum, flags, asked.target) + option
    header = _IPV6.pack(_VERSION, len(message), _ICMPV6, _HOP_LIMIT, asked.target, destination)
    return to + mac + asked.tags + _ETH_IPV6 + header + message


def _link_option(options: bytes) -> bytes | None:
    """The MAC in the options; empty: they have none; None: an option has no length, or is cut (RFC 4861, 7.1.1)."""
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
    """Of a message whose checksum is 0; 0 for a message with its right checksum."""
    data = _PSEUDO.pack(source, destination, len(message), _ICMPV6) + message + bytes(len(message) % 2)
    # The sum of 16-bit words with the carry added back is the remainder by 0xffff (RFC 1071, 2).
    rest = int.from_bytes(data, "big") % 0xFFFF
    return 0xFFFF - rest if rest else 0


# Who answers for the IPv6 addresses of the services: packet-in to packet-out, and the flows that bring the packets.
#
# Open vSwitch makes an answer to ARP out of the request; a neighbour solicitation has no room for one, because the
# option with the asker's address may be missing. So those for our VIPs come to the controller. Their flows are no part
# of the program: they would be wrong without a controller, so they live for seconds only and are added again and
# again.


LEASE_S = 10
"""After so many seconds without a controller neighbour discovery goes where it would go without one."""

PRIORITY = NEIGHBOUR_DISCOVERY_PRIORITY + 1
"""Above what keeps neighbour discovery out of services."""

_ICMPV6_SOLICITATION = 135
"""RFC 4861, 4.3."""
_TO_CONTROLLER = Foreign(f"CONTROLLER:{WHOLE_PACKET}")

Macs = Mapping[int, bytes]
"""The MAC that answers for an IPv6 address, 6 bytes by 128 bits."""


def macs_of(balancer: Balancer) -> dict[int, bytes]:
    """Of all services that name a `vip_mac`, as ARP for their IPv4 addresses is answered."""
    return {
        int(vip): service.vip_mac.value.to_bytes(6, "big")
        for service in balancer.services
        if service.vip_mac is not None
        for vip in service.claim.vips_of(Family.IPV6)
    }


def answer_flows(balancer: Balancer) -> Iterator[Flow]:
    """Sends solicitations for our addresses here: one flow for each ingress port and address."""
    for in_port, vip in product(balancer.uplinks.ingress, sorted(macs_of(balancer))):
        conditions = (
            exact(Field.DL_TYPE, ETH_IPV6),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV6)),
            exact(Field.ICMP_TYPE, _ICMPV6_SOLICITATION),
            exact(Field.ICMP_CODE, 0),
        )
        match = match_of(conditions, in_port=in_port, foreign=(f"nd_target={render_ipv6(vip)}",))
        key = FlowKey(Stage.CLASSIFY.table, PRIORITY, match)
        yield Flow(key, ANSWER_OWNER << 48, (_TO_CONTROLLER,), (f"hard_timeout={LEASE_S}",))


def answer(packet: PacketIn, macs: Macs) -> PacketOut | None:
    """What to send back by the port that asked; None for a packet that asks for none of our addresses."""
    asked = parse_solicitation(packet.data)
    if asked is None or packet.match.in_port is None:
        return None
    mac = macs.get(int(IPv6Address(asked.target)))
    return None if mac is None else PacketOut((Output(packet.match.in_port),), advertisement(asked, mac))


# Answers neighbour solicitations for the addresses of the services of one bridge.


RATE_PER_S, BURST = 200.0, 400.0
"""Packets from switches that are looked at. Hosts ask again after a second (RFC 4861, 10: RETRANS_TIMER)."""

_STEP_S = LEASE_S / 3
_QUIET_S = 60.0
_XID = 0
"""Below all that is waited for (`connection.py`)."""

Lines = Callable[[], Iterable[Line]]


class Responder:
    """`hear` is called by reading threads, `follow` by any; flows are kept by a thread of its own until `close`.

    answered, dropped: packets; dropped are those that came faster than RATE_PER_S and were not looked at.
    """

    def __init__(self, lines: Lines, *, voice: Voice, now_s: Callable[[], float] = monotonic) -> None:
        self._lines, self._voice, self._now_s = lines, voice, now_s
        self._macs: dict[int, bytes] = {}
        self._flows: dict[str, tuple[Flow, ...]] = {}
        self._balancer: Balancer | None = None
        self._bucket = full_bucket(rate=RATE_PER_S, size=BURST, now_s=now_s())
        self._quiet_until_s = 0.0
        self._lock = Lock()
        self._sent: dict[Line, tuple[Flow, ...]] = {}
        self._wake, self._is_closing = Event(), False
        self._thread: Thread | None = None
        self.answered = self.dropped = 0

    def follow(self, balancer: Balancer) -> None:
        """Answer for the addresses of this balancer from now on, and see to the flows of all bridges now."""
        if balancer is not self._balancer:
            self._balancer = balancer
            self._macs, self._flows = macs_of(balancer), {balancer.uplinks.bridge: tuple(answer_flows(balancer))}
        if self._macs and self._thread is None:
            self._thread = Thread(target=self._keep, name="xenoovs-neighbours", daemon=True)
            self._thread.start()
        self._wake.set()

    def hear(self, line: Line, frame: bytes) -> None:
        """A packet-in came. Beyond the rate it costs a few microseconds. The master alone answers."""
        if line.is_standby:
            return
        with self._lock:
            self._bucket, may = take(self._bucket, self._now_s())
            self.dropped += not may
        if not may:
            self._complain(line)
            return
        try:
            packet = decode(frame, names=line.names).message
            out = answer(packet, self._macs) if isinstance(packet, PacketIn) else None
            if out is not None:
                packed = encode(out, xid=_XID, ofports=line.numbers)
                self.answered += 1
                line.carrier.send(packed)
        except (WireError, NotEncodable) as strange:
            self._voice.warn("a packet of a bridge is not understood", bridge=line.label, reason=str(strange))

    def close(self) -> None:
        """Take the flows away, so that neighbour discovery goes on without us at once."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        while not self._is_closing:
            self._wake.wait(_STEP_S)
            self._wake.clear()
            lines = [line for line in self._lines() if not line.is_standby]
            self._sent = {line: flows for line, flows in self._sent.items() if line in lines}
            for line in lines:
                self._step(line, () if self._is_closing else self._flows.get(line.bridge, ()))

    def _step(self, line: Line, wanted: tuple[Flow, ...]) -> None:
        keys = {flow.key for flow in wanted}
        gone = (flow for flow in self._sent.get(line, ()) if flow.key not in keys)
        mods = [*(FlowMod(Command.ADD, flow) for flow in wanted), *(FlowMod(Command.DELETE, flow) for flow in gone)]
        try:
            packed = b"".join(encode_flow_mod(mod, xid=_XID, ofports=line.numbers) for mod in mods)
        except NotEncodable:
            # A port that is not there: the agent says so, and this is tried again.
            return
        if packed:
            line.carrier.send(packed)
        self._sent[line] = wanted

    def _complain(self, line: Line) -> None:
        now_s = self._now_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _QUIET_S
            self._voice.warn("packets come faster than they are answered", bridge=line.label, limit_pps=RATE_PER_S)
