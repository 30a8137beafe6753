"""A machine answers of which only the MAC is known: an echo request to all nodes, in a frame to that MAC alone.

Every IPv6 host listens to ff02::1 (RFC 4291, section 2.7.1) and answers an echo request to it (RFC 4443, section 4.2).
The random token comes back only from whoever took the frame, so it is the MAC that answered.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from pathlib import Path

from xenoovs.agent.probe.arp import packet_socket
from xenoovs.agent.probe.icmp import IcmpChannel, channel_key, checksum, open_icmp
from xenoovs.agent.probe.namespace import inside
from xenoovs.agent.probe.shared import Shared
from xenoovs.agent.probe.target import ArpTarget, Via

_ALL_NODES = IPv6Address("ff02::1")
_ETHERTYPE = 0x86DD
_NEXT_HEADER = 58
_HOP_LIMIT = 1

# Version, payload length, next header, hop limit, source, destination (RFC 8200, section 3).
_IPV6 = struct.Struct("!IHBB16s16s")


async def probe_all_nodes(target: ArpTarget, channels: Shared[IcmpChannel]) -> str | None:
    """Why not, or None. Raises OSError."""
    via = Via(target.interface, target.netns)
    source = inside(target.netns, lambda: _link_local(target.interface))
    if source is None:
        return f"interface {target.interface} has no IPv6 link-local address: give the address of the backend"
    with (
        channels.use(channel_key(_ALL_NODES, via), lambda: open_icmp(_ALL_NODES, via)) as channel,
        inside(target.netns, lambda: packet_socket(target.interface, 0)) as sock,
    ):
        where = (target.interface, _ETHERTYPE, 0, 0, target.mac.value.to_bytes(6, "big"))
        return await channel.echo_by(lambda message: sock.sendto(_packet(source, message), where))


def _packet(source: IPv6Address, message: bytes) -> bytes:
    """An IPv6 packet; the checksum covers the pseudo-header of RFC 8200, section 8.1."""
    pseudo = source.packed + _ALL_NODES.packed + struct.pack("!II", len(message), _NEXT_HEADER)
    summed = message[:2] + struct.pack("!H", checksum(pseudo + message)) + message[4:]
    header = _IPV6.pack(6 << 28, len(message), _NEXT_HEADER, _HOP_LIMIT, source.packed, _ALL_NODES.packed)
    return header + summed


def _link_local(interface: str) -> IPv6Address | None:
    """The address of a device in fe80::/10, from the calling thread's namespace (proc_net(5))."""
    for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines():
        digits, _, _, _, _, device = line.split()
        address = IPv6Address(int(digits, 16))
        if device == interface and address.is_link_local:
            return address
    return None
