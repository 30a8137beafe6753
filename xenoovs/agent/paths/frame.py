"""Probes, answers and quotes of probes as bytes of Ethernet frames. Pure.

For the fabric a probe equals a tunnel packet: UDP to the tunnel's port, with the TOS of data. Its tunnel header has a
VNI that no tunnel uses, so that a remote without reflector drops it silently. Answers are sent to REFLECTED_PORT.

Formats: Ethernet II, IPv4 (RFC 791), UDP (RFC 768), VXLAN (RFC 7348, 5), Geneve (RFC 8926, 3.4), ICMP (RFC 792).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from struct import Struct

from xenoovs.dataclass import dataclass
from xenoovs.model.address import checksum
from xenoovs.model.tunnel import ANSWER_SOURCE_PORTS, REFLECTED_PORT

UNUSED_VNI = 0xFFFFFE
"""A VNI, 24 bits. OVN uses VNIs from 1 up, and hosts rarely use more than some thousands."""

_GENEVE_PORT = 6081
_ETHERNET = Struct("!6s6sH")
_IPV4 = Struct("!BBHHHBBH4s4s")
_UDP = Struct("!HHHH")
_TUNNEL = Struct("!BBHI")
_PAYLOAD = Struct("!IIQ")
_ICMP = Struct("!BBH4x")

_ETH_IPV4 = 0x0800
_ICMP_PROTOCOL, _UDP_PROTOCOL = 1, 17
_VERSION_4, _LEAST_HEADER = 4, 5
_TIME_EXCEEDED, _TTL_EXPIRED = 11, 0
_OFFSET_BITS = 0x1FFF
_DEFAULT_TTL = 64
_VXLAN_WITH_VNI = 0x08
_ETHERNET_IN_GENEVE = 0x6558

_IP_AT = _ETHERNET.size


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses in the probes of one remote. MACs have 6 bytes. `tos`: of the data, 8 bits."""

    source_mac: bytes
    gateway_mac: bytes
    local: IPv4Address
    remote: IPv4Address
    tunnel_port: int
    tos: int


@dataclass(frozen=True, slots=True)
class Token:
    """The data in a probe and its answer: 32 bits each, and a random `nonce` of 64 bits, which others cannot know."""

    remote: int
    sequence: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a probe. `tos`: of the answer. `source`: the remote's address."""

    token: Token
    source: IPv4Address
    tos: int


@dataclass(frozen=True, slots=True)
class Quote:
    """An ICMP error of a router: the TTL of a probe to `remote` has expired. `ident`: of its IPv4 header, 16 bits."""

    router: IPv4Address
    remote: IPv4Address
    source_port: int
    ident: int


def probe_head(addresses: Addresses, source_port: int, *, ttl: int = _DEFAULT_TTL, ident: int = 0) -> bytes:
    """Return the frame of a probe without its `payload`, 50 bytes. The UDP checksum is 0, as in VXLAN (RFC 7348, 5)."""
    tunnel = _GENEVE if addresses.tunnel_port == _GENEVE_PORT else _VXLAN
    size = _UDP.size + len(tunnel) + _PAYLOAD.size
    fields = _VERSION_4 << 4 | _LEAST_HEADER, addresses.tos, _IPV4.size + size, ident, 0, ttl, _UDP_PROTOCOL
    ends = addresses.local.packed, addresses.remote.packed
    ip = _IPV4.pack(*fields, checksum(_IPV4.pack(*fields, 0, *ends)), *ends)
    ethernet = _ETHERNET.pack(addresses.gateway_mac, addresses.source_mac, _ETH_IPV4)
    return ethernet + ip + _UDP.pack(source_port, addresses.tunnel_port, size, 0) + tunnel


def payload(token: Token) -> bytes:
    """Return the last 16 bytes of a probe."""
    return _PAYLOAD.pack(token.remote, token.sequence, token.nonce)


_VXLAN = _TUNNEL.pack(_VXLAN_WITH_VNI, 0, 0, UNUSED_VNI << 8)
_GENEVE = _TUNNEL.pack(0, 0, _ETHERNET_IN_GENEVE, UNUSED_VNI << 8)


def parse_answer(frame: bytes) -> Answer | None:
    """Parse an answer; None if the frame is no answer, or is not complete."""
    ip, size = _reflected(frame), _UDP.size + _TUNNEL.size + _PAYLOAD.size
    if ip is None or ip.end != ip.body + size or _UDP.unpack_from(frame, ip.body)[2] != size:
        return None
    token = Token(*_PAYLOAD.unpack_from(frame, ip.end - _PAYLOAD.size))
    return Answer(token, ip.source, ip.tos)


