"""Addresses, parsed strictly: MAC addresses, IP addresses and VIPs, and ranges of ports."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from xenoovs.dataclass import dataclass
from xenoovs.regex import ASCII, regex

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
Vip = IPAddress | IPNetwork
"""An address, or a prefix that is shorter than one."""

_MAC = regex(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", ASCII)


class Family(Enum):
    """An IP version; the value is the number of bits of its addresses."""

    IPV4 = 32
    IPV6 = 128

    @property
    def bits(self) -> int:
        return self.value


def family_of(vip: Vip) -> Family:
    return Family.IPV4 if vip.version == 4 else Family.IPV6


def vip_of(text: str) -> Vip:
    """Return the VIP of an address or of a prefix such as 10.3.10.0/24. Raises ValueError."""
    net = ip_network(text)
    return net.network_address if net.prefixlen == net.max_prefixlen else net


def prefix_of(vip: Vip) -> tuple[IPAddress, int]:
    """Return the first address of a VIP, and the length of its prefix."""
    if isinstance(vip, IPNetwork):
        return vip.network_address, vip.prefixlen
    return vip, vip.max_prefixlen


def prefix_text(vip: Vip) -> str:
    """Return a VIP in the form of a route: 192.0.2.10/32."""
    first, length = prefix_of(vip)
    return f"{first}/{length}"


def holds(vip: Vip, address: IPAddress) -> bool:
    """Return whether packets to this address are packets to the VIP."""
    return address in vip if isinstance(vip, IPNetwork) else address == vip


@dataclass(frozen=True, slots=True, order=True)
class Mac:
    """A 48-bit Ethernet address (IEEE 802-2014, section 8.2)."""

    value: int

    @property
    def is_multicast(self) -> bool:
        """The I/G bit: the lowest bit of the first octet."""
        return bool(self.value >> 40 & 1)

    def __str__(self) -> str:
        return self.value.to_bytes(6, "big").hex(":")


def parse_mac(text: str) -> Mac:
    """Parse six octets with colons, in any case. Raises ValueError with the value."""
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address of the form 02:00:5e:10:00:01")
    return Mac(int(text.replace(":", ""), 16))


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports first..last, both included, 0..65535."""

    first: int
    last: int

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    def overlaps(self, other: PortRange) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def merge_ports(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """Return the same ports in the fewest ranges, sorted. Ranges that overlap or touch become one."""
    merged: list[PortRange] = []
    for ports in sorted(ranges):
        if merged and ports.first <= merged[-1].last + 1:
            merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, ports.last))
        else:
            merged.append(ports)
    return tuple(merged)


def checksum(data: bytes | bytearray) -> int:
    """Return the Internet checksum (RFC 1071) of bytes that are not all 0; 0 if they include their right checksum."""
    # The sum of 16-bit words with the carry added back is the remainder by 0xffff (RFC 1071, 2).
    rest = int.from_bytes(data + bytes(len(data) % 2), "big") % 0xFFFF
    return 0xFFFF - rest if rest else 0
