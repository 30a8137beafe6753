"""Addresses of a lab: nets of its clients and servers, the addresses that clients send from, MACs of its own."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from itertools import accumulate

from xenoovs.errors import LabError
from xenoovs.model.address import Family, IPAddress, Mac, family_of

IPNetwork = IPv4Network | IPv6Network

# RFC 2544 (benchmarks) and RFC 6598 (shared address space); RFC 3849 (documentation) and RFC 4193 (local).
_CLIENT_NETS: dict[Family, tuple[str, ...]] = {
    Family.IPV4: ("198.18.0.0/15", "100.64.0.0/15"),
    Family.IPV6: ("2001:db8:c::/48", "fd00:c::/48"),
}
# RFC 5737 (TEST-NET-1) and RFC 3849: where services without a VIP are sought.
_SERVER_NETS = {Family.IPV4: "192.0.2.0/24", Family.IPV6: "2001:db8:5::/64"}

_WHOLE = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "2000::/3"}
"""All unicast addresses that clients of the Internet have (RFC 4291, section 2.4, for IPv6)."""

_OWN_MACS = 0x02786F000000
"""Locally administered (IEEE 802-2014, section 8.4)."""

_FEW = 4096
_TRIES = 1000


def client_net(family: Family, vips: Collection[IPAddress]) -> IPNetwork:
    """The net whose addresses all belong to the lab's clients: the first candidate that holds no VIP.

    Raises LabError when VIPs lie in all of them.
    """
    for text in _CLIENT_NETS[family]:
        net = ip_network(text)
        if not any(vip in net for vip in vips):
            return net
    raise LabError(f"there are VIPs in each of {', '.join(_CLIENT_NETS[family])}, which the lab needs for its clients")


def server_net(family: Family) -> IPNetwork:
    """The net whose addresses all belong to the backends of a service without VIP."""
    return ip_network(_SERVER_NETS[family])


def whole_space(family: Family) -> IPNetwork:
    """Where to draw clients from when the service splits by bits that `client_net` holds constant."""
    return ip_network(_WHOLE[family])


def own_macs(taken: Collection[Mac]) -> Iterable[Mac]:
    """MACs for the lab's own ends, in order, without those that the config uses."""
    return (mac for number in range(1, 1 << 24) if (mac := Mac(_OWN_MACS + number)) not in taken)


def draw_clients(nets: Iterable[IPNetwork], *, count: int, seed: int, taken: Collection[IPAddress]) -> list[IPAddress]:
    """`count` different addresses, uniformly from all of the nets together, the same ones for the same seed.

    Addresses that cannot be a client's are left out: network, broadcast, multicast, loopback, reserved ones, those in
    `taken` and in the lab's server nets. Raises LabError when the nets hold too few.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable test traffic, no secret
    nets = tuple(nets)
    ends = list(accumulate(net.num_addresses for net in nets))
    drawn: dict[IPAddress, None] = {}
    for number in _numbers(ends[-1], count=count, chance=chance):
        at = bisect_right(ends, number)
        net = nets[at]
        address = net[number - (ends[at] - net.num_addresses)]
        if address not in taken and _is_client(address, net):
            drawn[address] = None
        if len(drawn) == count:
            return list(drawn)
    named = ", ".join(map(str, nets[:5])) + (", ..." if len(nets) > 5 else "")
    raise LabError(f"{named} gave only {len(drawn)} addresses that clients can have, {count} are wanted; take fewer")


def _numbers(size: int, *, count: int, chance: random.Random) -> Iterable[int]:
    """Numbers below `size` by chance: all of them once where there are few, else enough to choose from."""
    if size <= _FEW:
        return chance.sample(range(size), size)
    return (chance.randrange(size) for _ in range(_TRIES + 100 * count))


def _is_client(address: IPAddress, net: IPNetwork) -> bool:
    """Whether a host in `net` may have the address."""
    if isinstance(address, IPv4Address) and net.prefixlen < 31 and address in (net[0], net[-1]):
        return False
    special = address.is_multicast or address.is_loopback or address.is_unspecified or address.is_link_local
    zero_net = address.version == 4 and int(address) >> 24 in (0, *range(240, 256))
    return not special and not zero_net and address not in server_net(family_of(address))


def parse_net(text: str) -> IPNetwork:
    """An address or a net in CIDR notation. Raises LabError with the text."""
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise LabError(f"{text!r} is neither an IP address nor a net like 198.51.100.0/24: {error}") from None


def parse_address(text: str) -> IPAddress:
    """An address that this package itself has written."""
    return ip_address(text)