def parse_returned(frame: bytes) -> frozenset[IPv4Address]:
    """Return the two addresses of a host's packet that a reflector returned as if it were a probe; empty if it is
    another frame. Such a packet has the ports of an answer, and the VNI of a tunnel."""
    ip = _reflected(frame)
    if ip is None or _TUNNEL.unpack_from(frame, ip.body + _UDP.size)[3] >> 8 == UNUSED_VNI:
        return frozenset()
    return frozenset({ip.source, ip.destination})


def _reflected(frame: bytes) -> _Ipv4 | None:
    """Return the IPv4 header of a frame with the ports of an answer, and a tunnel header; None if it is another one."""
    ip = _ipv4(frame, _IP_AT, _UDP_PROTOCOL)
    if ip is None or ip.end < ip.body + _UDP.size + _TUNNEL.size:
        return None
    source_port, port = _UDP.unpack_from(frame, ip.body)[:2]
    return ip if source_port in ANSWER_SOURCE_PORTS and port == REFLECTED_PORT else None


def parse_quote(frame: bytes, *, tunnel_port: int) -> Quote | None:
    """Parse the ICMP error of a router about a probe; None if the frame is another one. A router quotes the IPv4 header
    and at least the next 8 bytes, which are the UDP header (RFC 792, page 6)."""
    outer = _ipv4(frame, _IP_AT, _ICMP_PROTOCOL)
    if outer is None or outer.end < outer.body + _ICMP.size:
        return None
    if _ICMP.unpack_from(frame, outer.body)[:2] != (_TIME_EXCEEDED, _TTL_EXPIRED):
        return None
    message = frame[outer.body : outer.end]
    if checksum(message) != 0:
        return None
    at = outer.body + _ICMP.size
    inner = _ipv4(frame, at, _UDP_PROTOCOL, is_quote=True)
    if inner is None or outer.end < inner.body + _UDP.size:
        return None
    source_port, port, _, _ = _UDP.unpack_from(frame, inner.body)
    return Quote(outer.source, inner.destination, source_port, inner.ident) if port == tunnel_port else None


def destination_of(frame: bytes) -> IPv4Address | None:
    """Return the destination of an IPv4 frame without validating it; None for another or a truncated frame."""
    if len(frame) < _IP_AT + _IPV4.size or _ETHERNET.unpack_from(frame)[2] != _ETH_IPV4:
        return None
    return IPv4Address(frame[_IP_AT + _IPV4.size - 4 : _IP_AT + _IPV4.size])


def parse_next_hop_mac(frame: bytes, remote: IPv4Address, *, tunnel_port: int) -> bytes | None:
    """Return the destination MAC of a tunnel packet to this remote; None if it is another frame."""
    ip = _ipv4(frame, _IP_AT, _UDP_PROTOCOL)
    if ip is None or ip.destination != remote or ip.end < ip.body + _UDP.size:
        return None
    is_tunnel = _UDP.unpack_from(frame, ip.body)[1] == tunnel_port
    # The lowest bit is set in group addresses (IEEE 802, 8.2.2).
    return frame[:6] if is_tunnel and not frame[0] & 1 else None


@dataclass(frozen=True, slots=True)
class _Ipv4:
    """An IPv4 header. `body`, `end`: offsets of its payload in the frame."""

    tos: int
    ident: int
    source: IPv4Address
    destination: IPv4Address
    body: int
    end: int


def _ipv4(frame: bytes, at: int, protocol: int, *, is_quote: bool = False) -> _Ipv4 | None:
    """Return the IPv4 header at an offset; None if none of this protocol is there. `is_quote`: it may be truncated."""
    if len(frame) < at + _IPV4.size or (at == _IP_AT and _ETHERNET.unpack_from(frame)[2] != _ETH_IPV4):
        return None
    first, tos, length, ident, offset, _, found, _, source, destination = _IPV4.unpack_from(frame, at)
    body = at + (first & 0xF) * 4
    if first >> 4 != _VERSION_4 or first & 0xF < _LEAST_HEADER or found != protocol or offset & _OFFSET_BITS:
        return None
    if len(frame) < body or at + length < body or (not is_quote and len(frame) < at + length):
        return None
    # Routers change the TTL before they quote a header, and not all of them update its checksum.
    if not is_quote and checksum(frame[at:body]) != 0:
        return None
    return _Ipv4(tos, ident, IPv4Address(source), IPv4Address(destination), body, at + length)


# Source ports that the fabric hashes to different paths, found by probes whose TTL expires on the way.
#
# As in traceroute and CLOVE (N. Katta et al., "Clove", CoNEXT 2017, 3.1): a router that drops a probe reports it by
# ICMP, and quotes its source port. Two ports are on different paths if at some distance different routers answered for
# them. A router that is silent, or limits its ICMP, may hide a difference, but cannot make equal paths look different.


