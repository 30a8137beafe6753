"""A client's packet, as far as a balancer looks at it."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.model.address import Family, IPAddress, Mac, family_of


@dataclass(frozen=True, slots=True)
class Packet:
    """An IP packet on a port of the bridge. `protocol`: IANA number; ports are 0 for protocols without any.

    For ICMP, `sport` is the type and `dport` the code, as Open vSwitch keeps them (ovs-fields(7), "ICMP").
    tos: the type of service with the ECN bits, or the traffic class of IPv6.
    tcp_flags: of a TCP packet, as the header has them (RFC 9293, 3.1): ACK, the middle of a connection, or 0x002, SYN.
    """

    in_port: str
    source: IPAddress
    destination: IPAddress
    protocol: int
    sport: int = 0
    dport: int = 0
    dl_src: Mac = Mac(0x020000000001)
    dl_dst: Mac = Mac(0x020000000002)
    ttl: int = 64
    tcp_flags: int = 0x010
    tos: int = 0

    @property
    def family(self) -> Family:
        return family_of(self.source)
