"""The frames of a load: UDP packets of many clients to one service, as a pcap file."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import MeasureError
from xenoovs.lab.topology import SERVER_NETS, client_net, tried_ports, used_addresses
from xenoovs.model.address import Family, IPAddress, IPNetwork, checksum, parse_mac
from xenoovs.model.balancer import Balancer, KeyField, Protocol, Service
from xenoovs.model.packet import own_addresses

FCS_BYTES = 4
"""The checksum that a NIC adds to a frame (IEEE 802.3, section 3.2.9); sizes of frames include it, as in RFC 2544."""

FRAME_BYTES = (64, 68, 128, 256, 512, 1024, 1280, 1518)
"""The sizes of RFC 2544, section 9.1, and 68: the smallest for IPv6 and UDP with payload."""

_SHORTEST, _LONGEST = 64, 1518
_UDP = 17
_TTL = 64
SOURCE_PORT = 1024
"""The source port for services that do not split by it: the first above the system ports (RFC 6335, section 6)."""


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """The packets of a load. `net`: Contains all clients, unless the service splits by bits above it."""

    service: Service
    family: Family
    vip: IPAddress
    port: int
    net: IPNetwork
    source_mac: str
    gateway_mac: str
    clients: int
    seed: int = 0

    @property
    def shortest_bytes(self) -> int:
        """Return the smallest size of a frame, with FCS."""
        return max(_SHORTEST, _headers_bytes(self.family) + FCS_BYTES)


def load_profile(
    balancer: Balancer, service: Service, *, source_mac: str, gateway_mac: str, clients: int = 4096, seed: int = 0
) -> LoadProfile:
    """Return the load for a service. Raises MeasureError if the service serves no UDP."""
    if service.claim.protocol not in (None, Protocol.UDP):
        raise MeasureError(
            f"service {service.name} serves {service.claim.protocol.value}, and the load is UDP: name another with "
            "--service"
        )
    if service.claim.vlan:
        raise MeasureError(f"service {service.name} is in a VLAN and the load has no tags: name another with --service")
    family = sorted(service.claim.families, key=lambda each: each.bits)[0]
    vips = own_addresses(service, family, balancer.services)
    # The other half of the net is for the client that measures round trips.
    net, _ = client_net(family, used_addresses(balancer)).subnets()
    return LoadProfile(
        service=service,
        family=family,
        vip=vips[0] if vips else SERVER_NETS[family][1],
        port=tried_ports(service.claim)[0],
        net=net,
        source_mac=source_mac,
        gateway_mac=gateway_mac if service.vip_mac is None else str(service.vip_mac),
        clients=clients,
        seed=seed,
    )


def other_half(profile: LoadProfile) -> IPNetwork:
    """Return the other half of the net of clients, from which the load does not send."""
    return next(half for half in profile.net.supernet().subnets() if half != profile.net)


def _selected(profile: LoadProfile) -> Sequence[int]:
    key = profile.service.key
    return key.positions or range(key.max_width)


def client_bits(profile: LoadProfile) -> list[int]:
    """Return the positions of the address bits that hold a client's number, its lowest bit first."""
    by_port, selected = profile.service.key.field is KeyField.SOURCE_PORT, _selected(profile)
    own = range(profile.family.bits - profile.net.prefixlen)
    free = [position for position in own if by_port or position not in selected]
    return free if by_port else [*selected, *free]


def sources(profile: LoadProfile) -> list[tuple[IPAddress, int]]:
    """Return address and port of each client; every block of the service gets its share of the packets.

    The key bits count up, the first one fastest. So for any number of clients each block has its share, to within one
    client.
    """
    bits, address_bits = profile.family.bits, client_bits(profile)
    chance = random.Random(profile.seed)  # noqa: S311 - repeatable test traffic, no secret
    by_port, selected = profile.service.key.field is KeyField.SOURCE_PORT, _selected(profile)
    flips, found = chance.getrandbits(len(address_bits)), []
    base = int(profile.net.network_address)
    for number in range(profile.clients):
        value = number ^ (flips & (1 << len(address_bits)) - 1)
        address = base
        for bit, position in enumerate(address_bits):
            address = address & ~(1 << position) | (value >> bit & 1) << position
        port = SOURCE_PORT
        if by_port:
            port = sum((number >> bit & 1) << position for bit, position in enumerate(selected)) or 1 << 15
        found.append((IPv4Address(address) if bits == 32 else IPv6Address(address), port))
    chance.shuffle(found)
    return found


def new_clients(profile: LoadProfile, count: int) -> list[tuple[IPAddress, int]]:
    """Return `count` clients that are not in the load."""
    known = set(sources(profile))
    return [each for each in sources(replace(profile, clients=profile.clients + count)) if each not in known]


def frame(profile: LoadProfile, source: IPAddress, port: int, *, frame_bytes: int) -> bytes:
    """Return one frame without its FCS. Raises MeasureError if the size is out of range."""
    if not profile.shortest_bytes <= frame_bytes <= _LONGEST:
        raise MeasureError(
            f"a frame of {frame_bytes} bytes is not possible: {profile.shortest_bytes} to {_LONGEST}, with FCS"
        )
    payload = bytes(frame_bytes - FCS_BYTES - _headers_bytes(profile.family))
    length = 8 + len(payload)
    pseudo = source.packed + profile.vip.packed
    pseudo += struct.pack("!HH", _UDP, length) if profile.family is Family.IPV4 else struct.pack("!II", length, _UDP)
    udp = struct.pack("!HHHH", port, profile.port, length, 0)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp + payload) or 0xFFFF)
    macs = b"".join(parse_mac(mac).value.to_bytes(6, "big") for mac in (profile.gateway_mac, profile.source_mac))
    if profile.family is Family.IPV6:
        header = struct.pack("!IHBB", 6 << 28, length, _UDP, _TTL) + source.packed + profile.vip.packed
        return macs + b"\x86\xdd" + header + udp + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, _TTL, _UDP, 0) + source.packed + profile.vip.packed
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return macs + b"\x08\x00" + header + udp + payload


def pcap_file(frames: Sequence[bytes]) -> bytes:
    """Return a pcap file (https://wiki.wireshark.org/Development/LibpcapFileFormat)."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(
        struct.pack("<IIII", 0, number, len(one), len(one)) + one for number, one in enumerate(frames)
    )


def _headers_bytes(family: Family) -> int:
    return 14 + (20 if family is Family.IPV4 else 40) + 8