CANDIDATES = 48
"""Ports to try. One in 250,000 searches finds no port for one of four equal paths, one in 75 for one of eight."""

DISTANCES = (1, 2, 3)
"""TTLs of probes: to the leaf, the spine and the far leaf; with three tiers, to the first three routers."""

WAIT_S = (0.1, 0.3, 1.0, 2.0)
"""How long to wait for answers after each try. A probe without a quote is sent again, as Linux sends some six quotes to
one address at once, then one each second (net.ipv4.icmp_ratelimit, icmp_global_allow() and inet_peer_xrlim_allow())."""

Routers = Mapping[int, IPv4Address]
"""The routers that answered, by distance."""


@dataclass(frozen=True, slots=True)
class TtlProbe:
    """A probe to send. `ident`: of its IPv4 header, which the quote must have too."""

    source_port: int
    ttl: int
    ident: int


class Search:
    """A search for the paths to one remote, or a check of ports in use."""

    def __init__(self, remote: IPv4Address, ports: Iterable[int], idents: Iterator[int]) -> None:
        """Begin. `ports`: source ports to try, those in use first. `idents`: yields random numbers of 16 bits."""
        self._remote = remote
        self._found: dict[int, dict[int, IPv4Address]] = {port: {} for port in ports}
        self._idents = idents
        self._sent: dict[tuple[int, int], int] = {}
        """The TTL of each probe, by its source port and ident."""

    @property
    def has_gap(self) -> bool:
        """Return whether all routers at some distance are silent, so that paths that differ only there look equal."""
        return any(not any(ttl in found for found in self._found.values()) for ttl in self._distances)

    @property
    def _distances(self) -> set[int]:
        """Return the distances up to the farthest router that answered."""
        farthest = max((ttl for routers in self._found.values() for ttl in routers), default=0)
        return {ttl for ttl in DISTANCES if ttl <= farthest}

    @property
    def has_missing(self) -> bool:
        """Return whether a probe has no quote yet, of a distance at which some router answered."""
        answering = {ttl for routers in self._found.values() for ttl in routers}
        return any(answering - routers.keys() for routers in self._found.values()) or not answering

    def routers(self, port: int) -> Routers:
        return self._found.get(port, {})

    def probes(self) -> Iterator[TtlProbe]:
        """Yield the probes that have no quote yet, one distance after the other, because routers limit ICMP."""
        for ttl in DISTANCES:
            for port, routers in self._found.items():
                if ttl not in routers:
                    ident = next(self._idents)
                    self._sent[port, ident] = ttl
                    yield TtlProbe(port, ttl, ident)

    def quoted(self, quote: Quote) -> bool:
        """Count a quote of a probe of this search. Return whether it is one."""
        ttl = self._sent.get((quote.source_port, quote.ident))
        if ttl is None or quote.remote != self._remote:
            return False
        self._found[quote.source_port].setdefault(ttl, quote.router)
        return True

    def differing(self, most: int, *, keep: Iterable[int] = ()) -> tuple[int, ...]:
        """Return ports on different paths, at most `most`: first those to keep, then those with the most answers."""
        chosen = list(keep)
        if not any(self._found.values()):
            return tuple(chosen)
        for port in sorted(self._found, key=lambda port: -len(self._found[port])):
            if len(chosen) < most and all(differ(self._found[port], self.routers(other)) for other in chosen):
                chosen.append(port)
        return tuple(chosen)

    def same(self, ports: Iterable[int]) -> tuple[int, ...]:
        """Return the ports that have the same path as an earlier one, as far as routers answered."""
        kept, doubled = list[int](), list[int]()
        for port in ports:
            routers = self.routers(port)
            is_whole = bool(routers) and routers.keys() == self._distances
            is_double = is_whole and any(routers == self.routers(other) for other in kept)
            (doubled if is_double else kept).append(port)
        return tuple(doubled)


def in_places(before: Sequence[int], found: Sequence[int]) -> tuple[int, ...]:
    """Return the found ports in the order of the paths. Ports in use keep their positions, because blocks belong to
    paths; new ones take free positions. 0 if there is none for a position."""
    new = [port for port in found if port not in before]
    kept = [port if port in found else 0 for port in before]
    filled = [port or (new.pop(0) if new else 0) for port in kept]
    return (*filled, *new)


def differ(one: Routers, other: Routers) -> bool:
    """Return whether different routers answered at any distance."""
    return any(other.get(ttl, router) != router for ttl, router in one.items())


def hops_text(routers: Routers) -> str:
    """Return the routers in order, with `*` for one that did not answer; empty if none did."""
    farthest = max(routers, default=0)
    return ",".join(str(routers.get(ttl, "*")) for ttl in range(1, farthest + 1))
